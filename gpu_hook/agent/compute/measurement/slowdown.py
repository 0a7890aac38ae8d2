"""The slowdown of production's sampled launches by opportunistic work.

It is used on devices where contexts run side by side, and for time that no interval shows. Launches
differ, and baselines are single measurements, so the reference is the ratio while no opportunistic
work runs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import SECOND

BESIDE_SPAN = 2 * SECOND
QUIET_SPAN = 30 * SECOND
FEW = 8  # samples, with opportunistic work and without
TOLERANCE = 0.01  # of a launch's time: the effect of chance on a few samples


@dataclass
class _Samples:
    span: int
    kept: deque[tuple[int, int, int, int]] = field(default_factory=deque)

    def add(self, now: int, took: int, alone: int, count: int) -> None:
        if self.kept and now < self.kept[-1][0]:
            self.kept.clear()
        self.kept.append((now, took, alone, count))
        while self.kept[0][0] < now - self.span:
            self.kept.popleft()

    def ratio(self) -> float | None:
        alone = sum(one[2] for one in self.kept)
        if alone <= 0 or sum(one[3] for one in self.kept) < FEW:
            return None
        return sum(one[1] for one in self.kept) / alone


@dataclass
class SlowdownWatch:
    _beside: _Samples = field(default_factory=lambda: _Samples(BESIDE_SPAN))
    _quiet: _Samples = field(default_factory=lambda: _Samples(QUIET_SPAN))

    def add(self, now: int, took: int, alone: int, count: int, is_beside: bool) -> None:
        if took > 0 and alone > 0 and count > 0:
            (self._beside if is_beside else self._quiet).add(now, took, alone, count)

    def excess(self) -> float | None:
        """Return the slowdown as a part of a launch's time; None: unknown."""
        beside, quiet = self._beside.ratio(), self._quiet.ratio()
        if beside is None:
            return None
        return max(0.0, beside / max(1.0, quiet or 1.0) - 1.0 - TOLERANCE)
