"""Own time by turns, for devices where an interval begins only when its work first runs.

The process whose interval has just begun has the device; after that, processes take turns. This is
the second way to read intervals, for devices whose events wait for their context's time slice.
attribution.py finds out which way holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND

SLICE = 2 * MILLISECOND  # NVIDIA's default for compute, and that of the software GPU
HANDOVER = 100_000  # a context switch: from the end of one process's work to the start of another's that waited for it


@dataclass
class Turns:
    """The turns of processes that have work at the same time.

    ``own`` and ``lost`` are indexed by process; ``lost`` is the time that production lost to
    others.
    """

    productions: Sequence[bool]
    wait: float = SLICE / 2  # mean wait of production that begins right where opportunistic work left off
    own: list[float] = field(init=False)
    lost: list[float] = field(init=False)
    # indices of the processes with work; the first has the device
    queue: list[int] = field(default_factory=list)
    since: int = 0  # when the first one's turn began
    time: int = 0
    union: int = 0
    taken: int = 0  # time of opportunistic work; production that has work meanwhile loses it
    _left: int | None = None  # when opportunistic work last had the device

    _taken_at: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._taken_at = [0] * len(self.productions)
        self.own, self.lost = [0.0] * len(self.productions), [0.0] * len(self.productions)

    def advance(self, until: int) -> None:
        queue, time = self.queue, self.time
        while queue and time < until:
            end = until
            if len(queue) > 1 and self.since + SLICE < until:
                end = self.since + SLICE
            holder, ran = queue[0], max(0, end - time)
            self.own[holder] += ran
            self.union += ran
            time += ran
            if not self.productions[holder] and ran:
                self.taken += ran
                self._left = time
            if time < until:  # the first one's turn is over
                queue.append(queue.pop(0))
                self.since = time
        self.time = until

    def begin(self, index: int) -> None:
        """Give the device to this process, whose work begins.

        It waited for some part of the turn that just ended, which no event shows.
        """
        if self.productions[index] and self._left is not None and self.time - self._left <= HANDOVER:
            self.lost[index] += self.wait
            self._left = None
        self._taken_at[index] = self.taken
        self.queue.insert(0, index)
        if len(self.queue) > 2:  # the process that lost the device has had its turn
            self.queue.append(self.queue.pop(1))
        self.since = self.time

    def end(self, index: int) -> None:
        """End the work of this process, which had the device until now.

        If our count of turns says otherwise, the turn had not changed yet.
        """
        holder, ran = self.queue[0], self.time - self.since
        if holder != index and ran < SLICE // 2:
            self.own[holder] -= ran
            self.own[index] += ran
        if self.productions[index]:
            self.lost[index] += self.taken - self._taken_at[index]
        self.queue.remove(index)
        if holder == index or ran < SLICE // 2:
            self.since = self.time
