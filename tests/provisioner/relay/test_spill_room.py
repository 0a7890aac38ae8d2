"""Output on disk is bounded by kernel, by user and in all; killed relays leave nothing."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from relay_house import kill_and_wait

from jupyter_aliquot.provisioner.relay.store import spill_room
from jupyter_aliquot.provisioner.relay.store.segments import Spill
from jupyter_aliquot.provisioner.relay.store.spill_room import (
    ROOTS_SPILL_DIR,
    RoomBounds,
    SpillFullError,
    SpillRoom,
    choose_spill_dir,
    sweep,
)

KB = 1000


def a_spill(top: Path, user: str, kernel: str, bounds: RoomBounds) -> Spill:
    return Spill(SpillRoom(top, user, kernel, bounds), segment_bytes=10 * KB)


def fill(spill: Spill, most: int = 1000) -> tuple[int, str]:
    """Write until the room refuses: return the number of messages of 1 kB, and the reason."""
    for count in range(most):
        try:
            spill.write([b"x" * KB])
        except SpillFullError as error:
            return count, error.why
    raise AssertionError(f"no bound was met within {most} messages")


def on_disk(top: Path) -> int:
    return sum(path.stat().st_size for path in top.rglob("*") if path.is_file())


def open_below(top: Path) -> list[str]:
    """Return the files below a folder that this process has open; others' threads may open more elsewhere."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [path for path in found if path.startswith(str(top))]


def test_a_folder_that_cannot_be_locked_leaves_no_descriptor_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_locks(descriptor: int) -> bool:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(spill_room, "try_lock", without_locks)
    room = SpillRoom(tmp_path, "ada", "k1", RoomBounds(0))
    for _ in range(3):
        with pytest.raises(OSError, match="No locks available"), room.claim(1, 1):
            pass
    assert open_below(tmp_path) == []


@pytest.mark.parametrize(
    ("bounds", "want_kernel", "want_why"),
    [
        (RoomBounds(50 * KB, 500 * KB, 500 * KB), 48, "c.Limits.unsent_output_bytes)"),
        (RoomBounds(500 * KB, 50 * KB, 500 * KB), 48, "c.Limits.unsent_output_bytes_per_user)"),
        (RoomBounds(500 * KB, 500 * KB, 50 * KB), 48, "c.Limits.unsent_output_bytes_total)"),
    ],
)
def test_each_bound_holds_and_is_told_by_its_setting(
    tmp_path: Path, bounds: RoomBounds, want_kernel: int, want_why: str
) -> None:
    spill = a_spill(tmp_path, "mallory", "k1", bounds)
    count, why = fill(spill)
    assert want_kernel <= count <= 50
    assert want_why in why
    assert on_disk(tmp_path) <= 50 * KB


def test_what_one_users_kernels_fill_leaves_others_their_room(tmp_path: Path) -> None:
    bounds = RoomBounds(1000 * KB, 50 * KB, 1000 * KB)
    spills = [a_spill(tmp_path, "mallory", f"m{number}", bounds) for number in range(3)]
    counts = [fill(spill)[0] for spill in spills]
    assert 45 <= sum(counts) <= 50, "all of the user's kernels share one room"
    count, _ = fill(a_spill(tmp_path, "alice", "a", bounds))
    assert count >= 45


