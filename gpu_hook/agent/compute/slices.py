"""Own time where an interval begins when work first runs: who has just begun has the device, and then turns are taken.

The other reading of intervals, for devices whose events wait for their context's slice; attribution.py says which
holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aliquot.gpu_hook.agent.compute.views import MILLISECOND

SLICE = 2 * MILLISECOND  # NVIDIA's default for compute, and the software GPU's
HANDOVER = 100_000  # between the end of one's work and the start of another's that waited for it: a switch of contexts


@dataclass
class Turns:
    """Whose turn it is while several have work. ``own`` and ``lost``: by index; lost: of production, to others."""

    productions: Sequence[bool]
    wait: float = SLICE / 2  # of production that begins right where opportunistic work left off, on average
    own: list[float] = field(init=False)
    lost: list[float] = field(init=False)
    queue: list[int] = field(default_factory=list)  # of those with work; the first has the device
    since: int = 0  # when its turn began
    time: int = 0
    union: int = 0
    _left: int | None = None  # when opportunistic work last had the device

    def __post_init__(self) -> None:
        self.own, self.lost = [0.0] * len(self.productions), [0.0] * len(self.productions)

    def advance(self, until: int) -> None:
        while self.queue and self.time < until:
            turn_ends = self.since + SLICE if len(self.queue) > 1 else until
            if turn_ends <= self.time:
                self.queue.append(self.queue.pop(0))
                self.since = self.time
                continue
            end = min(until, turn_ends)
            self._run(self.queue[0], end - self.time)
            self.time = end
        self.time = until

    def _run(self, holder: int, time: int) -> None:
        self.own[holder] += time
        self.union += time
        if not self.productions[holder]:
            self._left = self.time + time
            for index in self.queue[1:]:
                if self.productions[index]:
                    self.lost[index] += time

    def begin(self, index: int) -> None:
        """It has the device now; so it waited, for some part of the turn that just ended, which no event shows."""
        if self.productions[index] and self._left is not None and self.time - self._left <= HANDOVER:
            self.lost[index] += self.wait
            self._left = None
        self.queue.insert(0, index)
        if len(self.queue) > 2:  # whom it took the device from had its turn
            self.queue.append(self.queue.pop(1))
        self.since = self.time

    def end(self, index: int) -> None:
        """It had the device right before; where our count of turns says otherwise, the turn had not changed yet."""
        holder, ran = self.queue[0], self.time - self.since
        if holder != index and ran < SLICE // 2:
            self.own[holder] -= ran
            self.own[index] += ran
        self.queue.remove(index)
        if holder == index or ran < SLICE // 2:
            self.since = self.time
