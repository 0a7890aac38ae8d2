"""Protect production: the permitted delay, and what each opportunistic process may do within it.

This module owns the AIMD of that delay, and the verdict that the target cannot be kept.
attribution.py measures the loss; forecast.py says when work may begin in a pause.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from jupyter_aliquot.gpu_hook.agent.compute.measurement.forecast import PauseHistory, Risk
from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import SECOND

from .policy import Policy


@dataclass(frozen=True)
class Seen:
    """The measurements of one step, in nanoseconds.

    ``elapsed`` is the settled time; ``working`` is its part without pauses that are idleness.
    ``lost`` is the loss of the production kernel that lost most; ``slowdown_loss`` is the same by
    its sampled launches, None where these tell nothing. ``opportunistic`` is the own time of the
    opportunistic kernels. ``is_held``: some of these would like more.
    """

    now: int
    elapsed: int
    working: int
    lost: float
    slowdown_loss: float | None
    opportunistic: float
    is_held: bool


@dataclass
class Protection:
    """The control of production's delay on one device.

    ``rate`` is the delay that is permitted now, per time of production at work. ``slowdown`` is
    measured and averaged.
    """

    policy: Policy
    rate: float = 0.0
    beside: float = 0.0
    slowdown: float = 0.0
    tokens: float = 0.0  # delay that opportunistic work may still cause beside production at work
    _cut_at: int = 0
    _over_since: int | None = None

    def __post_init__(self) -> None:
        self.rate = self.policy.slowdown_target / 2
        self.beside = self.policy.floor

    def step(self, seen: Seen, step: int, time_slices: bool) -> None:
        """Take the measurements of one look.

        ``step`` is the length of production's step, in nanoseconds.
        """
        policy = self.policy
        if seen.working <= 0:
            self._over_since = None
            return  # idle: keep the safe rate for the moment when production returns
        lost = max(seen.lost, seen.slowdown_loss or 0.0)
        self.slowdown += (lost / seen.working - self.slowdown) * min(1.0, seen.working / policy.slowdown_span)
        limit = policy.slowdown_target / 2 if time_slices else 1.0
        if self.slowdown > policy.slowdown_target:
            if seen.now - self._cut_at >= policy.cut_pause or seen.now < self._cut_at:
                cut = policy.cut if self.slowdown > policy.far_over * policy.slowdown_target else policy.trim
                self.rate = max(policy.least_rate, self.rate * cut)
                self.beside = max(policy.floor, self.beside * cut)
                self._cut_at = seen.now
        elif seen.is_held:  # without demand, a higher rate would not show its effect
            up = policy.rise * seen.working / policy.period
            most = policy.most_rate * policy.slowdown_target
            self.rate = min(most, self.rate + up * policy.slowdown_target)
            self.beside = min(limit, self.beside + up * limit)
        self._fill(seen, lost, step, time_slices)
        self._watch(seen)

    def _fill(self, seen: Seen, lost: float, step: int, time_slices: bool) -> None:
        spent = lost if time_slices else seen.opportunistic
        self.tokens += self.beside * seen.working - spent
        most = (
            min(self.policy.slowdown_target * step, self.policy.most_beside)
            if time_slices
            else self.beside * SECOND / 10
        )
        self.tokens = min(most, max(-most, self.tokens))

    def _watch(self, seen: Seen) -> None:
        is_over = self.slowdown > 2 * self.policy.slowdown_target and self.rate <= self.policy.least_rate
        if not is_over or seen.opportunistic <= 0:
            self._over_since = None
        elif self._over_since is None or seen.now < self._over_since:
            self._over_since = seen.now

    def is_lost(self, now: int) -> bool:
        """Return whether the target cannot be kept unless an opportunistic kernel leaves."""
        return self._over_since is not None and now - self._over_since >= self.policy.patience

    def is_too_long(self, longest: int) -> bool:
        """Return whether one launch is longer than the target permits."""
        return longest > self.policy.slowdown_target * self.policy.bound_span


@dataclass(frozen=True)
class Room:
    """The batches of an opportunistic process: their length in nanoseconds, and their number.

    ``part`` is its part of the permitted delay.
    """

    batch: int
    in_flight: int
    bound: int
    risk: Risk
    part: float = 1.0


def room(policy: Policy, longest: int, typical: int, history: PauseHistory, rate: float) -> Room:
    """Return batches as long as production's steps permit.

    So many are in flight that the device stays at work between two polls.
    """
    wanted = int(policy.slowdown_target * history.step)
    if history.typical:
        wanted = min(wanted, history.typical // policy.batches_in_pause)
    batch = min(policy.most_batch, max(policy.least_batch, wanted))
    unit = max(batch, longest)
    in_flight = min(policy.most_in_flight, 1 + ceil(policy.poll / unit)) if unit < 10 * policy.poll else 1
    likely = max(batch, min(typical, longest))
    risk = Risk(
        in_flight * likely - likely // 2, in_flight * likely, rate, policy.noticed_delay, policy.rare(history.step)
    )
    return Room(batch, in_flight, in_flight * unit, risk)


def beside_others(space: Room, in_flight: int) -> Room:
    """Return the room of a process whose neighbors begin work in the same pauses.

    Its own work ends behind theirs: ``in_flight`` is all of them, in nanoseconds. The permitted
    delay is divided as that work is.
    """
    own = space.risk.in_flight
    return replace(space, risk=replace(space.risk, in_flight=max(own, in_flight)), part=own / max(own, in_flight, 1))


def beside_interval(policy: Policy, unit: int, step: int) -> int:
    """Return how long a process without GPU time waits for one batch beside production.

    The process is opportunistic; this wait bounds its starvation.
    """
    interval = policy.floor_interval(unit)
    if unit > policy.noticed_delay * step:
        interval = max(interval, int(step / policy.rare(step)))
    return interval
