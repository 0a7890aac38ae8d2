"""Decisions to end idle kernels: never without an announcement, never a kernel at work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from traitlets import TraitError
from traitlets.config import Config

from jupyter_aliquot.gateway.culling.policy import (
    LEAST_WARNING_SECONDS,
    Announcement,
    Culling,
    Decision,
    KernelFacts,
    Policy,
    decide,
    duration_text,
    read_policy,
)

HOUR = Policy(idle=3600.0, low_priority_idle=3600.0, warning=300.0)
IDLE = KernelFacts("k1", started=0.0, active=0.0)


def look(kernel: KernelFacts, now: float, told: Mapping[str, Announcement], policy: Policy = HOUR) -> Decision:
    return decide([kernel], told, now, policy)


def test_an_idle_kernel_is_announced_and_then_ended() -> None:
    assert look(IDLE, 3299.0, {}) == Decision({})
    told = look(IDLE, 3300.0, {}).announced
    assert (told["k1"].at, told["k1"].can_keep) == (3600.0, True)
    assert told["k1"].reason == "kernels that are idle for 60 min are ended"
    assert look(IDLE, 3599.0, told) == Decision(told)
    decision = look(IDLE, 3600.0, told)
    assert ([end.kernel_id for end in decision.ends], decision.announced) == (["k1"], {})
    assert decision.ends[0].ending == "after 60 min idle"


def test_a_late_look_still_gives_the_whole_warning() -> None:
    told = look(IDLE, 9000.0, {}).announced
    assert told["k1"].at == 9300.0
    assert look(IDLE, 9299.0, told).ends == ()
    assert len(look(IDLE, 9300.0, told).ends) == 1


def test_whatever_happens_after_the_announcement_takes_it_back() -> None:
    told = look(IDLE, 3300.0, {}).announced
    used = replace(IDLE, active=3400.0)
    assert look(used, 3600.0, told) == Decision({})
    assert look(replace(IDLE, is_busy=True), 3600.0, told) == Decision({})
    again = look(used, 6700.0, told).announced
    assert again["k1"].at == 7000.0


def test_a_kernel_is_ended_some_time_after_its_users_server_has_gone() -> None:
    policy = Policy(server_gone=600.0, warning=300.0)
    left = replace(IDLE, server_gone=1000.0)
    assert look(replace(IDLE, server_gone=None), 9000.0, {}, policy) == Decision({})
    assert look(left, 1299.0, {}, policy) == Decision({})
    told = look(left, 1300.0, {}, policy).announced
    assert (told["k1"].at, told["k1"].can_keep) == (1600.0, True)
    assert told["k1"].reason == "kernels are ended 10 min after their user's server has gone"
    for change in ({"server_gone": None}, {"is_busy": True}, {"connections": 1}, {"active": 1500.0}):
        assert look(replace(left, **change), 1600.0, told, policy) == Decision({}), change
    assert look(left, 1600.0, told, policy).ends[0].ending == "10 min after its user's server had gone"


@pytest.mark.parametrize(
    ("change", "policy", "want"),
    [
        ({}, Policy(), False),
        ({"idle": 10.0}, Policy(), True),
        ({"idle": 0.0}, HOUR, False),
        ({"is_busy": True}, HOUR, False),
        ({"is_busy": True}, replace(HOUR, ends_busy=True), True),
        ({"connections": 2}, HOUR, True),
        ({"connections": 2}, replace(HOUR, ends_connected=False), False),
        ({"is_low_priority": True}, replace(HOUR, low_priority_idle=0.0), False),
        ({"is_low_priority": True}, Policy(low_priority_idle=60.0), True),
        ({}, Policy(low_priority_idle=60.0), False),
        ({}, Policy(max_age=86400.0), True),
        ({"is_busy": True}, Policy(max_age=86400.0), False),
    ],
)
def test_the_policy_and_the_kernels_own_time_say_whom_it_concerns(
    change: dict[str, Any], policy: Policy, want: bool
) -> None:
    assert bool(look(replace(IDLE, **change), 1e6, {}, policy).announced) is want


def test_an_old_kernel_ends_after_its_work_and_a_warning_and_cannot_be_kept() -> None:
    policy = Policy(max_age=86400.0, warning=300.0)
    fresh = replace(IDLE, active=86000.0)
    assert look(fresh, 86000.0, {}, policy).announced == {}
    told = look(replace(fresh, active=86050.0), 86100.0, {}, policy).announced["k1"]
    assert (told.at, told.can_keep, told.reason) == (86400.0, False, "kernels are ended 24 h after their start")
    working = replace(fresh, active=90000.0)
    told = look(working, 90010.0, {"k1": told}, policy).announced["k1"]
    assert told.at == 90310.0, "the whole warning after its last work"


class LifeOfAKernel(RuleBasedStateMachine):
    """A kernel's life: the user uses it, and the culler looks at it, at any times."""

    @initialize(
        idle=st.floats(1, 1000),
        warning=st.just(0.0) | st.floats(LEAST_WARNING_SECONDS, 2000),
        max_age=st.sampled_from([0.0, 500.0, 5000.0]),
    )
    def begin(self, idle: float, warning: float, max_age: float) -> None:
        self.policy = Policy(idle, idle, max_age, warning)
        self.now = self.active = 1000.0
        self.is_busy = False
        self.told: Mapping[str, Announcement] = {}
        self.told_at: float | None = None
        self.is_ended = False

    @rule(seconds=st.floats(0.1, 800))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        if self.is_busy:
            self.active = self.now

    @rule()
    def a_cell_begins(self) -> None:
        self.is_busy, self.active, self.told_at = True, self.now, None

    @rule()
    def work_ends(self) -> None:
        if self.is_busy:
            self.is_busy, self.active = False, self.now

    @rule()
    def its_gpu_is_used_or_it_is_kept(self) -> None:
        self.active, self.told_at = self.now, None

    @rule()
    def somebody_looks(self) -> None:
        if self.is_ended:
            return
        facts = KernelFacts("k", 1000.0, self.active, self.is_busy)
        decision = decide([facts], self.told, self.now, self.policy)
        if decision.ends:
            self.is_ended = True
            assert not self.is_busy, "work is never ended"
            if self.policy.warning:
                assert self.told_at is not None, "nothing ends without an announcement since its last use"
                assert self.now - self.told_at >= self.policy.warning - 1e-6
            idle_for, age = self.now - self.active, self.now - 1000.0
            is_old = bool(self.policy.max_age) and age >= self.policy.max_age
            assert idle_for >= self.policy.idle - 1e-6 or is_old
        if decision.announced and decision.announced != self.told:
            self.told_at = self.now
        if not decision.announced:
            self.told_at = None
        self.told = decision.announced

    @invariant()
    def an_announcement_is_of_a_time_to_come(self) -> None:
        if getattr(self, "told", None):
            assert self.told["k"].at > self.told["k"].since or self.policy.warning == 0


