"""Nobody goes on faster than the rate, whatever the pattern; and nobody who went away is remembered."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from jupyter_aliquot.gateway.limits.token_bucket import TokenBuckets

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
