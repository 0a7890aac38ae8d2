"""Budgets in admission: they are checked when a request comes, and again when its turn comes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from jupyter_aliquot.gateway.scheduling.admission import Admission, KernelRef
from jupyter_aliquot.gateway.scheduling.queue import QueueEntry
from jupyter_aliquot.provisioner.errors import LimitError, UnknownUseError
from jupyter_aliquot.provisioner.resources import GpuShare, Request


class Purse:
    """A budget of ann that a test uses up. It is needed for more GPUs than a kernel has."""

    is_empty = is_unknown = False

    def check(self, owner: str, teams: Iterable[str], request: Request, before: Request | None) -> None:
        if self.is_unknown:
            raise UnknownUseError(f"Requested {request.gpus} GPU, but it cannot be read")
        if self.is_empty and owner == "ann" and (before is None or request.gpus > before.gpus):
            raise LimitError(f"Requested {request.gpus} GPU, but the budget of {owner} is used up")


def a_request(hundredths: int) -> Request:
    return Request(GpuShare(hundredths))


@pytest.fixture
def purse() -> Purse:
    return Purse()


def test_a_request_whose_budget_was_used_up_while_it_waited_is_refused_at_its_turn(
    play: Any, settle: Any, purse: Purse
) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await admission.submit(KernelRef("first", "bob"), a_request(100))
        waits = admission.submit(KernelRef("waits", "ann"), a_request(100))
        behind = admission.submit(KernelRef("behind", "bob"), a_request(100))
        await settle()
        purse.is_empty = True
        admission.plan_again()
        await settle()
        assert not waits.done(), "it holds its place until its turn: the budget may renew first"
        await admission.release("first")
        await settle()
        with pytest.raises(LimitError, match="budget of ann is used up"):
            await waits
        assert behind.done(), "the next request has the capacity at once"
        assert set(agent.held) == {"behind"}

    play(scene, check_budget=purse.check)


def test_a_queue_is_not_lost_while_no_budget_can_be_read_and_new_requests_are_refused(
    play: Any, settle: Any, purse: Purse
) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await admission.submit(KernelRef("first", "bob"), a_request(100))
        waits = admission.submit(KernelRef("waits", "ann"), a_request(100))
        await settle()
        purse.is_unknown = True
        await admission.release("first")
        await settle()
        assert (await waits).kernel_id == "waits"
        with pytest.raises(UnknownUseError, match="cannot be read"):
            await admission.submit(KernelRef("new", "ann"), a_request(100))

    play(scene, check_budget=purse.check)


def test_a_kernel_does_not_grow_once_its_budget_is_used_up(play: Any, settle: Any, purse: Purse) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await admission.submit(KernelRef("first", "bob"), a_request(50))
        await admission.submit(KernelRef("grows", "ann"), a_request(50))
        told: list[Any] = []
        admission.observe_resizes(lambda *what: told.append(what))
        assert isinstance(await admission.resize("grows", a_request(100)), QueueEntry)
        purse.is_empty = True
        await admission.release("first")
        await settle()
        [(kernel_id, error)] = told
        assert (kernel_id, type(error)) == ("grows", LimitError)
        assert (agent.held["grows"].request.gpus, admission.snapshot().queue) == (GpuShare(50), ())

    play(scene, check_budget=purse.check)


def test_a_request_that_ended_its_predecessor_keeps_what_it_was_promised(play: Any, settle: Any, purse: Purse) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await admission.submit(KernelRef("old", "ann"), a_request(75))
        ended: list[str] = []
        new = KernelRef("new", "ann", replaces=frozenset({"old"}))
        waits = admission.submit(new, a_request(100), on_room_reserved=lambda: ended.append("old"))
        await settle()
        assert ended == ["old"]
        purse.is_empty = True
        await admission.release("old")
        await settle()
        assert (await waits).kernel_id == "new"

    play(scene, check_budget=purse.check)
