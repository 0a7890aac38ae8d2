"""CPU and RAM of kernels, from /proc: each kernel's process and all that descend from it.

It is read when an administrator looks, in a thread, and at most once in two seconds: a walk over
the processes of a thousand kernels takes tens of milliseconds. It knows kernels by their ids alone.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.reports.holders import HostUse
from jupyter_aliquot.provisioner.relay.wire.proc import stat_fields

_LEAST_SECONDS = 2.0
_PROC = Path("/proc")
# Fields of /proc/PID/stat, counted from the third one.
_PARENT, _FIRST_TIME, _LAST_TIME, _RSS = 1, 11, 14, 21


@dataclass(frozen=True)
class ProcessFigures:
    """One process: its parent, its CPU time with that of children that ended, and its memory."""

    parent: int
    cpu_seconds: float
    memory_bytes: int


Table = Mapping[int, ProcessFigures]


def read_table(proc: Path = _PROC) -> Table:
    """Return all processes of this machine that /proc shows."""
    ticks, page, found = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE"), {}
    for name in os.listdir(proc):
        fields = stat_fields(int(name)) if name.isdigit() else []
        if fields:
            spent = sum(map(int, fields[_FIRST_TIME : _LAST_TIME + 1]))
            found[int(name)] = ProcessFigures(int(fields[_PARENT]), spent / ticks, int(fields[_RSS]) * page)
    return found


def sums(table: Table, roots: Mapping[str, int]) -> dict[str, tuple[float, int]]:
    """Return the CPU seconds and the memory of each root with its descendants, by the roots' keys."""
    children: dict[int, list[int]] = {}
    for pid, figures in table.items():
        children.setdefault(figures.parent, []).append(pid)
    return {key: _sum(table, children, root) for key, root in roots.items() if root in table}


def _sum(table: Table, children: Mapping[int, list[int]], root: int) -> tuple[float, int]:
    seconds, memory, left, seen = 0.0, 0, [root], {root}
    while left:
        pid = left.pop()
        seconds, memory = seconds + table[pid].cpu_seconds, memory + table[pid].memory_bytes
        fresh = [child for child in children.get(pid, ()) if child not in seen]
        seen.update(fresh)
        left += fresh
    return seconds, memory


class KernelProcesses:
    """The last figures of all kernels. ``roots`` returns the pid of each kernel's first process."""

    def __init__(
        self, roots: Callable[[], Iterable[tuple[str, int]]], clock: Clock, table: Callable[[], Table] = read_table
    ) -> None:
        self._roots = roots
        self._clock = clock
        self._table = table
        self._looked_at: float | None = None
        self._last: dict[str, tuple[int, HostUse]] = {}
        self._lock = asyncio.Lock()

    async def figures(self) -> Mapping[str, HostUse]:
        """Return CPU and RAM by kernel id, at most two seconds old."""
        async with self._lock:
            now = self._clock.now()
            if self._looked_at is None or now - self._looked_at >= _LEAST_SECONDS:
                await self._look()
        return {one: use for one, (_, use) in self._last.items()}

    async def _look(self) -> None:
        roots = dict(self._roots())
        told = sums(await asyncio.to_thread(self._table), roots)
        now, before = self._clock.now(), self._looked_at
        passed = None if before is None else now - before
        last, self._looked_at = self._last, now
        self._last = {}
        for kernel_id, (seconds, memory) in told.items():
            pid, was = last.get(kernel_id, (0, None))
            cpus = None
            if passed and was is not None and pid == roots[kernel_id]:
                cpus = max(0.0, seconds - was["cpu_seconds"]) / passed
            use: HostUse = {"cpus": cpus, "cpu_seconds": seconds, "memory_bytes": memory}
            self._last[kernel_id] = (roots[kernel_id], use)
