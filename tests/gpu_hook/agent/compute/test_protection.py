"""The control of the permitted delay: cut at once, raised slowly, kept while production is away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_aliquot.gpu_hook.agent.compute.measurement.forecast import PauseHistory
from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import (
    MILLISECOND,
    SECOND,
    DeviceSample,
    Interval,
    ProcessSample,
)
from jupyter_aliquot.gpu_hook.agent.compute.policy.controller import MeasuredController
from jupyter_aliquot.gpu_hook.agent.compute.policy.policy import NEVER, Policy
from jupyter_aliquot.gpu_hook.agent.compute.policy.protection import (
    Protection,
    Seen,
    beside_interval,
    beside_others,
    room,
)

POLICY = Policy()
STEP = 20 * MILLISECOND
CALM = Seen(0, STEP, STEP, 0.0, None, float(STEP), True)


def after(protection: Protection, seen: Seen, seconds: float, begin: int = SECOND) -> int:
    now = begin
    while now < begin + seconds * SECOND:
        protection.step(replace(seen, now=now), 100 * MILLISECOND, True)
        now += STEP
    return now


def test_loss_over_the_target_trims_what_is_allowed_then_halves_it_and_waits_for_the_effect_of_each() -> None:
    protection = Protection(POLICY)
    before = protection.rate
    now = after(protection, replace(CALM, lost=0.3 * STEP), 0.22)
    trimmed = protection.rate
    assert before / 2 < trimmed < before * 1.2  # after a short rise
    now = after(protection, replace(CALM, lost=0.3 * STEP), 0.2, now)
    assert protection.rate == pytest.approx(trimmed * POLICY.cut)
    after(protection, replace(CALM, lost=0.3 * STEP), 2, now)
    assert protection.rate == POLICY.least_rate


def test_it_is_back_within_seconds_after_loss_ends() -> None:
    protection = Protection(POLICY)
    now = after(protection, replace(CALM, lost=0.1 * STEP), 2)
    now = after(protection, CALM, 2, now)
    after(protection, CALM, 2, now)
    assert protection.rate >= POLICY.slowdown_target


def test_what_was_safe_is_kept_while_production_is_idle() -> None:
    protection = Protection(POLICY)
    now = after(protection, replace(CALM, lost=0.1 * STEP), 1)
    rate, slowdown = protection.rate, protection.slowdown
    after(protection, replace(CALM, working=0, opportunistic=float(STEP)), 10, now)
    assert (protection.rate, protection.slowdown) == (rate, slowdown)


def test_nothing_rises_where_nobody_wants_more() -> None:
    protection = Protection(POLICY)
    after(protection, replace(CALM, is_held=False), 10)
    assert protection.rate == POLICY.slowdown_target / 2


def test_stretch_counts_where_it_says_more_than_intervals() -> None:
    protection = Protection(POLICY)
    after(protection, replace(CALM, slowdown_loss=0.2 * STEP), 1)
    assert protection.rate < POLICY.slowdown_target / 2


def test_only_what_stays_over_the_target_at_the_floor_is_unholdable() -> None:
    protection = Protection(POLICY)
    heavy = replace(CALM, lost=0.3 * STEP)
    now = after(protection, heavy, 2)
    assert not protection.is_lost(now)
    now = after(protection, heavy, 4, now)
    assert protection.is_lost(now)
    now = after(protection, replace(heavy, opportunistic=0.0), 0.1, now)
    assert not protection.is_lost(now)


def test_a_launch_of_seconds_is_more_than_the_target_permits() -> None:
    assert Protection(POLICY).is_too_long(SECOND)
    assert not Protection(POLICY).is_too_long(100 * MILLISECOND)


def test_the_bound_is_what_is_in_flight_of_the_longest() -> None:
    history = PauseHistory(POLICY.idle_after)
    for longest in (0, 10_000, 700_000, 3 * MILLISECOND, 100 * MILLISECOND):
        made = room(POLICY, longest, longest, history, 0.01)
        assert 1 <= made.in_flight <= POLICY.most_in_flight
        assert made.bound == made.in_flight * max(made.batch, longest)
        assert POLICY.least_batch <= made.batch <= POLICY.most_batch


def test_the_floor_is_rare_enough_for_steps_and_comes() -> None:
    step = 100 * MILLISECOND
    assert beside_interval(POLICY, 9 * MILLISECOND, step) >= POLICY.rare_span
    assert beside_interval(POLICY, MILLISECOND, step) <= 2 * SECOND


@pytest.mark.parametrize("floor", [0.0, 1e-320])
def test_without_a_floor_nothing_comes_beside_production_that_never_pauses(floor: float) -> None:
    policy = Policy(floor=floor)
    assert beside_interval(policy, MILLISECOND, 100 * MILLISECOND) == NEVER
    controller, opened = MeasuredController(policy), 0
    for now in range(SECOND, 30 * SECOND, 20 * MILLISECOND):
        busy = (Interval(now - 20 * MILLISECOND, now),)
        production = ProcessSample(1, "p", True, 50, intervals=busy, is_active=True, occupied=now, active_since=SECOND)
        looks = (production, replace(production, key=2, kernel_id="h", is_production=False))
        orders = controller.step(DeviceSample(now, looks)).orders
        opened += orders[2].allowed_with_busy_peers > now and now > 2 * SECOND
    assert opened == 0


def test_work_that_waits_behind_neighbors_ends_after_theirs() -> None:
    alone = room(POLICY, MILLISECOND, MILLISECOND, PauseHistory(25 * MILLISECOND), 0.1)
    among = beside_others(alone, 15 * MILLISECOND)
    assert among.risk == replace(alone.risk, in_flight=15 * MILLISECOND)
    assert among.part == alone.risk.in_flight / (15 * MILLISECOND)
    assert beside_others(alone, 0) == alone


def test_long_steps_may_be_delayed_more_often_than_short_ones() -> None:
    assert POLICY.rare(5 * MILLISECOND) == POLICY.rare_steps
    assert POLICY.rare(100 * MILLISECOND) == pytest.approx(100 * MILLISECOND / POLICY.rare_span)
    assert POLICY.rare(2 * SECOND) == POLICY.most_rare_steps
