"""Control groups of kernels that run as their owners: `aliquot.slice/user-<uid>/kernel-<id>`.

Root makes them, in version 1 or 2 of Linux's control groups; every account reads what a group used.
They bound a kernel's memory and processes, and share the CPUs out among kernels that all compute.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from .resources import Bytes

MOUNTED = Path("/sys/fs/cgroup")
# For the status and the doctor, where root could make no group.
WITHOUT_GROUPS = (
    "Kernels have no limits of memory, CPUs and processes on this machine: root's relay host could make no control "
    "group, and its log says why. c.HostLimits.processes = False asks for none."
)
_SLICE = "aliquot.slice"
# Of version 1. Without `pids` and systemd's own, the limits and the end of the Hub's unit are the kernels', too.
_VERSION_1 = ("memory", "cpu", "pids", "systemd")
_CONTROLLERS = ("memory", "cpu", "pids")
_SHARES_OF_A_CPU, _LEAST_SHARES, _MOST_SHARES = 1024, 2, 262_144
_WEIGHT_OF_A_CPU, _LEAST_WEIGHT, _MOST_WEIGHT = 100, 1, 10_000
_UNBOUNDED = Bytes(0)
_NO_LIMIT = 1 << 60  # version 1 writes "no limit" as a number near the largest


@dataclass(frozen=True)
class GroupLimits:
    """The part of the host that a kernel has. 0 bounds nothing. What it may not have in memory is not swapped."""

    memory: Bytes = _UNBOUNDED
    cpus: float = 0.0
    pids: int = 0  # processes and threads, its relay's too

    def __bool__(self) -> bool:
        return self.memory > 0


NO_LIMITS = GroupLimits()


@dataclass(frozen=True)
class MemoryUse:
    """How often processes of a group were ended for want of memory, its peak and its limit."""

    kills: int = 0
    peak: Bytes | None = None
    limit: Bytes | None = None


class ControlGroups:
    """The groups of kernels below the folder in which the system's are mounted."""

    def __init__(self, mounted: Path = MOUNTED) -> None:
        self._mounted = mounted
        self._is_version_2 = (mounted / "cgroup.controllers").exists()

    def prepare(self) -> None:
        """Make the slice, as root. Raises OSError where no group can be written."""
        if self._is_version_2:
            self._enable(self._mounted)
        for tree in self._trees():
            slice_folder = tree / _SLICE
            slice_folder.mkdir(exist_ok=True)
            if self._is_version_2:
                self._enable(slice_folder)

    def are_prepared(self) -> bool:
        """Return whether a host of root made the slice here."""
        return self._memory_tree().joinpath(_SLICE).is_dir()

    def enter(self, uid: int, kernel_id: str, limits: GroupLimits) -> None:
        """Put this process, which is root's, into a kernel's group, and make that. Raises OSError.

        Without limits the group is one that is there already: of a kernel whose relay was killed.
        """
        if not limits and not self._group(self._memory_tree(), uid, kernel_id).is_dir():
            return
        for tree in self._trees():
            group = self._group(tree, uid, kernel_id)
            self._join(group)
            if limits:
                # A limit may be refused, as processes that a user left there hold more. The group's old one stays.
                self._limit(tree, group, limits)

    def _join(self, group: Path) -> None:
        """Make the group, and put this process into it. Raises OSError."""
        try:
            self._make(group)
            (group / "cgroup.procs").write_text(str(os.getpid()))
        except FileNotFoundError:  # another host removed the empty group meanwhile
            self._make(group)
            (group / "cgroup.procs").write_text(str(os.getpid()))

    def limit(self, uid: int, kernel_id: str, limits: GroupLimits) -> None:
        """Change the limits of a kernel's group; nothing where it has none. Raises OSError.

        A limit below what is in use is refused: version 1 does it, and version 2 would end processes.
        """
        for tree in self._trees():
            group = self._group(tree, uid, kernel_id)
            if group.is_dir():
                self._limit(tree, group, limits)

    def remove_others(self, kernel_ids: Collection[str]) -> None:
        """Remove the groups without a process whose kernels are none of these."""
        for tree in self._trees():
            for user in self._listed(tree / _SLICE):
                for group in self._listed(user):
                    if group.name.removeprefix("kernel-") not in kernel_ids:
                        _remove(group)
                _remove(user)  # fails while it has a group

    def memory_use(self, uid: int, kernel_id: str) -> MemoryUse | None:
        """Return what the group's memory was; None where the kernel has no group."""
        group = self._group(self._memory_tree(), uid, kernel_id)
        with contextlib.suppress(OSError, ValueError):
            if self._is_version_2:
                peak = group / ("memory.peak" if (group / "memory.peak").exists() else "memory.current")
                limit = (group / "memory.max").read_text().strip()
                kills = _count(group / "memory.events")
                return MemoryUse(kills, Bytes(peak.read_text()), None if limit == "max" else Bytes(limit))
            most = int((group / "memory.limit_in_bytes").read_text())
            used = Bytes((group / "memory.max_usage_in_bytes").read_text())
            return MemoryUse(_count(group / "memory.oom_control"), used, None if most >= _NO_LIMIT else Bytes(most))
        return None

    def _trees(self) -> list[Path]:
        """Return the hierarchies: one in version 2. Raises OSError where memory is not bounded at all."""
        if self._is_version_2:
            return [self._mounted]
        if not (self._mounted / "memory" / "cgroup.procs").exists():
            raise FileNotFoundError(errno.ENOENT, "the system has no control groups of memory", str(self._mounted))
        return [tree for name in _VERSION_1 if (tree := self._mounted / name).is_dir()]

    def _memory_tree(self) -> Path:
        return self._mounted if self._is_version_2 else self._mounted / "memory"

    @staticmethod
    def _group(tree: Path, uid: int, kernel_id: str) -> Path:
        return tree / _SLICE / f"user-{uid}" / f"kernel-{kernel_id}"

    def _make(self, group: Path) -> None:
        group.parent.mkdir(exist_ok=True)
        if self._is_version_2:
            self._enable(group.parent)
        group.mkdir(exist_ok=True)

    def _limit(self, tree: Path, group: Path, limits: GroupLimits) -> None:
        if self._is_version_2:
            weight = min(_MOST_WEIGHT, max(_LEAST_WEIGHT, round(_WEIGHT_OF_A_CPU * limits.cpus)))
            if int((group / "memory.current").read_text()) > limits.memory:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
            (group / "memory.max").write_text(str(int(limits.memory)))
            with contextlib.suppress(FileNotFoundError):  # a system that does not count swapped memory
                (group / "memory.swap.max").write_text("0")
            (group / "cpu.weight").write_text(str(weight))
            self._limit_pids(group, limits)
        elif tree.name == "memory":
            self._limit_memory(group, str(int(limits.memory)))
        elif tree.name == "pids":
            self._limit_pids(group, limits)
        elif tree.name == "cpu":
            shares = min(_MOST_SHARES, max(_LEAST_SHARES, round(_SHARES_OF_A_CPU * limits.cpus)))
            (group / "cpu.shares").write_text(str(shares))

    @staticmethod
    def _limit_memory(group: Path, memory: str) -> None:
        """Set the limit of version 1, and the same for memory with swap, which is never below it."""
        both = group / "memory.memsw.limit_in_bytes"
        try:
            (group / "memory.limit_in_bytes").write_text(memory)
        except OSError as error:
            if error.errno != errno.EINVAL or not both.exists():
                raise
            both.write_text(memory)  # it grows
            (group / "memory.limit_in_bytes").write_text(memory)
            return
        if both.exists():  # a system that counts swapped memory
            both.write_text(memory)

    @staticmethod
    def _limit_pids(group: Path, limits: GroupLimits) -> None:
        if limits.pids and (group / "pids.max").exists():
            (group / "pids.max").write_text(str(limits.pids))

    @staticmethod
    def _enable(folder: Path) -> None:
        """Let the groups in a folder of version 2 have limits of their own."""
        has = set((folder / "cgroup.subtree_control").read_text().split())
        if lacking := [f"+{name}" for name in _CONTROLLERS if name not in has]:
            (folder / "cgroup.subtree_control").write_text(" ".join(lacking))

    @staticmethod
    def _listed(folder: Path) -> Iterator[Path]:
        with contextlib.suppress(OSError):
            yield from [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]


def _count(events: Path) -> int:
    """Return the number of kills in memory.events, or in memory.oom_control of version 1."""
    for line in events.read_text().splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return int(count)
    return 0


def _remove(group: Path) -> None:
    with contextlib.suppress(OSError):  # it has processes, or groups
        group.rmdir()
