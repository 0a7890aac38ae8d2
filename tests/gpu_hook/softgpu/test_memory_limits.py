"""Memory limits of cgroups, as drivers have them since release 615.

Folders of the test stand for the cgroups.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from textwrap import dedent

import pytest

_LIMITS = """
import pynvml as n
n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)
NONE = 2**64 - 1
lib = ctypes.CDLL("libnvidia-ml.so.1")
class Set(ctypes.Structure): _fields_ = [("path", ctypes.c_char_p), ("soft", u64), ("hard", u64)]
class Get(ctypes.Structure): _fields_ = [*Set._fields_, ("used", u64)]
def set_limit(path, soft, hard, device=h):
    return lib.nvmlDeviceSetMemoryLimits_v1(device, ctypes.byref(Set(path and os.fsencode(path), soft, hard)))
def get_limit(path, device=h):
    found = Get(path and os.fsencode(path))
    return [lib.nvmlDeviceGetMemoryLimits_v1(device, ctypes.byref(found)), found.soft, found.hard, found.used]
"""
NONE = 2**64 - 1
MIB = 1 << 20
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root sets memory limits")


@pytest.fixture
def cgroups(tmp_path: Path) -> Path:
    """Make two kernels below one parent."""
    for name in ("parent/one", "parent/two"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path / "parent"


@needs_root
def test_hard_limit_is_out_of_memory_at_every_family_and_the_total_that_is_shown(a_machine, cgroups):
    leaf = str(cgroups / "one")
    assert a_machine.run(_LIMITS + f"say(set_limit({leaf!r}, 0, 8 * MIB))") == "0"
    said = a_machine.run(
        _LIMITS
        + dedent(f"""
        start()
        def info():
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
            memory = n.nvmlDeviceGetMemoryInfo(h)
            say(free.value // MIB, total.value // MIB, memory.free // MIB, memory.used // MIB, memory.total // MIB)
        info(); error, p = alloc(6 * MIB); say(error, alloc(4 * MIB)[0], alloc(2 * MIB)[0], alloc(512)[0]); info()
        made, pitch, size = ctypes.byref(u64()), ctypes.byref(u64()), ctypes.c_size_t
        pinned_memory, array = (ctypes.c_int32 * 16)(1, 0, 1, 0), (u64 * 3)(512, 512, 0x20 | 1 << 32)
        say(cuda.cuMemAllocAsync(made, size(512), None), cuda.cuMemAllocPitch_v2(made, pitch, size(99), size(9), 4),
            cuda.cuMemCreate(made, size(2 * MIB), pinned_memory, u64(0)), cuda.cuArrayCreate_v2(made, array))
        check(cuda.cuMemFree_v2(u64(p))); info(); say(get_limit({leaf!r}))
        """),
        ALIQUOT_SOFTGPU_CGROUP=leaf,
    )
    want_out_of_memory = 2
    assert said.split("\n") == [
        "8 8 8 0 8",
        f"0 {want_out_of_memory} 0 {want_out_of_memory}",
        "0 8 0 8 8",
        " ".join([str(want_out_of_memory)] * 4),
        "6 8 6 2 8",
        str([0, 0, 8 * MIB, 2 * MIB]),
    ]


@needs_root
def test_limit_above_holds_for_all_below_together_and_is_not_shown(a_machine, cgroups):
    assert a_machine.run(_LIMITS + f"say(set_limit({str(cgroups)!r}, 0, 8 * MIB))") == "0"
    code = "start(); say(alloc(6 * MIB)[0], free_bytes() // MIB); wait_for_go(); say(alloc(6 * MIB)[0])"
    first = a_machine.popen(code, ALIQUOT_SOFTGPU_CGROUP=str(cgroups / "one"))
    assert first.stdout.readline() == "0 58\n"
    second = a_machine.popen(code, ALIQUOT_SOFTGPU_CGROUP=str(cgroups / "two"))
    want_refused, want_seen_free = 2, 58
    assert second.stdout.readline() == f"{want_refused} {want_seen_free}\n"
    outside = a_machine.run("start(); say(alloc(6 * MIB)[0])")
    assert outside == "0"
    first.kill()
    first.communicate()
    want_room_after_the_kill = "0\n"
    assert second.communicate("go\n", timeout=20)[0] == want_room_after_the_kill


@needs_root
def test_limits_are_raised_and_cleared_under_a_running_process(a_machine, cgroups):
    leaf = str(cgroups / "one")
    assert a_machine.run(_LIMITS + f"say(set_limit({leaf!r}, MIB, 2 * MIB), get_limit({leaf!r}))") == (
        f"0 {[0, MIB, 2 * MIB, 0]}"
    )
    user = a_machine.popen(
        "start()\nwhile wait_for_go(): say(alloc(4 * MIB)[0], free_bytes() // MIB)", ALIQUOT_SOFTGPU_CGROUP=leaf
    )

    def ask() -> str:
        user.stdin.write("go\n")
        user.stdin.flush()
        return user.stdout.readline().strip()

    assert ask() == "2 2"
    a_machine.run(_LIMITS + f"check(set_limit({leaf!r}, 0, 10 * MIB))")
    assert ask() == "0 6"
    a_machine.run(_LIMITS + f"check(set_limit({leaf!r}, 0, 2 * MIB))")
    assert ask() == "2 0"
    assert a_machine.run(_LIMITS + f"check(set_limit({leaf!r}, 0, NONE)); say(get_limit({leaf!r}))") == (
        f"{[0, 0, NONE, 4 * MIB]}"
    )
    assert ask() == "0 56"
    user.communicate("", timeout=20)


@needs_root
def test_wrong_questions_are_refused(a_machine, cgroups):
    one, absent = str(cgroups / "one"), str(cgroups / "none")
    said = a_machine.run(
        _LIMITS
        + dedent(f"""
        say(set_limit(None, 0, MIB), set_limit({one!r}, 2, 1), set_limit({one!r}, 0, 65 * MIB),
            set_limit({one!r}, 65 * MIB, NONE), lib.nvmlDeviceSetMemoryLimits_v1(h, None), set_limit({absent!r}, 0, 1),
            set_limit({one!r}, 0, 1, vp(0x1234)))
        say(get_limit(None)[0], get_limit({absent!r})[0], lib.nvmlDeviceGetMemoryLimits_v1(h, None), get_limit({one!r}))
        n.nvmlShutdown(); say(set_limit({one!r}, 0, MIB), get_limit({one!r})[0])
        """)
    )
    want_invalid, want_no_folder, want_uninitialised = 2, 17, 1
    assert said.split("\n") == [
        " ".join(map(str, [want_invalid] * 5 + [want_no_folder, want_invalid])),
        f"{want_invalid} {want_no_folder} {want_invalid} {[0, 0, NONE, 0]}",
        f"{want_uninitialised} {want_uninitialised}",
    ]


@needs_root
def test_reading_is_free_and_setting_is_roots(a_machine):
    folder = a_machine.state.parent
    folder.chmod(0o755)
    said = a_machine.run(
        _LIMITS + f"os.setuid(65534); say(set_limit({str(folder)!r}, 0, MIB), get_limit({str(folder)!r}))"
    )
    want_no_permission = 4
    assert said == f"{want_no_permission} {[0, 0, NONE, 0]}"


@needs_root
def test_full_table_says_so_and_forgets_removed_cgroups(a_machine, tmp_path):
    folders = [tmp_path / str(i) for i in range(66)]
    for folder in folders:
        folder.mkdir()
    paths = [str(folder) for folder in folders]
    said = a_machine.run(_LIMITS + f"say([set_limit(p, 0, MIB) for p in {paths[:65]!r}].index(23))")
    want_entries = 64
    assert said == str(want_entries)
    shutil.rmtree(folders[3])
    said = a_machine.run(_LIMITS + f"say([set_limit(p, 0, MIB) for p in {paths[64:]!r}], get_limit({paths[64]!r})[2])")
    assert said == f"[0, 23] {MIB}"


def test_cgroup_that_is_no_folder_is_a_setting_that_cannot_be_read(a_machine):
    client = a_machine.popen("say(cuda.cuInit(0))", ALIQUOT_SOFTGPU_CGROUP="/no/such/folder")
    output, errors = client.communicate(timeout=20)
    want_not_ready = "802\n"
    assert output == want_not_ready
    assert "ALIQUOT_SOFTGPU_CGROUP=/no/such/folder" in errors


def _own_cgroup() -> Path | None:
    """Return the cgroup as the software GPU finds it: version 2, or the memory controller's."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    root = Path("/sys/fs/cgroup")
    for controller, mount in (("", root), ("memory", root / "memory"), ("", root / "unified")):
        if controller == "" and mount == root and not (root / "cgroup.controllers").exists():
            continue
        for _, names, path in lines:
            if controller in names.split(",") and (mount / path.lstrip("/")).is_dir():
                return mount / path.lstrip("/")
    return None


@needs_root
def test_processes_real_cgroup_counts(a_machine, tmp_path):
    own = _own_cgroup()
    if own is None:
        pytest.skip("no cgroup hierarchy is mounted under /sys/fs/cgroup")
    said = a_machine.run(_LIMITS + f"start(); check(alloc(4 * MIB)[0]); say(get_limit({str(own)!r}))")
    assert json.loads(said) == [0, 0, NONE, 4 * MIB]
