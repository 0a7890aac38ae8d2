"""No caller is faster than the rate, whatever the pattern; no caller that left is remembered."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from jupyter_aliquot.gpu_hook.base.pacing import Backoff, Throttle, TokenBucket, TokenBuckets, backoff_seconds

waits = st.floats(0, 3, allow_nan=False)


@given(rate=st.floats(0.1, 50), burst=st.integers(1, 20), visits=st.lists(st.tuples(st.sampled_from("abc"), waits)))
def test_nobody_is_let_in_more_often_than_burst_and_rate_allow(
    rate: float, burst: int, visits: list[tuple[str, float]]
) -> None:
    buckets, now, let_in = TokenBuckets(rate, burst), 0.0, {name: [] for name in "abc"}  # type: ignore[var-annotated]
    for name, wait in visits:
        now += wait
        if not buckets.take(name, now):
            let_in[name].append(now)
    for moments in let_in.values():
        for first in range(len(moments)):
            for last in range(first, len(moments)):
                seconds = moments[last] - moments[first]
                assert last - first + 1 <= burst + rate * seconds + 1e-6


@given(rate=st.floats(0.1, 50), burst=st.integers(1, 20))
def test_who_is_refused_is_told_when_to_come_again_and_is_let_in_then(rate: float, burst: int) -> None:
    buckets = TokenBuckets(rate, burst)
    for _ in range(burst):
        assert buckets.take("a", 5.0) == 0
    wait = buckets.take("a", 5.0)
    assert 0 < wait <= 1 / rate + 1e-9
    assert buckets.take("a", 5.0 + wait / 2) > 0
    assert buckets.take("a", 5.0 + wait + 1e-6) == 0


def test_one_who_is_refused_takes_nothing_of_anothers() -> None:
    buckets = TokenBuckets(1, 3)
    for _ in range(100):
        buckets.take("loud", 0.0)
    assert [buckets.take("quiet", 0.0) for _ in range(3)] == [0, 0, 0]


def test_who_went_away_is_forgotten_and_a_crowd_shares_a_bucket() -> None:
    buckets = TokenBuckets(1, 2, most_keys=10)
    answers = [buckets.take(f"10.0.0.{number}", 0.0) for number in range(500)]
    assert len(buckets) <= 11
    assert answers[:12] == [0] * 12, "ten alone, and two of the crowd"
    assert all(answers[12:])
    assert buckets.take("10.0.0.3", 0.0) == 0, "who was known before keeps a bucket"
    buckets.take("somebody", 10.0)
    assert len(buckets) == 1


def test_a_clock_that_stands_still_gives_nothing() -> None:
    buckets = TokenBuckets(1000, 1)
    assert buckets.take("a", 7.0) == 0
    assert all(buckets.take("a", 7.0) == pytest.approx(0.001) for _ in range(10))


def test_a_bucket_fills_by_its_rate_up_to_a_burst_and_owes_at_most_one() -> None:
    bucket = TokenBucket(10.0, 20.0, 0.0)
    bucket.charge(20, 0.0)
    assert bucket.seconds_until(0.0) == pytest.approx(0.1)
    assert bucket.seconds_until(1.0, 10) == 0
    bucket.charge(1000, 1.0)
    assert bucket.seconds_until(1.0) == pytest.approx(2.1)
    assert bucket.seconds_until(101.0, 20) == 0
    assert bucket.seconds_until(101.0, 21) > 0


def test_a_bucket_fills_with_time_and_never_beyond_its_burst() -> None:
    bucket = TokenBucket(0.5, 2, 10.0)
    assert [not bucket.take(now) for now in (10.0, 10.0, 10.0, 12.0, 12.0)] == [True, True, False, True, False]
    assert [not bucket.take(1000.0) for _ in range(3)] == [True, True, False]


def test_a_throttle_lets_each_key_pass_once_in_its_time() -> None:
    throttle = Throttle(60)
    assert [throttle.passes("a", now) for now in (0.0, 59.0, 60.0, 61.0)] == [True, False, True, False]
    assert throttle.passes("b", 61.0)


def test_a_throttle_remembers_a_bounded_number_of_keys_and_forgets_old_ones() -> None:
    throttle = Throttle(60, most_keys=2)
    assert [throttle.passes(key, 0.0) for key in "abc"] == [True, True, False]
    assert not throttle.passes("a", 1.0)
    assert throttle.passes("c", 60.0)


def test_waits_double_up_to_the_longest_and_begin_anew_after_a_success() -> None:
    waits = Backoff(0.5, 3.0)
    assert [waits.next_seconds() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    waits.reset()
    assert waits.next_seconds() == 0.5
    assert backoff_seconds(2.0, 60.0, 10_000) == 60.0
