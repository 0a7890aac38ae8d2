"""Own time where an interval begins when work first runs: who has just begun has the device, and then turns are taken.

The other reading of intervals, for devices whose events wait for their context's slice; attribution.py says which
holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND

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
    taken: int = 0  # by opportunistic work; what production loses while it has work, too
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
            if time < until:  # its turn is over
                queue.append(queue.pop(0))
                self.since = time
        self.time = until

    def begin(self, index: int) -> None:
        """It has the device now; so it waited, for some part of the turn that just ended, which no event shows."""
        if self.productions[index] and self._left is not None and self.time - self._left <= HANDOVER:
            self.lost[index] += self.wait
            self._left = None
        self._taken_at[index] = self.taken
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
        if self.productions[index]:
            self.lost[index] += self.taken - self._taken_at[index]
        self.queue.remove(index)
        if holder == index or ran < SLICE // 2:
            self.since = self.time
