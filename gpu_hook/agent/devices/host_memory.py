"""Page-locked host memory: how much the machine has, and how much of it one kernel may lock.

It is a limit, not a reservation: memory that is not locked is free for all, and floors may exceed
the machine.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.gpu_hook.placement.placement import WHOLE

_CGROUPS = Path("/sys/fs/cgroup")


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


def machine_memory_bytes(cgroups: Path = _CGROUPS) -> int:
    """Return the memory of the machine, or the part of it that the agent's container may use."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # cgroup v2, v1
        try:
            limit = int((cgroups / name).read_text())
        except (OSError, ValueError):  # not there, or "max"
            continue
        machine = min(machine, limit)
    return machine
