"""The guard of c.Limits: its refusals, and a flood of refusals that makes no flood of log lines."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from traitlets import TraitError
from traitlets.config import Config

from jupyter_aliquot.gateway.limits.config import Limits
from jupyter_aliquot.gateway.limits.guard import LimitGuard
from jupyter_aliquot.gateway.scheduling.capacity import Held
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.gateway.scheduling.planner import Pending
from jupyter_aliquot.provisioner.errors import LimitError
from jupyter_aliquot.provisioner.resources import GpuShare, Request, WorkloadClass

ONE = Request(GpuShare(100))


class HandClock:
    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


def a_guard(**knobs: Any) -> tuple[LimitGuard, HandClock]:
    clock = HandClock()
    log = logging.getLogger("limits-of-a-test")
    return LimitGuard(Limits(**knobs), clock, lambda name: name == "ada", log), clock


def waiting(owner: str, count: int, *, grows: bool = False) -> list[Pending]:
    held = Held((), WorkloadClass.PRODUCTION) if grows else None
    return [Pending(f"{owner}-{grows}-{number}", owner, ONE, 0.0, held=held) for number in range(count)]


def test_a_user_has_so_many_kernels_and_an_administrator_any_number() -> None:
    guard, _ = a_guard(kernels_per_user=3)
    guard.check_kernels("alice", 2, is_admin=False)
    with pytest.raises(LimitError, match=r"3 kernels, and may have 3 at once \(c\.Limits\.kernels_per_user\)"):
        guard.check_kernels("alice", 3, is_admin=False)
    guard.check_kernels("ada", 500, is_admin=True)
    assert guard.counts()["kernels_per_user"] == 1


def test_so_many_may_wait_of_one_user_and_in_all_and_kernels_that_run_are_not_counted() -> None:
    guard, _ = a_guard(queued_per_user=2, queue_length=5)
    queue = [*waiting("bob", 2), *waiting("alice", 1), *waiting("alice", 9, grows=True)]
    guard.check_queue(KernelRef("k", "alice"), queue)
    with pytest.raises(LimitError, match="2 kernels of bob wait for a GPU, and 2 may wait at once") as own:
        guard.check_queue(KernelRef("k", "bob"), queue)
    full = [*queue, *waiting("cy", 2)]
    with pytest.raises(
        LimitError, match=r"5 kernels wait for a GPU, and no more may wait .*queue_length"
    ) as all_of_them:
        guard.check_queue(KernelRef("k", "alice"), full)
    for other in ("alice", "cy", "bob"):
        assert other not in str(all_of_them.value), "a sum, and no names of others"
        assert other == "bob" or other not in str(own.value)
    guard.check_queue(KernelRef("k", "ada"), full)


def test_users_are_counted_by_name_and_the_unknown_by_address() -> None:
    guard, clock = a_guard(requests_per_second=1.0, requests_burst=2)
    assert [guard.visit("alice", "10.0.0.1") for _ in range(2)] == [0, 0]
    assert guard.visit("alice", "10.0.0.2") == 1.0, "another address helps nobody who has a name"
    assert [guard.visit("", "10.0.0.1") for _ in range(2)] == [0, 0], "nor does a user's haste harm the address"
    assert guard.visit("", "10.0.0.1") == 1.0
    assert guard.visit("", "alice") == 0, "an address is no user"
    clock.time = 1.0
    assert guard.visit("alice", "") == 0


@pytest.mark.parametrize("knob", ["kernels_per_user", "queued_per_user", "queue_length", "requests_per_second"])
def test_nought_stands_for_no_limit(knob: str) -> None:
    guard, _ = a_guard(**{knob: 0})
    if knob == "requests_per_second":
        assert not any(guard.visit("alice", "") for _ in range(5000))
    guard.check_kernels("alice", 10 if knob != "kernels_per_user" else 10_000, is_admin=False)
    count = 10_000 if knob == "queued_per_user" else 10
    if knob == "queued_per_user":
        guard.limits.queue_length = 0
    guard.check_queue(KernelRef("k", "alice"), waiting("alice", count))


def test_a_flood_is_counted_and_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    guard, clock = a_guard(requests_per_second=1.0, requests_burst=1)
    for _ in range(500):
        guard.visit("alice", "")
    for number in range(3000):
        guard.note("body_bytes", f"10.0.{number}")
    told = [record.getMessage() for record in caplog.records]
    assert len([line for line in told if "'alice'" in line]) == 1
    assert len(told) <= 1001, "of so many at once only the first are told by name"
    assert guard.counts()["requests_per_second"] == 499
    assert guard.counts()["body_bytes"] == 3000
    clock.time = 61.0
    guard.visit("alice", "")
    guard.visit("alice", "")
    assert len([record for record in caplog.records if "'alice'" in record.getMessage()]) == 2


@pytest.mark.parametrize("knob", sorted(Limits.class_own_traits(config=True)))
def test_what_is_no_limit_is_refused_by_the_knobs_name(knob: str) -> None:
    with pytest.raises(TraitError, match=rf"c\.Limits\.{knob}: -1.* is not valid.*0 for no limit"):
        Limits(config=Config({"Limits": {knob: -1}}))


@pytest.mark.parametrize("knobs", [{"unread_bytes": 5}, {"message_bytes": 200 << 20}])
def test_what_may_wait_unread_is_at_least_one_message(knobs: dict[str, int]) -> None:
    with pytest.raises(TraitError, match=r"leaves no room for one message.*Raise unread_bytes, or lower message_bytes"):
        Limits(config=Config({"Limits": knobs}))


@pytest.mark.parametrize(
    "knobs", [{"unread_bytes": 0, "message_bytes": 1 << 40}, {"unread_bytes": 300 << 20, "message_bytes": 200 << 20}]
)
def test_no_bound_at_all_or_one_for_large_messages_is_taken(knobs: dict[str, int]) -> None:
    assert Limits(config=Config({"Limits": knobs})).unread_bytes == knobs["unread_bytes"]
