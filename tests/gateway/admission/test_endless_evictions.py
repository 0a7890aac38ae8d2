"""Evictions that the agent accepted or refused, and that come to no end by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_aliquot.gateway.scheduling.admission import Admission, KernelRef
from jupyter_aliquot.gateway.scheduling.ledger import Holding, Leaving
from jupyter_aliquot.gateway.scheduling.lending.evicting import EVICTION_SECONDS, STAYS_SECONDS
from jupyter_aliquot.gateway.scheduling.lending.tenure import tenure_of
from jupyter_aliquot.gateway.teams.reading import read_quotas
from jupyter_aliquot.provisioner.errors import NoRoomError
from jupyter_aliquot.provisioner.resources import GpuShare, Grant, Request, WorkloadClass

TEAMS = "teams:\n  a: {users: [ann], nominalQuota: 1}\n  b: {users: [bob], nominalQuota: 1}\n"
QUOTAS = read_quotas(TEAMS, "aliquot.yaml")
ENDING = read_quotas(TEAMS.replace("[ann], ", "[ann], mayBeEnded: any, "), "aliquot.yaml")


async def starts(admission: Admission, kernel_id: str, owner: str, gpus: float = 1) -> asyncio.Future[Grant]:
    request = Request(GpuShare(round(100 * gpus)), None, WorkloadClass.PRODUCTION)
    return admission.submit(KernelRef(kernel_id, owner), request)


async def two_of_ann_and_one_of_bob(admission: Admission, agent: Any, settle: Callable[[], Any]) -> Any:
    """Let ann borrow the second GPU, keep both kernels busy, and have bob ask for his own."""
    agent.evicted = set()
    for kernel_id in ("k1", "k2"):
        await (await starts(admission, kernel_id, "ann"))
    await settle()
    agent.busy = {"k1", "k2"}
    return await starts(admission, "owed", "bob")


def stays(admission: Admission) -> dict[str, str]:
    return {one.grant.kernel_id: one.stays_because for one in admission.snapshot().holdings if one.stays_because}


def test_another_kernel_is_taken_where_one_does_not_leave_in_time(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        owed = await two_of_ann_and_one_of_bob(admission, agent, settle)
        await settle()
        (first,) = agent.told_to_leave
        agent.leaving[first] = Leaving(EVICTION_SECONDS - 1, refusal="host memory is full")
        await clock.advance(5)
        assert agent.told_to_leave == {first}, "it has time"
        agent.leaving[first] = Leaving(EVICTION_SECONDS, is_moving=True)
        await clock.advance(5)
        assert agent.told_to_leave == {first}, "its memory moves"
        agent.leaving[first] = Leaving(EVICTION_SECONDS, refusal="host memory is full")
        agent.busy = {first}
        await clock.advance(5)
        assert owed.done(), "the other one left for it"
        assert agent.evicted == {"k1", "k2"} - {first}
        assert stays(admission) == {first: "host memory is full"}

    play(scene, devices=2, quotas=lambda: QUOTAS)


def test_a_kernel_that_cannot_leave_any_more_is_given_up_at_once(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        owed = await two_of_ann_and_one_of_bob(admission, agent, settle)
        await settle()
        (first,) = agent.told_to_leave
        agent.leaving[first] = Leaving(1, stays_because="stays on GPU: NCCL")
        agent.busy = {first}
        await clock.advance(5)
        assert (owed.done(), stays(admission)) == (True, {first: "stays on GPU: NCCL"})

    play(scene, devices=2, quotas=lambda: QUOTAS)


def test_a_kernel_that_could_not_leave_is_tried_again_later(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        agent.pinned = {"k1", "k2"}
        owed = await two_of_ann_and_one_of_bob(admission, agent, settle)
        await settle()
        assert (sorted(stays(admission)), owed.done()) == (["k1", "k2"], False)
        agent.pinned, agent.busy = set(), set()
        await clock.advance(STAYS_SECONDS - 1)
        assert not owed.done()
        await clock.advance(5)
        assert (stays(admission), owed.done()) == ({}, True)

    play(scene, devices=2, quotas=lambda: QUOTAS)


@pytest.mark.parametrize(("quotas", "want"), [(QUOTAS, 0), (ENDING, 1)])
def test_a_kernel_that_did_not_leave_in_time_ends_where_its_team_says_so(
    play: Any, settle: Any, quotas: Any, want: int
) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        ended: list[str] = []
        admission.evictor.observe_ends(lambda kernel_id, why: ended.append(f"{kernel_id}: {why}"))
        await two_of_ann_and_one_of_bob(admission, agent, settle)
        await settle()
        for kernel_id in ("k1", "k2"):
            agent.leaving[kernel_id] = Leaving(EVICTION_SECONDS, refusal="it does not answer")
        for _ in range(4):
            await clock.advance(5)
        assert len(ended) == want, "once"
        assert all("it does not answer" in one for one in ended)

    play(scene, devices=2, quotas=lambda: quotas)


def test_a_kernel_whose_copy_has_no_room_is_not_ended_and_is_tried_again(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        ended: list[str] = []
        admission.evictor.observe_ends(lambda kernel_id, why: ended.append(kernel_id))
        told = agent.evict

        async def has_no_room(kernel_id: str) -> None:
            raise NoRoomError("copies would take more than the host has")

        agent.evict = has_no_room
        owed = await two_of_ann_and_one_of_bob(admission, agent, settle)
        await settle()
        assert all(one.is_spared for one in admission.snapshot().holdings)
        agent.evict, agent.busy = told, set()
        await clock.advance(5)
        assert not owed.done()
        await clock.advance(30)
        await clock.advance(5)
        assert (ended, owed.done()) == ([], True)

    play(scene, devices=2, quotas=lambda: ENDING)


def test_an_eviction_of_an_earlier_gateway_is_called_off_where_no_request_needs_it(
    play: Any, settle: Any, desk: Any
) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await two_of_ann_and_one_of_bob(admission, agent, settle)
        await settle()
        holdings = admission.snapshot().holdings
        assert agent.told_to_leave
        await admission.stop(leaves_kernels=True)
        async with desk.admission(agent, clock, quotas=lambda: QUOTAS) as again:
            for holding in holdings:
                again.adopt(Holding(holding.grant, holding.requester, holding.since))
            await settle()
            assert (agent.told_to_leave, agent.evicted) == (set(), set())
            assert not any(one.leaves_for for one in again.snapshot().holdings)

    play(scene, devices=2, quotas=lambda: QUOTAS)


def test_an_eviction_of_an_earlier_gateway_goes_on_for_the_request_that_waits_again(
    play: Any, settle: Any, desk: Any
) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await two_of_ann_and_one_of_bob(admission, agent, settle)
        await settle()
        holdings, told = admission.snapshot().holdings, set(agent.told_to_leave)
        await admission.stop(leaves_kernels=True)
        async with desk.admission(agent, clock, quotas=lambda: QUOTAS) as again:
            owed = await starts(again, "owed", "bob")
            for holding in holdings:
                again.adopt(Holding(holding.grant, holding.requester, holding.since))
            await settle()
            assert agent.told_to_leave == told, "the same kernel leaves"
            assert {one.leaves_for for one in again.snapshot().holdings} == {"owed", ""}
            agent.busy = set()
            agent.let_leave()
            await settle()
            assert owed.done()

    play(scene, devices=2, quotas=lambda: QUOTAS)


def test_a_kernel_counts_as_backfilled_only_while_a_request_waits_that_it_passed(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        agent.evicted = set()
        await (await starts(admission, "k1", "ann"))
        await starts(admission, "large", "bob", 2)
        await clock.advance(1)
        await (await starts(admission, "small", "ann", 0.25))
        await settle()
        assert admission.snapshot().ledger.holdings["small"].passed == {"large"}
        admission.withdraw("large")
        await settle()
        assert not admission.snapshot().ledger.holdings["small"].is_backfilled

    play(scene, devices=2)


def test_the_least_time_of_a_borrowing_kernel_counts_over_a_restart(play: Any, settle: Any, desk: Any) -> None:
    quotas = read_quotas(TEAMS.replace("[ann], ", "[ann], reclaimMinRuntime: 60s, "), "aliquot.yaml")

    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        agent.evicted = set()
        for kernel_id in ("k1", "k2"):
            await (await starts(admission, kernel_id, "ann"))
        await clock.advance(20)
        holdings = admission.snapshot().ledger.holdings
        offset = clock.wall() - clock.now()
        known = {kernel_id: tenure_of(one, offset) for kernel_id, one in holdings.items()}
        await admission.stop(leaves_kernels=True)
        async with desk.admission(agent, clock, quotas=lambda: quotas, tenure_of=known.get) as again:
            for holding in holdings.values():
                again.adopt(Holding(holding.grant, holding.requester, holding.since))
            owed = await starts(again, "owed", "bob")
            await clock.advance(39)
            assert (agent.told_to_leave, owed.done()) == (set(), False)
            await clock.advance(6)
            assert owed.done()

    play(scene, devices=2, quotas=lambda: quotas)
