"""The host's memory: how much there is, how much is free, and how much one kernel may page-lock.

A limit of page-locked memory is no reservation: memory that is not locked is free for all, and
floors may exceed the machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.gpu_hook.placement.placement import WHOLE

_CGROUPS = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


@dataclass(frozen=True)
class HostMemoryRule:
    """The rule for page-locked memory.

    ``fraction`` of the machine's memory is split by GPU share; 0: no limit. ``floor`` is the least
    quota.
    """

    fraction: float = 0.5
    floor_bytes: int = 1 << 30

    def quota(self, machine_bytes: int, hundredths: int, device_count: int) -> int | None:
        """The quota of a kernel with ``hundredths`` of the node's devices; None: no limit."""
        if self.fraction <= 0:
            return None
        shared_bytes = int(machine_bytes * self.fraction)
        own = shared_bytes * hundredths // (WHOLE * max(1, device_count))
        return max(1, min(shared_bytes, max(own, self.floor_bytes)))  # 0 would tell a hook to request nothing


@dataclass(frozen=True)
class _Group:
    """A memory cgroup above this process, with the files of its version."""

    folder: Path
    limit: str
    usage: str


_V2 = ("memory.max", "memory.current")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")


def machine_memory_bytes(cgroups: Path = _CGROUPS, proc: Path = _PROC) -> int:
    """Return the memory of the machine, or the part of it that the agent's cgroups may use."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = (_read(group.folder / group.limit) for group in _groups(cgroups, proc))
    return min([machine, *(limit for limit in limits if limit is not None)])


def available_memory_bytes(cgroups: Path = _CGROUPS, proc: Path = _PROC) -> int | None:
    """Return the memory that the agent could still take before a process is killed for it.

    It is the least of what the kernel reckons to be available and of what each cgroup has left,
    with the files that it could drop. None: the machine does not tell.
    """
    found = [_meminfo(proc)]
    for group in _groups(cgroups, proc):
        limit, usage = _read(group.folder / group.limit), _read(group.folder / group.usage)
        if limit is not None and usage is not None:
            found.append(max(0, limit - max(0, usage - _droppable(group.folder))))
    known = [amount for amount in found if amount is not None]
    return min(known, default=None)


def _groups(cgroups: Path, proc: Path) -> Iterator[_Group]:
    """Find the memory cgroups of this process, its own first, and those above it.

    In a container with a hierarchy of its own, the path that the kernel tells may not exist: the
    folders above it that do are read.
    """
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    own = {"": "/", "memory": "/"}
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        for controller in controllers.split(","):
            if controller in own:
                own[controller] = path
    for root, path, files in ((cgroups, own[""], _V2), (cgroups / "memory", own["memory"], _V1)):
        steps = [part for part in path.split("/") if part not in ("", ".", "..")]
        for length in range(len(steps), -1, -1):
            yield _Group(root.joinpath(*steps[:length]), *files)


def _read(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None


def _droppable(folder: Path) -> int:
    """Return the bytes of files that the kernel drops before it kills."""
    return _field(folder / "memory.stat", "inactive_file") or 0


def _meminfo(proc: Path) -> int | None:
    kib = _field(proc / "meminfo", "MemAvailable:")
    return None if kib is None else kib << 10


def _field(path: Path, name: str) -> int | None:
    """Return the number after this name in a file of names and numbers."""
    try:
        for line in path.read_text().splitlines():
            words = line.split()
            if len(words) > 1 and words[0] == name:
                return int(words[1])
    except (OSError, ValueError):
        pass
    return None
