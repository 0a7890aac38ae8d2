"""Control groups of owners' kernels: version 2 in a folder that stands for it, version 1 as this machine has it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_aliquot.provisioner.control_groups import NO_LIMITS, ControlGroups, GroupLimits, MemoryUse
from jupyter_aliquot.provisioner.relay.host.kernel_groups import KernelGroups
from jupyter_aliquot.provisioner.relay.wire.files import RelayRequest
from jupyter_aliquot.provisioner.relay.wire.peer import Refusal
from jupyter_aliquot.provisioner.resources import Bytes

LIMITS = GroupLimits(Bytes(1 << 30), 2.5, 1024)
UID, KERNEL = 3001, "a-kernel"


def version_2(folder: Path) -> ControlGroups:
    """Return the groups of a system with version 2, whose files the folder plays."""
    (folder / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (folder / "cgroup.subtree_control").write_text("memory\n")
    for group in (folder / "aliquot.slice", folder / f"aliquot.slice/user-{UID}", group_of(folder)):
        group.mkdir(parents=True)
        (group / "cgroup.subtree_control").write_text("")
    (group_of(folder) / "memory.current").write_text("1000\n")
    for name in ("memory.swap.max", "pids.max"):
        (group_of(folder) / name).write_text("max\n")
    return ControlGroups(folder)


def group_of(folder: Path) -> Path:
    return folder / f"aliquot.slice/user-{UID}/kernel-{KERNEL}"


def test_a_process_enters_its_kernels_group_with_its_limits(tmp_path: Path) -> None:
    groups = version_2(tmp_path)
    groups.prepare()
    groups.enter(UID, KERNEL, LIMITS)
    names = ("memory.max", "memory.swap.max", "pids.max", "cpu.weight", "cgroup.procs")
    found = {name: (group_of(tmp_path) / name).read_text() for name in names}
    want_limits = {"memory.max": str(1 << 30), "memory.swap.max": "0", "pids.max": "1024", "cpu.weight": "250"}
    assert found == {**want_limits, "cgroup.procs": str(os.getpid())}
    enabled = [(folder / "cgroup.subtree_control").read_text() for folder in (tmp_path, group_of(tmp_path).parent)]
    assert enabled == ["+cpu +pids", "+memory +cpu +pids"]


def test_a_relay_that_follows_a_killed_one_enters_the_group_that_is_there(tmp_path: Path) -> None:
    groups = version_2(tmp_path)
    groups.enter(UID, "another", NO_LIMITS)
    assert not group_of(tmp_path).with_name("kernel-another").exists()
    groups.enter(UID, KERNEL, LIMITS)
    (group_of(tmp_path) / "cgroup.procs").write_text("")
    groups.enter(UID, KERNEL, NO_LIMITS)
    assert (group_of(tmp_path) / "cgroup.procs").read_text() == str(os.getpid())
    assert (group_of(tmp_path) / "memory.max").read_text() == str(1 << 30)


def test_limits_change_with_the_share(tmp_path: Path) -> None:
    groups = version_2(tmp_path)
    groups.enter(UID, KERNEL, LIMITS)
    groups.limit(UID, KERNEL, GroupLimits(Bytes(2 << 30), 0.001))
    assert (group_of(tmp_path) / "memory.max").read_text() == str(2 << 30)
    assert (group_of(tmp_path) / "cpu.weight").read_text() == "1"
    groups.limit(UID, "another", LIMITS)
    assert not group_of(tmp_path).with_name("kernel-another").exists()
    with pytest.raises(OSError, match="busy"):
        groups.limit(UID, KERNEL, GroupLimits(Bytes(999), 1.0))
    assert (group_of(tmp_path) / "memory.max").read_text() == str(2 << 30), "version 2 would end the kernel"


def test_what_a_group_used_is_read_with_the_kills(tmp_path: Path) -> None:
    groups = version_2(tmp_path)
    groups.enter(UID, KERNEL, LIMITS)
    assert groups.memory_use(UID, "another") is None
    (group_of(tmp_path) / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 3\n")
    (group_of(tmp_path) / "memory.peak").write_text("1000\n")
    assert groups.memory_use(UID, KERNEL) == MemoryUse(3, Bytes(1000), Bytes(1 << 30))


def test_a_system_without_groups_starts_kernels_and_says_so_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    groups = KernelGroups(ControlGroups(tmp_path))
    groups.enter(UID, KERNEL, RelayRequest(KERNEL, "key", group_memory=1 << 30, group_cpus=1))
    groups.remove_others(())
    assert not ControlGroups(tmp_path).are_prepared()
    assert capfd.readouterr().err.count("no_control_groups") == 1


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"memory": "1", "cpus": 1},
        {"memory": -1, "cpus": 1},
        {"memory": 1 << 61, "cpus": 1},
        {"memory": 1, "cpus": 0},
        {"memory": 1, "cpus": 1, "pids": -1},
        {"memory": 1, "cpus": 1, "pids": "9"},
    ],
)
def test_a_limit_that_is_none_is_refused(header: dict[str, object], tmp_path: Path) -> None:
    groups = KernelGroups(version_2(tmp_path))
    with pytest.raises(Refusal, match="a limit has memory, a number of bytes, and cpus, a number"):
        groups.change(tmp_path, header)


def test_version_1_bounds_memory_with_swap_and_processes(tmp_path: Path) -> None:
    for tree in ("memory", "pids"):
        (tmp_path / tree / "aliquot.slice" / f"user-{UID}").mkdir(parents=True)
    (tmp_path / "memory" / "cgroup.procs").write_text("")
    groups, where = ControlGroups(tmp_path), f"aliquot.slice/user-{UID}/kernel-{KERNEL}"
    files = {
        tmp_path / "memory" / where / "memory.limit_in_bytes": str(1 << 30),
        tmp_path / "memory" / where / "memory.memsw.limit_in_bytes": str(1 << 30),
        tmp_path / "pids" / where / "pids.max": "1024",
    }
    for path in files:
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    groups.enter(UID, KERNEL, LIMITS)
    assert {path: path.read_text() for path in files} == files