def test_one_user_leaves_others_half_of_a_small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is smaller than the bounds, as the file system of a container is."""
    disk, bounds = 100 * KB, RoomBounds(1000 * KB, 1000 * KB, 1000 * KB)
    monkeypatch.setattr(spill_room, "_free_bytes", lambda top: disk - on_disk(top))
    count, why = fill(a_spill(tmp_path, "mallory", "m", bounds))
    assert 45 <= count <= 50
    assert "fills their part of the disk" in why
    assert "ALIQUOT_SPILL_DIR" in why
    assert fill(a_spill(tmp_path, "alice", "a", bounds))[0] >= 40


def test_room_that_is_given_back_can_be_taken_again(tmp_path: Path) -> None:
    bounds = RoomBounds(0, 50 * KB, 0)
    first, second = (a_spill(tmp_path, "alice", kernel, bounds) for kernel in "ab")
    places = [first.write([b"x" * KB]) for _ in range(45)]
    assert fill(second)[0] < 10
    for place in places:
        first.forget(place)
    assert fill(second)[0] >= 40
    second.close()
    first.close()
    assert [path.name for path in tmp_path.rglob("*")] == ["lock"]


def test_what_a_killed_relay_left_is_counted_no_more_and_removed(tmp_path: Path) -> None:
    bounds = RoomBounds(0, 50 * KB, 0)

    def hold(ready: Callable[[int], object]) -> None:
        ready(fill(a_spill(tmp_path, "alice", "killed", bounds))[0])
        signal.pause()

    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=hold, args=(theirs.send,))
    process.start()
    try:
        assert ours.recv() >= 45
        assert fill(a_spill(tmp_path, "alice", "other", bounds))[0] < 10
    finally:
        assert process.pid is not None
        kill_and_wait(process.pid)
        process.join()
    sweep(tmp_path)
    assert on_disk(tmp_path) < 10 * KB
    assert fill(a_spill(tmp_path, "alice", "third", bounds))[0] >= 35


def test_a_full_disk_keeps_a_tenth_free_for_others(tmp_path: Path) -> None:
    script = "mount -t tmpfs -o size=2m none {top} && exec {python} -c '{code}'"
    code = (
        "from jupyter_aliquot.provisioner.relay.store.segments import Spill; "
        "from jupyter_aliquot.provisioner.relay.store.spill_room import RoomBounds, SpillRoom; "
        "import os; from pathlib import Path; "
        'top = Path("{top}"); spill = Spill(SpillRoom(top, "u", "k", RoomBounds(0))); spill.write([bytes(1 << 20)])\n'
        "try: spill.write([bytes(1 << 20)])\n"
        "except OSError as error: found = os.statvfs(top); print(error.why, found.f_bavail >= found.f_blocks // 10 - 4)"
    ).replace("{top}", str(tmp_path))
    command = script.format(top=tmp_path, python=sys.executable, code=code)
    found = subprocess.run(["unshare", "--mount", "sh", "-c", command], capture_output=True, text=True, check=False)
    if "unshare" in found.stderr or "mount" in found.stderr:
        pytest.skip(f"no mounts here: {found.stderr.strip()}")
    assert found.stdout == f"The disk of {tmp_path} is full (ALIQUOT_SPILL_DIR) True\n", found.stderr


def test_a_folder_of_another_account_is_refused_with_what_to_do(tmp_path: Path, a_bare_user: int) -> None:
    top = tmp_path / "squatted"
    top.mkdir()
    os.chown(top, a_bare_user, a_bare_user)
    with pytest.raises(SpillFullError, match="is not a folder of this account; set ALIQUOT_SPILL_DIR"):
        a_spill(top, "alice", "k", RoomBounds(0)).write([b"x"])


def test_the_folder_is_the_chosen_one_then_the_environments_then_outside_the_runtime_folder() -> None:
    want_default = Path(f"/var/tmp/aliquot-{os.geteuid()}-output")
    assert choose_spill_dir(Path("/a"), {"ALIQUOT_SPILL_DIR": "/b"}) == Path("/a")
    assert choose_spill_dir(None, {"ALIQUOT_SPILL_DIR": "/b"}) == Path("/b")
    assert choose_spill_dir(None, {}) == want_default


def test_the_output_of_other_accounts_waits_where_root_alone_makes_folders() -> None:
    found = choose_spill_dir(None, {}, is_for_accounts=True)
    assert found == ROOTS_SPILL_DIR
    assert not any(stat.S_IMODE(above.stat().st_mode) & 0o022 for above in found.parents if above.exists())
    assert choose_spill_dir(None, {"ALIQUOT_SPILL_DIR": "/b"}, is_for_accounts=True) == Path("/b")
