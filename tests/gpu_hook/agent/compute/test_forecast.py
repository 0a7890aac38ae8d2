"""The forecast of when work may begin in a pause of production, for all kinds of pauses."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, strategies as st

from jupyter_aliquot.gpu_hook.agent.compute.measurement.forecast import FEW, Gaps, PauseHistory, Risk
from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND, SECOND, Interval

AGAIN = 40 * MILLISECOND
START = 1000 * SECOND


def history(lengths: list[float], work: float) -> PauseHistory:
    """Return pauses and the work between them, in milliseconds."""
    made, now, pauses = PauseHistory(AGAIN), START, []
    for length in lengths:
        pauses.append(Interval(now, now + round(length * MILLISECOND)))
        now = pauses[-1].end + round(work * MILLISECOND)
    made.add(pauses, now)
    made.digest()
    return made


def risk(in_flight: float, rate: float = 0.02) -> Risk:
    unit = round(in_flight * MILLISECOND)
    return Risk(unit // 2, unit, rate, noticed=0.03, rare=0.005)


def harvested(gaps: Gaps, lengths: list[float]) -> float:
    total = 0.0
    for length in (round(one * MILLISECOND) for one in lengths):
        total += max(0, min(length, gaps.until) - gaps.start) + max(0, length - max(gaps.again, gaps.until))
    return total / MILLISECOND / sum(lengths)


def test_few_pauses_open_only_what_is_idleness() -> None:
    assert history([10] * (FEW - 1), 10).gaps(risk(1)) == Gaps(0, 0, AGAIN)


def test_where_delay_is_affordable_every_pause_is_open() -> None:
    gaps = history([50] * 40, 100).gaps(risk(1))
    assert (gaps.start, gaps.until, gaps.again) == (0, 0, 0)


def test_work_stops_before_regular_production_returns() -> None:
    random = Random(1)
    lengths = [random.gauss(10, 0.1) for _ in range(200)]
    made = history(lengths, 5)
    gaps = made.gaps(risk(2))
    unnoticed = 0.04 * made.step
    assert gaps.until + 2 * MILLISECOND <= min(lengths) * MILLISECOND + unnoticed
    assert harvested(gaps, lengths) >= 0.7


def test_gaps_between_launches_are_left_alone_and_long_pauses_used() -> None:
    random = Random(2)
    lengths = [0.03 if random.random() < 0.95 else random.gauss(8, 0.2) for _ in range(400)]
    gaps = history(lengths, 1).gaps(risk(1))
    assert gaps.start >= 0.03 * MILLISECOND
    assert harvested(gaps, lengths) >= 0.6


def test_dense_pauses_without_memory_stay_closed_to_long_work() -> None:
    random = Random(3)
    lengths = [random.expovariate(1 / 5) for _ in range(300)]
    gaps = history(lengths, 5).gaps(risk(20))
    assert harvested(gaps, lengths) <= 0.01


@pytest.mark.parametrize("in_flight", [1, 10, 100])
def test_a_pause_far_beyond_the_others_is_always_open(in_flight: float) -> None:
    gaps = history([1.0] * 100, 10).gaps(risk(in_flight))
    assert gaps.again <= AGAIN


def test_pauses_that_are_long_ago_are_forgotten() -> None:
    made = history([10] * 100, 5)
    made.add([], START + 3600 * SECOND)
    made.digest()
    assert made.count == 0
    assert made.gaps(risk(1)) == Gaps(0, 0, AGAIN)


def test_rounds_of_a_step_are_no_steps() -> None:
    """Sixteen short rounds, then learning: that is one step."""
    made, now, pauses = PauseHistory(AGAIN), START, []
    for _ in range(20):
        for number in range(16):
            pauses.append(Interval(now, now + 6 * MILLISECOND))
            now = pauses[-1].end + (30 * MILLISECOND if number == 15 else 700_000)
    made.add(pauses, now)
    made.digest()
    assert made.step == pytest.approx(136 * MILLISECOND, rel=0.15)


def test_one_long_launch_is_begun_where_most_pauses_hold_it() -> None:
    random = Random(4)
    lengths = [random.gauss(50, 8) for _ in range(200)]
    gaps = history(lengths, 90).gaps(risk(24))
    assert gaps.until > gaps.start == 0


def test_steps_with_short_pauses_may_be_delayed_to_the_usual_one_and_not_beyond() -> None:
    random = Random(5)
    lengths = [random.lognormvariate(0, 0.5) * 25 for _ in range(300)]
    made = history(lengths, 100)
    fits, exceeds = (made.gaps(risk(unit, 0.1)) for unit in (24, 48))
    assert fits.until > fits.start == 0
    assert exceeds.until == exceeds.start


def test_rare_idleness_does_not_close_the_pauses_between() -> None:
    lengths = [900.0 if number % 25 == 24 else 25.0 + number % 3 for number in range(300)]
    gaps = history(lengths, 100).gaps(risk(15, 0.05))
    assert gaps.until > gaps.start == 0


def test_what_is_taken_for_idleness_grows_with_what_is_in_flight() -> None:
    made = PauseHistory(AGAIN, 4)
    assert made.gaps(risk(5)).again == AGAIN
    assert made.gaps(risk(50)).again == 200 * MILLISECOND


@given(st.lists(st.integers(0, 10**10), max_size=60), st.integers(0, 10**8), st.integers(0, 10**10), st.floats(0, 0.1))
def test_ages_are_in_order_and_never_negative(lengths: list[int], work: int, in_flight: int, rate: float) -> None:
    made = history([length / MILLISECOND for length in lengths], work / MILLISECOND)
    gaps = made.gaps(Risk(in_flight // 2, in_flight, rate, 0.03, 0.005))
    assert 0 <= gaps.start <= gaps.until
    assert gaps.again >= (gaps.until if gaps.until > gaps.start else 0)
    assert made.step > 0
