"""Habits of a kernel: bounded, and consistent whatever was seen."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings, strategies as st

from jupyter_aliquot.gpu_hook.agent.activity.habits import Durations, Habits

SECONDS = st.one_of(st.floats(0.0, 1e6), st.integers(0, 23).map(lambda power: 0.125 * 2.0**power))


def learned(*seconds: float) -> Durations:
    durations = Durations()
    for one in seconds:
        durations.add(one)
    return durations


@pytest.mark.parametrize("seen", [(), (5.0,), (5.0, 5.0)])
def test_nothing_is_expected_of_a_kernel_of_which_little_was_seen(seen: tuple[float, ...]) -> None:
    durations = learned(*seen)
    assert durations.chance_within(10.0) is None
    assert durations.expected_rest() is None


def test_regular_pauses_end_when_they_ended_before() -> None:
    durations = learned(*[6.0] * 10)
    assert durations.chance_within(2.0) == 0.0
    assert durations.chance_within(10.0) == 1.0
    assert durations.chance_within(4.0, lasted=4.0) == 1.0
    rest = durations.expected_rest(4.0)
    assert rest is not None
    assert 0 < rest <= 4


def test_of_what_lasts_longer_than_any_before_nothing_is_expected() -> None:
    durations = learned(*[6.0] * 10)
    assert durations.chance_within(60.0, lasted=60.0) is None
    assert durations.expected_rest(60.0) is None


def test_a_changed_habit_outweighs_the_old_one() -> None:
    durations = learned(*[600.0] * 100, *[2.0] * 40)
    chance = durations.chance_within(10.0)
    assert chance is not None
    assert chance > 0.8


@given(st.lists(SECONDS, min_size=3, max_size=60), SECONDS, SECONDS, SECONDS)
@settings(max_examples=200, deadline=None)
def test_a_chance_grows_with_the_time_that_it_has(seen: list[float], lasted: float, less: float, more: float) -> None:
    durations = learned(*seen)
    less, more = sorted((less, more))
    one, other = durations.chance_within(less, lasted), durations.chance_within(more, lasted)
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert 0.0 <= one <= other + 1e-9 <= 1.0 + 1e-9
    rest = durations.expected_rest(lasted)
    assert rest is None or rest >= 0.0
    if rest is not None:
        until = durations.chance_within(rest, lasted)
        assert until is not None
        assert until == pytest.approx(0.5, abs=0.01)


@given(st.lists(SECONDS, min_size=100, max_size=300))
@settings(max_examples=20, deadline=None)
def test_memory_does_not_grow_with_what_was_seen(seen: list[float]) -> None:
    few, many = learned(*seen[:3]), learned(*seen)
    assert len(pickle.dumps(many)) <= len(pickle.dumps(few)) + 64


def test_a_kernels_cells_and_pauses_are_told_apart() -> None:
    habits, now = Habits(), 100.0
    for _ in range(5):
        habits.note(None, now)  # a cell of 20 s, looked at twice
        habits.note(None, now + 10)
        habits.note(now + 20, now + 20.5)
        habits.note(now + 20, now + 30)  # and a pause of 300 s
        now += 320
    habits.note(None, now)
    assert habits.cells.chance_within(40.0) == 1.0
    assert habits.cells.chance_within(10.0) == 0.0
    assert habits.pauses.chance_within(600.0) == 1.0
    assert habits.pauses.chance_within(200.0) == 0.0