TestLifeOfAKernel = LifeOfAKernel.TestCase
TestLifeOfAKernel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def jupyter(**knobs: Any) -> SimpleNamespace:
    stock = {"cull_idle_timeout": 0, "cull_interval": 300, "cull_busy": False, "cull_connected": False}
    return SimpleNamespace(**{**stock, **knobs})


def test_jupyters_own_knobs_are_followed_where_ours_leave_it_open() -> None:
    policy = read_policy(Culling(), jupyter(cull_idle_timeout=1200, cull_interval=5))
    assert (policy.idle, policy.low_priority_idle, policy.check_seconds) == (1200.0, 1200.0, 5)
    assert not policy.ends_connected, "as in Jupyter, a connected browser keeps a kernel"
    assert not policy.ends_busy
    policy = read_policy(Culling(), jupyter(cull_idle_timeout=1200, cull_busy=True, cull_connected=True))
    assert (policy.ends_busy, policy.ends_connected) == (True, True)


def test_our_knobs_come_before_jupyters() -> None:
    knobs = Culling(config=Config({"Culling": {"idle_seconds": 60.0, "low_priority_idle_seconds": 0.0}}))
    policy = read_policy(knobs, jupyter(cull_idle_timeout=1200, cull_busy=True))
    assert (policy.idle, policy.low_priority_idle, policy.ends_connected, policy.ends_busy) == (60.0, 0.0, True, False)
    assert read_policy(Culling(), jupyter()).idle == 0.0
    assert policy.check_seconds <= 6.0


@pytest.mark.parametrize("knob", ["idle_seconds", "max_age_seconds", "warning_seconds", "low_priority_idle_seconds"])
@pytest.mark.parametrize("value", [-2.0, float("inf"), float("nan")])
def test_a_time_that_is_none_is_refused(knob: str, value: float) -> None:
    with pytest.raises(TraitError, match=f"c.Culling.{knob}"):
        Culling(config=Config({"Culling": {knob: value}}))


@pytest.mark.parametrize("value", [2.220446049250313e-16, 0.5])
def test_a_warning_that_nobody_could_read_is_refused(value: float) -> None:
    with pytest.raises(TraitError, match=r"c.Culling.warning_seconds: .* is not valid. .* 1 or more, or 0 for none"):
        Culling(config=Config({"Culling": {"warning_seconds": value}}))
    assert Culling(config=Config({"Culling": {"warning_seconds": 0}})).warning_seconds == 0.0


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (0.5, "0.5 s"),
        (90, "90 s"),
        (3600, "60 min"),
        (5400, "90 min"),
        (9000, "2 h 30 min"),
        (86400, "24 h"),
        (172800, "2 d"),
    ],
)
def test_durations_read_as_people_say_them(seconds: float, want: str) -> None:
    assert duration_text(seconds) == want
