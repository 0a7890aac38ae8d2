"""Weighted fair queueing on own time.

The device grants the allowances in equal slices.
"""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND, SECOND, Interval
from jupyter_aliquot.gpu_hook.agent.compute.policy.shares import MOST_CREDIT, FairQueue, Member, split

STEP, HORIZON = 20 * MILLISECOND, 30 * MILLISECOND


def test_what_a_cap_leaves_over_goes_to_the_others() -> None:
    assert split({"a": 25, "b": 75}, {}) == {"a": 0.25, "b": 0.75}
    assert split({"a": 50, "b": 50}, {"a": 0.1}) == {"a": 0.1, "b": 0.9}
    assert split({"a": 25}, {"a": 0.25}) == {"a": 0.25}


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 100), min_size=1), st.sets(st.sampled_from("abcdefgh"))
)
def test_parts_are_never_more_than_the_device(weights: dict[str, int], capped: set[str]) -> None:
    caps = {key: weights[key] / 100 for key in capped & weights.keys()}
    parts = split(weights, caps)
    assert parts.keys() == weights.keys()
    assert sum(parts.values()) <= 1 + 1e-9
    assert all(parts[key] <= cap + 1e-9 for key, cap in caps.items())


class Slices:
    """A device that runs allowed work, in slices of 1 ms for each kernel that may run.

    Own time is exact here.
    """

    def __init__(self, weights: dict[str, int], caps: frozenset[str] = frozenset()) -> None:
        self.queue, self.now, self.weights, self.caps = FairQueue(), SECOND, weights, caps
        self.own = dict.fromkeys(weights, 0.0)
        self.busy: dict[str, list[Interval]] = {key: [] for key in weights}
        self.allowed: dict[str, float | None] = dict.fromkeys(weights, 0.0)
        self.entitled: dict[str, float | None] = {}

    def step(self, wanting: set[str]) -> None:
        members = [
            Member(key, weight, key in self.caps, key in wanting, key in wanting, self.own[key], 0.0, self.busy[key])
            for key, weight in self.weights.items()
        ]
        given_ = self.queue.step(members, self.now - STEP, self.now, self.now, HORIZON)
        self.allowed = {key: allowance.own for key, allowance in given_.items()}
        self.entitled = {key: allowance.entitled for key, allowance in given_.items()}
        self._run(wanting)

    def _run(self, wanting: set[str]) -> None:
        left = {key: float("inf") if self.allowed[key] is None else self.allowed[key] or 0.0 for key in wanting}
        self.busy = {key: [] for key in self.weights}
        end, time = self.now + STEP, self.now
        while time < end and any(allowed > 0 for allowed in left.values()):
            for key in sorted(left):
                if left[key] > 0 and time < end:
                    self.own[key] += MILLISECOND
                    left[key] -= MILLISECOND
                    self.busy[key].append(Interval(time, time + MILLISECOND))
                    time += MILLISECOND
        self.now = end


@pytest.mark.parametrize("part", [10, 25, 50, 75])
def test_shares_are_within_three_points_over_a_second(part: int) -> None:
    device = Slices({"a": part, "b": 100 - part})
    for _ in range(50):
        device.step({"a", "b"})
    for _ in range(4):
        before = dict(device.own)
        for _ in range(50):
            device.step({"a", "b"})
        used = {key: device.own[key] - before[key] for key in before}
        assert 100 * used["a"] / sum(used.values()) == pytest.approx(part, abs=3)


def test_a_cap_holds_for_who_is_alone() -> None:
    device = Slices({"a": 25}, frozenset("a"))
    for _ in range(100):
        device.step({"a"})
    assert device.own["a"] / (100 * STEP) == pytest.approx(0.25, abs=0.03)


def test_who_is_alone_without_a_cap_has_everything_at_once() -> None:
    device = Slices({"a": 25, "b": 75})
    for _ in range(100):
        device.step({"a", "b"})
    device.step({"a"})
    assert device.allowed["a"] is None
    assert device.entitled == {"a": 1.0, "b": None}


def test_idling_earns_no_credit() -> None:
    device = Slices({"a": 50, "b": 50})
    for _ in range(200):
        device.step({"a"})
    before = dict(device.own)
    for _ in range(25):
        device.step({"a", "b"})
    gained = {key: device.own[key] - before[key] for key in before}
    assert gained["a"] >= 0.35 * 25 * STEP


def test_nobody_starves_whatever_the_others_weigh() -> None:
    device = Slices({"a": 1, "b": 100, "c": 100})
    for _ in range(300):
        device.step({"a", "b", "c"})
    assert device.own["a"] > 0


def test_nothing_is_left_idle_that_someone_wants() -> None:
    """Kernel b may use the time that a leaves, though a comes back again and again."""
    device, used = Slices({"a": 75, "b": 25}), 0.0
    for number in range(200):
        before = sum(device.own.values())
        device.step({"a", "b"} if number % 5 == 0 else {"b"})
        used += sum(device.own.values()) - before
    assert used >= 0.97 * 200 * STEP


@given(st.lists(st.sets(st.sampled_from("abcd")), min_size=1, max_size=60))
def test_allowances_are_never_negative_and_lag_is_bounded(wanting: list[set[str]]) -> None:
    device = Slices({"a": 10, "b": 20, "c": 30, "d": 40}, frozenset("a"))
    for wants in wanting:
        device.step(wants)
        assert all(allowed is None or allowed >= 0 for allowed in device.allowed.values())
        assert all(standing.lag <= MOST_CREDIT for standing in device.queue._standings.values())


def test_sixteen_equals_get_equal_parts() -> None:
    device = Slices({chr(97 + number): 6 for number in range(16)})
    for _ in range(100):
        device.step(set(device.weights))
    own = list(device.own.values())
    assert sum(own) ** 2 / (16 * sum(one * one for one in own)) >= 0.98


def test_what_was_launched_before_the_first_order_is_paid_back_within_a_second_or_so() -> None:
    device = Slices({"a": 10, "b": 90})
    device.step({"a", "b"})
    device.own["a"] += 600 * MILLISECOND  # it had queued so much
    for _ in range(60):
        device.step({"a", "b"})
    before = dict(device.own)
    for _ in range(50):
        device.step({"a", "b"})
    used = {key: device.own[key] - before[key] for key in before}
    assert 100 * used["a"] / sum(used.values()) == pytest.approx(10, abs=3)


def test_time_alone_on_the_device_is_no_debt() -> None:
    device = Slices({"a": 50, "b": 50})
    for _ in range(20):
        device.step({"a", "b"})
    device.now += 10 * SECOND  # b was away, and the queue was not asked
    device.own["a"] += 10 * SECOND
    before = dict(device.own)
    for _ in range(10):
        device.step({"a", "b"})
    used = {key: device.own[key] - before[key] for key in before}
    assert 100 * used["a"] / sum(used.values()) == pytest.approx(50, abs=10)
