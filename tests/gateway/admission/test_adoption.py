"""Admission after its gateway's restart: holdings come first, queued requests keep their place."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from jupyter_aliquot.gateway.scheduling.admission import Admission, AdmissionSettings
from jupyter_aliquot.gateway.scheduling.ledger import Holding, KernelRef
from jupyter_aliquot.gateway.scheduling.lending.tenure import Tenure, tenure_of
from jupyter_aliquot.provisioner.errors import QueueTimeoutError
from jupyter_aliquot.provisioner.resources import GpuShare, Request

Scene = Callable[[Admission, Any, Any], Awaitable[None]]


@pytest.fixture
def play(desk: Any) -> Callable[..., None]:
    """Run a scene with an admission that has not started, its agent and its clock."""

    def run(scene: Scene, **settings: Any) -> None:
        async def act() -> None:
            clock = desk.clock()
            agent = desk.agent(clock)
            admission = Admission(agent, clock, AdmissionSettings(**settings))
            try:
                await asyncio.wait_for(scene(admission, agent, clock), 10)
            finally:
                await admission.stop()

        asyncio.run(act())

    return run


def requester(name: str) -> KernelRef:
    return KernelRef(name, "ada", f"{name}.ipynb", "python3")


def half() -> Request:
    return Request(GpuShare(50))


def holdings(admission: Admission) -> dict[str, bool]:
    return {holding.grant.kernel_id: holding.is_confirmed for holding in admission.snapshot().holdings}


async def granted_before(agent: Any, name: str) -> Holding:
    """Return the holding of an earlier gateway's grant, as its kernel's record has it."""
    return Holding(await agent.reserve(requester(name), half(), {"GPU-0": 50}), requester(name), 7.0)


def test_an_adopted_holding_is_doubtful_until_the_agent_renewed_it(play: Any, desk: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        admission.adopt(await granted_before(agent, "a"))
        assert holdings(admission) == {"a": False}
        await admission.start()
        await desk.settle()
        assert holdings(admission) == {"a": True}
        assert admission.snapshot().holdings[0].since == 7.0
        await admission.release("a")
        assert (holdings(admission), agent.held) == ({}, {})

    play(scene)


def test_an_agent_that_died_meanwhile_hears_of_what_is_held_before_anybody_else(play: Any, desk: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        old = await granted_before(agent, "a")
        agent.held.clear()
        waiting = [admission.submit(requester(name), half()) for name in ("x", "y")]
        admission.adopt(old)
        await admission.start()
        await desk.settle()
        assert set(agent.held) == {"a", "x"}
        assert [future.done() for future in waiting] == [True, False]

    play(scene)


def test_room_of_a_holding_that_cannot_be_renewed_yet_is_nobody_elses(play: Any, desk: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        old = await granted_before(agent, "a")
        agent.go()
        admission.adopt(replace(old))
        other = admission.submit(requester("x"), Request(GpuShare(100)))
        await admission.start()
        agent.come_back(forgetful=True)
        await desk.settle()
        assert not other.done()
        assert set(agent.held) == {"a"}

    play(scene)


def test_who_waited_before_keeps_the_place_by_time(play: Any, desk: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await clock.advance(100)
        new = admission.submit(requester("new"), half())
        eldest = admission.submit(requester("eldest"), half(), waits_since=clock.wall() - 60)
        elder = admission.submit(requester("elder"), half(), waits_since=clock.wall() - 30)
        queue = admission.snapshot().queue
        assert [entry.kernel_id for entry in queue] == ["eldest", "elder", "new"]
        assert [round(clock.wall() - entry.since) for entry in queue] == [60, 30, 0]
        await admission.start()
        await desk.settle()
        assert [future.done() for future in (eldest, elder, new)] == [True, True, False]

    play(scene)


def test_the_time_without_a_gateway_does_not_count_against_patience(play: Any, desk: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await agent.reserve(requester("holder"), Request(GpuShare(100)), {"GPU-0": 100})
        await clock.advance(1000)
        waiting = admission.submit(requester("x"), half(), waits_since=clock.wall() - 900)
        await admission.start()
        await desk.settle()
        await clock.advance(50)
        assert not waiting.done()
        await clock.advance(11)
        assert isinstance(waiting.exception(), QueueTimeoutError)

    play(scene, queue_timeout_seconds=60.0)


def test_a_queue_that_is_left_is_neither_withdrawn_nor_granted(play: Any, desk: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        held = admission.submit(requester("a"), Request(GpuShare(100)))
        waiting = admission.submit(requester("b"), half())
        await admission.start()
        await desk.settle()
        await admission.stop(leaves_kernels=True)
        await desk.settle()
        assert (held.done(), waiting.done()) == (True, False)
        assert set(agent.held) == {"a"}

    play(scene)


async def backfilled(desk: Any, clock: Any, agent: Any) -> tuple[list[Holding], dict[str, Tenure]]:
    """Return the grants of an earlier gateway, in which *small* passed *large*, and what it kept of them."""
    async with desk.admission(agent, clock) as earlier:
        await earlier.submit(requester("first"), Request(GpuShare(100)))
        earlier.submit(requester("large"), Request(GpuShare(200)))
        await clock.advance(1)
        await earlier.submit(requester("small"), half())
        kept = list(earlier.snapshot().holdings)
        await earlier.stop(leaves_kernels=True)
    return kept, {one.grant.kernel_id: tenure_of(one, clock.wall() - clock.now()) for one in kept}


@pytest.mark.parametrize("comes_again", [True, False])
def test_a_kernel_that_passed_another_still_leaves_for_it_after_a_restart(desk: Any, *, comes_again: bool) -> None:
    async def act() -> None:
        clock = desk.clock()
        agent = desk.agent(clock, 2)
        agent.evicted = set()
        kept, tenures = await backfilled(desk, clock, agent)
        assert tenures["small"].passed == ("large",)
        again = Admission(agent, clock, AdmissionSettings(tenure_of=tenures.get))
        for one in kept:
            again.adopt(Holding(one.grant, one.requester, one.since))
        again.expect("large")
        await again.start()
        await desk.settle()
        # Recovery queues it again, or gives it up, when the first cycles are over.
        if comes_again:
            again.submit(requester("large"), Request(GpuShare(200)), waits_since=1e9)
        else:
            await again.release("large")
        await again.release("first")
        await desk.settle()
        await clock.advance(10)
        assert agent.evicted == ({"small"} if comes_again else set())
        assert comes_again == ("large" in holdings(again))
        # Once no request waits that it passed, it is a kernel as others are.
        assert not again.snapshot().ledger.holdings["small"].is_backfilled
        await again.stop()

    asyncio.run(act())


def test_a_kernel_that_passed_an_evicted_one_still_leaves_for_it_after_a_restart(desk: Any) -> None:
    async def act() -> None:
        clock = desk.clock()
        agent = desk.agent(clock)
        agent.evicted = set()
        old = [await agent.reserve(requester("evicted"), Request(GpuShare(100)), {"GPU-0": 100})]
        agent.evicted.add("evicted")
        old.append(await agent.reserve(requester("small"), half(), {"GPU-0": 50}))
        now = clock.wall()
        tenures = {"evicted": Tenure(now - 10, left_for="owed"), "small": Tenure(now - 1, passed=("evicted",))}
        again = Admission(agent, clock, AdmissionSettings(tenure_of=tenures.get))
        for grant, seconds in zip(old, (10, 1), strict=True):
            again.adopt(Holding(grant, requester(grant.kernel_id), now - seconds))
        await again.start()
        await desk.settle()
        assert agent.evicted == {"small"}, "the evicted kernel has its GPU back"
        await again.stop()

    asyncio.run(act())
