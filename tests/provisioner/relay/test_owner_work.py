"""A host of root works in users' folders as those users, in children, and none holds up another."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import gc
import inspect
import mmap
import os
import platform
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from owners_house import ADA, BOB, ENV, SLEEP, OwnersHouse, an_owners_house, kernel_pid
from relay_house import SECONDS, until
from second_account import as_another

from jupyter_aliquot.gpu_hook.base.process_account import account_of
from jupyter_aliquot.provisioner.launch_spec import KERNEL_ID_VARIABLE
from jupyter_aliquot.provisioner.relay.client import control as client
from jupyter_aliquot.provisioner.relay.host.owner_work import NO_GROUP, OwnerWork
from jupyter_aliquot.provisioner.relay.host.room import MOST_BYTES, MOST_ENTRIES, end_overfull, is_tight
from jupyter_aliquot.provisioner.relay.wire.files import read_ended_in

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can work as another account")


@pytest.fixture
def a_house() -> Iterator[OwnersHouse]:
    with an_owners_house() as house:
        yield house


class Worker:
    """The children of a host, with a loop for their answers."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.work = OwnerWork(self.selector)
        self.found: dict[str, Any] = {}

    def do(self, name: str, uid: int, work: Callable[[], Any]) -> None:
        self.work.do(uid, lambda: work, lambda found: self.found.__setitem__(name, found))

    def until(self, *names: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not set(names) <= set(self.found):
            assert time.monotonic() < deadline, f"{names} did not end: {self.found}"
            for key, _ in self.selector.select(1.0):
                key.data(key.fileobj)


@pytest.fixture
def a_worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.work.close()
    worker.selector.close()


def test_a_work_has_its_accounts_rights_alone_and_cannot_become_root(a_worker: Worker) -> None:
    def tell() -> list[Any]:
        try:
            os.setuid(0)
            became = "root"
        except PermissionError:
            became = "refused"
        return [os.getresuid(), os.getresgid(), os.getgroups(), became]

    a_worker.do("told", ADA, tell)
    a_worker.until("told")
    assert a_worker.found["told"] == [[ADA] * 3, [NO_GROUP] * 3, [], "refused"]


def test_a_work_has_its_memory_beside_what_a_large_host_has(a_worker: Worker) -> None:
    def take(count: int) -> str:
        return f"{len(bytearray(count))}"

    with mmap.mmap(-1, 3 << 29, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
        a_worker.do("fits", ADA, lambda: take(64 << 20))
        a_worker.do("too much", ADA, lambda: take((1 << 30) + (64 << 20)))
        a_worker.until("fits", "too much")
    assert a_worker.found == {"fits": f"{64 << 20}", "too much": None}


def test_a_work_that_never_ends_holds_up_its_own_account_alone_and_not_for_ever(a_worker: Worker) -> None:
    a_worker.do("stuck", ADA, signal.pause)
    a_worker.do("waits", ADA, lambda: "after it")
    a_worker.do("other", BOB, lambda: "at once")
    a_worker.until("other")
    assert a_worker.found["other"] == "at once"
    a_worker.work.kill_late(time.monotonic() + 1000)
    a_worker.until("stuck", "waits")
    assert (a_worker.found["stuck"], a_worker.found["waits"]) == (None, "after it")


@pytest.mark.parametrize(
    "work", [lambda: 1 / 0, lambda: object(), lambda: os._exit(3)], ids=["error", "no json", "exit"]
)
def test_a_work_that_fails_is_answered_as_none_and_the_next_is_done(work: Callable[[], Any], a_worker: Worker) -> None:
    a_worker.do("failed", ADA, work)
    a_worker.do("next", ADA, lambda: "done")
    a_worker.until("failed", "next")
    assert a_worker.found == {"failed": None, "next": "done"}


def open_files() -> set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own, or another thread's
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return found


class Stale:
    """Garbage of the host, which closes numbers of descriptors that are no longer its own."""

    def __init__(self) -> None:
        self._itself, self._host = self, os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self._host:
            os.closerange(3, 4096)


def test_garbage_of_the_host_closes_nothing_in_a_child(a_worker: Worker) -> None:
    def collect() -> str:
        gc.collect()
        return "done"

    gc.disable()
    try:
        Stale()
        a_worker.do("collects", ADA, collect)
    finally:
        gc.collect()
        gc.enable()
    a_worker.until("collects")
    assert a_worker.found["collects"] == "done"


def test_a_child_lives_beside_grpc_which_doubles_in_this_process_use(a_worker: Worker, tmp_path: Path) -> None:
    """Of a channel that was used, gRPC keeps threads; without tests/conftest.py it aborts a forked child."""
    grpc = pytest.importorskip("grpc", reason="grpcio is not installed")
    with grpc.insecure_channel(f"unix:{tmp_path}/nothing-listens") as channel:
        with pytest.raises(grpc.RpcError):
            channel.unary_unary("/a/b")(b"", timeout=30)
        a_worker.do("told", ADA, lambda: "done")
        a_worker.until("told")
    assert a_worker.found["told"] == "done"


def test_the_error_of_a_work_is_told_whatever_stands_for_stderr(
    a_worker: Worker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch, open(os.devnull, "w") as closed:
        patch.setattr(sys, "stderr", closed)
        closed.close()
        a_worker.do("failed", ADA, lambda: 1 / 0)
    a_worker.until("failed")
    assert a_worker.found["failed"] is None
    assert "ZeroDivisionError: division by zero" in capfd.readouterr().err


def test_a_work_that_cannot_be_forked_is_answered_as_none_and_leaks_nothing(
    a_worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipes: list[str] = []
    pipe = os.pipe

    def noted() -> tuple[int, int]:
        ends = pipe()
        pipes.append(os.readlink(f"/proc/self/fd/{ends[0]}"))
        return ends

    def fail() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    a_worker.do("stuck", ADA, signal.pause)
    a_worker.do("waits", ADA, lambda: "done")
    a_worker.do("waits, too", ADA, lambda: "done")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", fail)
        patch.setattr(os, "pipe", noted)
        a_worker.do("at once", BOB, lambda: "done")
        a_worker.work.kill_late(time.monotonic() + 1000)
    assert a_worker.found == dict.fromkeys(("stuck", "waits", "waits, too", "at once"))
    assert len(pipes) == 3
    assert not set(pipes) & open_files(), "their numbers may be another thread's by now"
    a_worker.do("next", ADA, lambda: "done")
    a_worker.until("next")
    assert a_worker.found["next"] == "done"


def fill(folder: Path, uid: int) -> None:
    """Fill a folder as its account can: with folders in each other, and one of another account's."""
    deep = folder / "k"
    for number in range(50):
        deep = deep / f"d{number}"
        deep.mkdir()
        for name in ("a", "b"):
            (deep / name).touch()
        os.chown(deep, uid, uid)
    others = folder / "others"
    others.mkdir()
    (others / "file").touch()
    for path in (others, others / "file"):
        os.chown(path, BOB, BOB)


def test_what_a_killed_relay_left_is_set_aside_and_its_kernel_starts_anew(a_house: OwnersHouse) -> None:
    async def scene() -> None:
        record = await a_house.sleeper()
        fill(record.folder, ADA)
        kernel_id, kernel = record.kernel_id, kernel_pid(record)
        os.kill(record.pid, signal.SIGSTOP)
        await client._ask_host(record.folder, {"op": "remove"})
        assert not record.folder.exists()
        await until(lambda: account_of(kernel) is None and account_of(record.pid) is None)
        again = await a_house.relay(account="ada", kernel_id=kernel_id)
        assert account_of(again.pid) == ADA
        assert os.listdir(again.kernel_folder) == ["connection.json"]
        (left,) = (name for name in os.listdir(a_house.runtime.relays) if name.startswith(".left-"))
        assert os.listdir(a_house.runtime.relays / left) == ["others"], "bob's file is not ada's to remove"
        await client.stop_relay(again)

    asyncio.run(scene())


def test_a_removed_record_hides_no_kernel_from_its_gateways_removal(a_house: OwnersHouse) -> None:
    async def scene() -> None:
        record = await a_house.relay(account="ada")
        argv = (*SLEEP, str(record.kernel_connection_file))
        await client.spawn(record, client.KernelLaunch(argv, {**ENV, KERNEL_ID_VARIABLE: record.kernel_id}))
        record = client.read_relay_record(record.folder)
        os.kill(record.pid, signal.SIGSTOP)
        (record.folder / "relay.json").unlink()
        (record.folder / "relay.json").mkdir()
        kernel = kernel_pid(record)
        await client.remove_relay(record.folder)
        await until(lambda: account_of(kernel) is None and account_of(record.pid) is None)
        assert not record.folder.exists()

    asyncio.run(scene())


def keyring() -> str:
    """Return the number of this process's session keyring; empty where the system forbids to ask."""
    number = ctypes.CDLL(None, use_errno=True).syscall({"x86_64": 250, "aarch64": 219}[platform.machine()], 0, -3, 0)
    return "" if number < 0 else str(number)


def test_a_kernel_has_a_session_keyring_of_its_own(a_house: OwnersHouse) -> None:
    if not (before := keyring()):
        pytest.skip("this system has no keyrings, or forbids them")
    code = f"import ctypes, platform\n{inspect.getsource(keyring)}\nimport sys; open(sys.argv[1], 'w').write(keyring())"
    told = a_house.accounts.homes / "ada" / "keyring"

    async def scene() -> None:
        record = await a_house.relay(account="ada")
        await client.spawn(record, client.KernelLaunch((sys.executable, "-c", code, str(told)), ENV))
        found = await until(lambda: told.exists() and told.read_text())
        assert found not in ("", before)

    asyncio.run(scene())


def environ_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def test_the_host_keeps_nothing_of_the_hubs_environment(a_house: OwnersHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "a-token-of-the-service")

    async def scene() -> None:
        record = await a_house.sleeper()
        for pid in (a_house.host_pid, record.pid, kernel_pid(record)):
            assert b"JUPYTERHUB_" not in environ_of(pid)
        assert b"PATH=" in environ_of(a_house.host_pid)

    asyncio.run(scene())


def write_zeros(path: Path, size: int) -> None:
    path.write_bytes(bytes(size))
    os.chown(path, ADA, ADA)


def test_a_kernel_that_fills_the_machines_memory_ends_and_is_told_why_and_others_run_on() -> None:
    async def scene(house: OwnersHouse) -> None:
        adas, bobs = await house.sleeper("ada"), await house.sleeper("bob")
        write_zeros(adas.folder / "k" / "large", MOST_BYTES + (1 << 20))
        await until(lambda: not adas.has_living_kernel and account_of(adas.pid) is None)
        ended = await until(lambda: read_ended_in(adas.folder))
        assert (ended.pid, ended.signal) == (kernel_pid(adas), signal.SIGKILL)
        assert "in the machine's memory; at most 34 MB and 2000 files are kept" in ended.last_words
        await until(lambda: not (adas.folder / "k").exists())
        assert bobs.has_living_kernel
        await client.remove_relay(adas.folder)
        await client.stop_relay(bobs)

    with an_owners_house(megabytes=48) as house:
        asyncio.run(scene(house))


def test_a_folder_is_left_alone_within_its_bound_and_emptied_beyond_it(a_house: OwnersHouse) -> None:
    async def scene() -> None:
        record = await a_house.sleeper()
        write_zeros(record.folder / "k" / "some", 1 << 20)
        assert as_another(lambda: repr(end_overfull(record.folder)), ADA) == "False"
        assert record.has_living_kernel
        for number in range(MOST_ENTRIES):
            (record.folder / "k" / f"f{number}").touch()
        assert as_another(lambda: repr(end_overfull(record.folder)), ADA) == "True"
        assert not record.has_living_kernel
        assert set(os.listdir(record.folder)) <= {"ended.json", "ended.json.new"}
        ended = read_ended_in(record.folder)
        assert ended is not None
        assert (ended.pid, "2001 files or more" in ended.last_words) == (kernel_pid(record), True)

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("blocks", "left", "files", "unused", "want"),
    [(100, 51, 100, 51, False), (100, 49, 100, 99, True), (100, 99, 100, 49, True), (0, 0, 0, 0, False)],
)
def test_room_is_tight_from_half_of_the_file_system_on(
    blocks: int, left: int, files: int, unused: int, want: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SimpleNamespace(f_blocks=blocks, f_bavail=left, f_files=files, f_favail=unused)
    monkeypatch.setattr(os, "statvfs", lambda place: found)
    assert is_tight(Path("/run")) is want
