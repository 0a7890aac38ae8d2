"""Steps made of samples: exact, by time, with a gap where there is no sample."""

from __future__ import annotations

import pytest

from jupyter_aliquot.gateway.history.buckets import COARSE_SECONDS, DAY, FINE_SECONDS, HOUR, WEEK, OpenSteps, parts
from jupyter_aliquot.gateway.history.counters import KernelCounters
from jupyter_aliquot.gateway.history.samples import FIGURES, Reading, Sample, Subject, is_gap, samples

from .node import UUID, figure, node

KERNEL = Subject("kernel", "k1", "alice")


def a_sample(used: float | None, busy: float | None = None) -> Sample:
    known = {"used_bytes": used, "busy_gpus": busy}
    return Sample(KERNEL, tuple(known.get(name) for name in FIGURES))


def sampled(before: Reading, after: Reading) -> list[Sample]:
    """Return the samples of two readings, with what the first one counted left out."""
    counters = KernelCounters()
    counters.skip(before.status)
    return list(samples(before, after, counters))


def test_a_mean_is_weighted_by_time_and_extremes_are_kept() -> None:
    steps = OpenSteps(10)
    steps.add(a_sample(100), steps.parts(1004, 3))
    steps.add(a_sample(700), steps.parts(1005, 1))
    [point] = steps.take()
    assert (point.at, point.seconds) == (1000, 4)
    assert (figure(point.least), figure(point.mean), figure(point.most)) == (100, 250, 700)


def test_a_stretch_over_steps_is_divided_among_them() -> None:
    assert list(parts(1021, 13, 10)) == [(1000, 2), (1010, 10), (1020, 1)]
    assert list(parts(1010, 10, 10)) == [(1000, 10)]


def test_a_figure_that_is_known_for_a_while_has_the_mean_of_that_while() -> None:
    steps = OpenSteps(10)
    steps.add(a_sample(None), steps.parts(1002, 2))
    steps.add(a_sample(100), steps.parts(1004, 2))
    [point] = steps.take()
    assert figure(point.mean) == 100
    assert figure(point.mean, "share_used") is None


def test_an_amount_that_is_known_for_a_while_adds_up_over_the_whole_step() -> None:
    steps = OpenSteps(10)
    steps.add(a_sample(100, busy=None), steps.parts(1006, 6))
    steps.add(a_sample(100, busy=0.5), steps.parts(1008, 2))
    [point] = steps.take()
    assert figure(point.mean, "busy_gpus") == 0.5 * 2 / point.seconds
    assert figure(point.most, "busy_gpus") == 0.5


def test_a_step_that_grows_on_after_it_was_taken_has_the_rest_alone() -> None:
    steps = OpenSteps(10)
    steps.add(a_sample(1), steps.parts(1012, 4))
    assert [(point.at, point.seconds) for point in steps.take()] == [(1000, 2), (1010, 2)]
    steps.add(a_sample(1), steps.parts(1015, 3))
    assert [(point.at, point.seconds) for point in steps.take()] == [(1010, 3)]
    assert steps.take() == []


def test_gpu_time_is_the_difference_of_counters() -> None:
    before = Reading(1000, 50, node(busy_seconds=10.0, own_seconds=4.0))
    after = Reading(1002, 52, node(busy_seconds=11.0, own_seconds=4.5))
    found = {sample.subject.kind: sample for sample in sampled(before, after)}
    assert figure(found["kernel"].values, "busy_gpus") == 0.5
    assert figure(found["kernel"].values, "own_gpus") == 0.25
    assert found["device"].subject.id == UUID
    assert figure(found["device"].values, "temperature_celsius") is None


@pytest.mark.parametrize("now", [0.0, 900.0])
def test_a_counter_that_began_anew_or_ran_ahead_of_time_is_not_known(now: float) -> None:
    before, after = Reading(1000, 50, node(busy_seconds=10.0)), Reading(1002, 52, node(busy_seconds=now))
    [kernel] = [sample for sample in sampled(before, after) if sample.subject.kind == "kernel"]
    assert figure(kernel.values, "busy_gpus") is None


def test_an_older_kernel_has_no_sample_before_its_second_look() -> None:
    before, after = Reading(2000, 50, node(kernels=0)), Reading(2002, 52, node())
    assert [sample.subject.kind for sample in sampled(before, after)] == ["device"]
    assert sampled(Reading(1000, 50, None), after) == []


def test_the_counters_of_a_kernel_that_came_between_two_looks_began_with_it() -> None:
    before, after = Reading(999, 50, node(kernels=0)), Reading(1001, 52, node(busy_seconds=1.0, own_seconds=0.5))
    [_, kernel] = sampled(before, after)
    assert (figure(kernel.values, "busy_gpus"), figure(kernel.values, "own_gpus")) == (0.5, 0.25)


def test_an_id_of_another_owner_is_another_kernel() -> None:
    before, after = Reading(2000, 50, node(owner="bob")), Reading(2002, 52, node(owner="alice"))
    assert [sample.subject.kind for sample in sampled(before, after)] == ["device"]


def test_a_clock_that_was_set_and_a_long_silence_are_gaps() -> None:
    reading = Reading(1000, 50, None)
    assert not is_gap(reading, Reading(1002, 52, None), 10)
    assert is_gap(reading, Reading(5000, 52, None), 10)
    assert is_gap(reading, Reading(900, 52, None), 10)
    assert is_gap(reading, Reading(1011, 61, None), 10)
    assert is_gap(reading, Reading(1000, 50, None), 10)


def test_ranges_are_what_their_names_say_in_two_resolutions() -> None:
    assert [each.seconds for each in (HOUR, DAY, WEEK)] == [3600, 86400, 7 * 86400]
    assert {each.step_seconds for each in (HOUR, DAY, WEEK)} == {FINE_SECONDS, COARSE_SECONDS}
