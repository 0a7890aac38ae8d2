"""Host copies of processes that left the agent, and segments that outlive their use.

A process that leaves while it may hold a copy may live and come back. Its segments count against
its kernel until the process ends, or has its bytes on its devices again; then the agent empties
them. If a process has a segment open even then, the bytes in it count until no process has it open:
the process may fill it again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.agent.base.descriptors import OF_A_WATCH, Descriptors
from jupyter_aliquot.gpu_hook.agent.base.processes import Process, WatchedProcesses

from .segments import Segment, held_bytes

_LOOK_SECONDS = 1.0  # between two samples of segments that outlive their use


@dataclass(frozen=True)
class _Kept:
    kernel_id: str
    holder: Process
    segment: Segment


@dataclass
class _Outliving:
    kernel_id: str
    segment: Segment
    bytes: int = 0  # bytes in it, as of the last sample


class KeptCopies:
    """The kept copies of this node.

    ``empty`` frees the memory behind a kernel's segment; ``close`` closes a segment that no other
    process has open.
    """

    def __init__(
        self,
        empty: Callable[[str, Segment], object],
        close: Callable[[str, Segment], object],
        descriptors: Descriptors,
    ) -> None:
        self._empty = empty
        self._close = close
        self._descriptors = descriptors
        self._kept: list[_Kept] = []
        self._outliving: list[_Outliving] = []
        # pid -> kernel whose descriptors its watch counts against
        self._holders: dict[int, tuple[str, WatchedProcesses]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def memory_bytes(self) -> int:
        """Return the memory in all kept copies."""
        return self._sum(is_spilled=False)

    @property
    def spilled_bytes(self) -> int:
        """Return the bytes in spill files."""
        return self._sum(is_spilled=True)

    def bytes_by_kernel(self) -> Mapping[str, int]:
        """Return the memory in the kept copies of each kernel that has some."""
        total: Counter[str] = Counter()
        for kernel_id, segment, amount in self._amounts():
            total[kernel_id] += 0 if segment.is_spilled else amount
        return total

    def reach_bytes(self, kernel_id: str) -> int:
        """Return the bytes that processes of one kernel could fill.

        These are all segments that they may still have open.
        """
        items: tuple[_Kept | _Outliving, ...] = (*self._kept, *self._outliving)
        return sum(item.segment.bytes for item in items if item.kernel_id == kernel_id)

    def held_by(self, holder: Process) -> int:
        """Return the bytes that one process took with it, in memory and files."""
        return sum(item.segment.bytes for item in self._kept if item.holder == holder)

    def keep(self, kernel_id: str, holder: Process, segments: Iterable[Segment]) -> None:
        """Count the segments of a process that left.

        A process that ended in the meantime keeps none.
        """
        self._kept += [_Kept(kernel_id, holder, segment) for segment in segments]
        if not self.held_by(holder):
            return
        if holder.pid not in self._holders:
            self._holders[holder.pid] = kernel_id, WatchedProcesses(lambda _: self.give_back(holder))
            self._descriptors.add(kernel_id, OF_A_WATCH)
        if not self._holders[holder.pid][1].add(holder):
            self.give_back(holder)

    def give_back(self, holder: Process) -> None:
        """Empty the segments that the process took with it.

        It ended, or has its bytes on its devices again.
        """
        gone = [item for item in self._kept if item.holder == holder]
        self._kept = [item for item in self._kept if item.holder != holder]
        if holder.pid in self._holders:
            kernel_id, watched = self._holders.pop(holder.pid)
            watched.clear()
            self._descriptors.give_back(kernel_id, OF_A_WATCH)
        for item in gone:
            self._empty(item.kernel_id, item.segment)

    def outlive(self, kernel_id: str, segment: Segment) -> None:
        """Watch an empty segment that another process has open.

        Its bytes count until no process has it open.
        """
        self._outliving.append(_Outliving(kernel_id, segment))
        self._look_later()

    def close(self) -> None:
        """Close with the agent: copies stay with the processes that hold them."""
        if self._timer is not None:
            self._timer.cancel()
        for _, watched in self._holders.values():
            watched.clear()
        segments = [(item.kernel_id, item.segment) for item in self._kept]
        segments += [(item.kernel_id, item.segment) for item in self._outliving]
        self._kept, self._outliving = [], []
        for kernel_id, segment in segments:
            self._close(kernel_id, segment)

    def _sum(self, is_spilled: bool) -> int:
        return sum(amount for _, segment, amount in self._amounts() if segment.is_spilled is is_spilled)

    def _amounts(self) -> Iterator[tuple[str, Segment, int]]:
        """Yield the segments with their kernels, and the bytes that count of each."""
        for kept in self._kept:
            yield kept.kernel_id, kept.segment, kept.segment.bytes
        for item in self._outliving:
            yield item.kernel_id, item.segment, item.bytes

    def _look_later(self) -> None:
        if self._timer is None and self._outliving:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        still = []
        for item in self._outliving:
            held = held_bytes(item.segment)
            if held is None:
                self._close(item.kernel_id, item.segment)
            else:
                item.bytes = held
                still.append(item)
        self._outliving = still
        self._look_later()
