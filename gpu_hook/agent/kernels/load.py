"""How much of a device a kernel uses while it works there, for the choice of its neighbors. Pure.

A notebook is idle most of the time, so only looks that saw work count. Beside others a kernel gets
less than it would take alone: looks that saw it alone come first, as soon as there are enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field

HALF_LIFE_SECONDS = 60.0  # of time with work, after which a look counts half
ENOUGH_SECONDS = 3.0


@dataclass(frozen=True)
class Load:
    """The parts of a device's time, 0 to 1, in which a kernel's work runs and in which it moves memory.

    ``seconds`` is the time with work that was looked at; ``is_alone`` tells whether no other kernel worked then.
    """

    gpu: float
    memory: float
    seconds: float
    is_alone: bool


@dataclass
class _Sums:
    """Seconds, of which older ones count less. ``seen`` has them all."""

    busy: float = 0.0
    memory: float = 0.0
    covered: float = 0.0
    seen: float = 0.0

    def add(self, busy: float, memory: float, covered: float) -> None:
        kept = 0.5 ** (covered / HALF_LIFE_SECONDS)
        self.busy = kept * self.busy + min(busy, covered)
        self.memory = kept * self.memory + min(memory, covered)
        self.covered = kept * self.covered + covered
        self.seen += covered

    def load(self, *, is_alone: bool) -> Load:
        """Return the means, rounded to what a reader can use: an unchanged kernel is not reported again."""
        busy, memory = self.busy / self.covered, self.memory / self.covered
        return Load(round(busy, 2), round(memory, 2), round(self.seen), is_alone)


@dataclass
class LoadMeter:
    """The load of one kernel on one device."""

    _alone: _Sums = field(default_factory=_Sums)
    _beside: _Sums = field(default_factory=_Sums)

    def add(self, busy: float, memory: float, covered: float, *, is_alone: bool) -> None:
        """Take the GPU time of one look, the time in which it moved memory, and the time that the look covers."""
        if busy > 0 and covered > 0:
            (self._alone if is_alone else self._beside).add(busy, memory, covered)

    @property
    def load(self) -> Load | None:
        """The load; None while no look has seen work."""
        if self._alone.seen >= ENOUGH_SECONDS or (self._alone.seen and not self._beside.seen):
            return self._alone.load(is_alone=True)
        return self._beside.load(is_alone=False) if self._beside.seen else None
