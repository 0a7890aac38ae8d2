"""Solo windows: moments without opportunistic work, for the baselines of production's launches.

In a window, production's hooks measure how long launches take alone. This module decides when a
window begins and ends: as often as baselines are missing or old, and never for more of the
opportunistic kernels' time than the policy's part.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .policy import Policy


class Stage(Enum):
    NONE = "none"
    DRAINING = "draining"  # opportunistic gates are closed, and work in flight ends
    OPEN = "open"


@dataclass(frozen=True)
class SoloNeed:
    """The reasons for and against a solo window now.

    ``missing`` counts functions of production without a baseline; ``samples`` counts its measured
    launches so far. ``is_alone``: one production kernel is at work; with more, a launch would be
    measured beside the others. ``is_quiet``: no opportunistic work is in flight. ``harvest`` is the
    part of the device that the opportunistic kernels get.
    """

    missing: int
    samples: int
    is_alone: bool
    is_quiet: bool
    harvest: float


@dataclass
class SoloWindows:
    """The solo windows of one device.

    ``word`` goes to the pages of production; it is odd during a window. ``closes``: opportunistic
    work waits.
    """

    policy: Policy
    word: int = 0
    stage: Stage = Stage.NONE
    _since: int = 0
    _samples: int = 0
    _missing: int = 0
    _next: int = 0
    _refreshed: int | None = None
    _fruitless: int = 0

    @property
    def closes(self) -> bool:
        return self.stage is not Stage.NONE

    def step(self, now: int, need: SoloNeed) -> None:
        if now < self._since:  # the clock was set back
            self._end(now, 0.0)
            self._next = now
        if self._refreshed is None:
            self._refreshed = now
        if self.stage is Stage.NONE and need.is_alone and now >= self._next and self._is_wanted(now, need):
            self.stage, self._since = Stage.DRAINING, now
        if self.stage is Stage.DRAINING:
            self._drain(now, need)
        elif self.stage is Stage.OPEN:
            self._go_on(now, need)

    def _is_wanted(self, now: int, need: SoloNeed) -> bool:
        return need.missing > 0 or now - (self._refreshed or 0) > self.policy.baseline_age

    def _drain(self, now: int, need: SoloNeed) -> None:
        if need.is_quiet:
            self.stage, self.word = Stage.OPEN, self.word + 1
            self._samples, self._missing = need.samples, need.missing
        elif now - self._since > self.policy.solo_drain or not need.is_alone:
            self._end(now, need.harvest)

    def _go_on(self, now: int, need: SoloNeed) -> None:
        sampled, length = need.samples > self._samples, now - self._since
        is_done = sampled and need.missing == 0 and length >= self.policy.period
        if not need.is_alone or not need.is_quiet or is_done or length >= self._longest(sampled):
            if sampled:
                self._refreshed = now
            fruitful = need.missing < self._missing or (sampled and not need.missing)
            self._fruitless = 0 if fruitful else min(self._fruitless + 1, 6)
            self._end(now, need.harvest)

    def _longest(self, sampled: bool) -> int:
        return self.policy.solo_length if sampled else self.policy.solo_longest

    def _end(self, now: int, harvest: float) -> None:
        """End the window, and schedule the next one for when this one is paid for.

        A window without new samples doubles the wait.
        """
        length = max(0, now - self._since)
        self._next = now + int(length * max(harvest, 0.05) / self.policy.solo_cost) * 2**self._fruitless
        self._since, self.stage = now, Stage.NONE
        self.word += self.word % 2
