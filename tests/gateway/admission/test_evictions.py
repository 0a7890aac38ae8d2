"""Evictions from the request that needs one to the evicted kernel's return."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_aliquot.gateway.scheduling import admission as module
from jupyter_aliquot.gateway.scheduling.admission import Admission, KernelRef
from jupyter_aliquot.gateway.scheduling.planner import Plan
from jupyter_aliquot.gateway.scheduling.wait_reason import WaitCode
from jupyter_aliquot.gateway.teams.reading import read_quotas
from jupyter_aliquot.provisioner.errors import GrantError, WithdrawnError
from jupyter_aliquot.provisioner.resources import GpuShare, Grant, Request, WorkloadClass

TEAMS = "teams:\n  a: {users: [ann], nominalQuota: 1}\n  b: {users: [bob], nominalQuota: 1}\n"
QUOTAS = read_quotas(TEAMS, "aliquot.yaml")
ENDING = read_quotas(TEAMS.replace("[ann], ", "[ann], mayBeEnded: any, "), "aliquot.yaml")


def a_request(gpus: float) -> Request:
    return Request(GpuShare(round(100 * gpus)), None, WorkloadClass.PRODUCTION)


async def starts(admission: Admission, kernel_id: str, owner: str, gpus: float = 1) -> asyncio.Future[Grant]:
    return admission.submit(KernelRef(kernel_id, owner), a_request(gpus))


async def two_of_ann(admission: Admission, agent: Any, settle: Callable[[], Any]) -> None:
    """Let ann borrow the second GPU."""
    agent.evicted = set()
    for kernel_id in ("k1", "k2"):
        await (await starts(admission, kernel_id, "ann"))
    await settle()


def test_a_borrowed_gpu_goes_back_and_its_kernel_returns_when_it_is_free(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await two_of_ann(admission, agent, settle)
        agent.busy = {"k1", "k2"}
        owed = await starts(admission, "owed", "bob")
        await settle()
        assert len(agent.told_to_leave) == 1, "one is enough"
        (victim,) = agent.told_to_leave
        entry = admission.waiting("owed")
        assert entry is not None
        assert entry.why.code is WaitCode.EVICTING
        agent.busy = set()
        agent.let_leave()
        await settle()
        assert owed.done()
        snapshot = admission.snapshot()
        assert [(one.kernel_id, one.is_return) for one in snapshot.queue] == [(victim, True)]
        assert (snapshot.starts, snapshot.resizes) == ((), {}), "it runs, and changes no size"
        holding = snapshot.ledger.holdings[victim]
        assert holding.is_evicted
        assert "Evicted" in (holding.doubt or "")
        with pytest.raises(GrantError, match="is evicted"):
            await admission.resize(victim, a_request(0.5))
        await admission.release("owed")
        await settle()
        assert (agent.evicted, admission.snapshot().queue) == (set(), ())
        assert not admission.snapshot().ledger.holdings[victim].is_evicted

    play(scene, devices=2, quotas=lambda: QUOTAS)


def test_a_kernel_stays_if_the_request_goes_away_before_it_has_left(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await two_of_ann(admission, agent, settle)
        agent.busy = {"k1", "k2"}
        await starts(admission, "owed", "bob")
        await settle()
        assert agent.told_to_leave
        admission.withdraw("owed")
        await settle()
        assert not agent.told_to_leave
        assert not any(one.leaves_for for one in admission.snapshot().holdings)

    play(scene, devices=2, quotas=lambda: QUOTAS)


@pytest.mark.parametrize(("quotas", "want"), [(QUOTAS, []), (ENDING, ["k1"])])
def test_a_kernel_that_cannot_leave_ends_only_where_its_team_says_so(
    play: Any, settle: Any, quotas: Any, want: list[str]
) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        ended: list[str] = []
        admission.evictor.observe_ends(lambda kernel_id, why: ended.append(kernel_id))
        await two_of_ann(admission, agent, settle)
        agent.pinned = {"k1", "k2"}
        owed = await starts(admission, "owed", "bob")
        await settle()
        assert all(one.stays_because == "its memory stays on the GPU" for one in admission.snapshot().holdings)
        assert (sorted(ended), owed.done()) == (want, False)

    play(scene, devices=2, quotas=lambda: quotas)


def test_a_small_kernel_passes_a_large_request_and_leaves_when_that_can_start(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        agent.evicted = set()
        await (await starts(admission, "k1", "ann"))
        large = await starts(admission, "large", "bob", 2)
        await clock.advance(1)
        small = await starts(admission, "small", "ann", 0.25)
        await settle()
        assert (small.done(), large.done()) == (True, False)
        await admission.release("k1")
        await settle()
        assert large.done(), "it starts as soon as it would have without the small one"
        assert agent.evicted == {"small"}
        await admission.release("large")
        await settle()
        assert agent.evicted == set()

    play(scene, devices=2)


def test_an_evicted_kernel_waits_again_after_a_restart_of_the_gateway(play: Any, settle: Any, desk: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await two_of_ann(admission, agent, settle)
        await (await starts(admission, "owed", "bob"))
        await settle()
        holdings = admission.snapshot().holdings
        await admission.stop(leaves_kernels=True)
        async with desk.admission(agent, clock, quotas=lambda: QUOTAS) as again:
            for holding in holdings:
                again.adopt(holding)
            await settle()
            assert [one.is_return for one in again.snapshot().queue] == [True]
            await again.release("owed")
            await settle()
            assert agent.evicted == set()

    play(scene, devices=2, quotas=lambda: QUOTAS)


async def act(admission: Admission, agent: Any, dice: random.Random, alive: set[str], step: int) -> None:
    """Start or end a kernel, or let those leave that were told to."""
    kind = dice.randrange(5)
    if kind < 3:
        kernel_id = f"k{step}"
        future = admission.submit(
            KernelRef(kernel_id, dice.choice(["ann", "bob"])), a_request(dice.choice([0.25, 0.5, 1, 2]))
        )
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        alive.add(kernel_id)
    elif kind == 3 and alive:
        gone = dice.choice(sorted(alive))
        alive.discard(gone)
        await admission.release(gone)
    else:
        agent.busy = {one for one in agent.held if dice.random() < 0.3}
        agent.let_leave()


@pytest.mark.parametrize("seed", range(12))
def test_no_device_is_promised_twice_while_kernels_start_end_and_leave_at_once(desk: Any, seed: int) -> None:
    async def scene() -> None:
        dice, alive = random.Random(seed), set[str]()
        clock = desk.clock()
        agent = desk.agent(clock, 2, dice)
        agent.evicted = set()
        async with desk.admission(agent, clock, quotas=lambda: QUOTAS) as admission:
            for step in range(60):
                await act(admission, agent, dice, alive, step)
                for _ in range(dice.randrange(6)):
                    await asyncio.sleep(0)
                assert all(agent.reserved(index) <= 100 for index in range(2))
            agent.busy = set()
            agent.let_leave()
            for kernel_id in sorted(alive):
                await admission.release(kernel_id)
                await desk.settle()
            assert (agent.held, agent.evicted) == ({}, set())
            assert admission.snapshot().queue == ()
            assert admission.snapshot().holdings == ()

    asyncio.run(asyncio.wait_for(scene(), 30))


@pytest.mark.parametrize("is_swapped", [True, False], ids=["evicted", "ended"])
def test_no_kernel_leaves_for_a_request_that_left_while_it_was_planned(
    play: Any, settle: Any, monkeypatch: pytest.MonkeyPatch, is_swapped: bool
) -> None:
    made_for, told = list[str](), list[str]()

    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        admission.evictor.observe_ends(lambda kernel_id, why: told.append(kernel_id))
        await two_of_ann(admission, agent, settle)
        for kernel_id in () if is_swapped else ("k1", "k2"):
            admission.evictor._change(kernel_id, lambda one: one.stays(1e9, "its memory stays on the GPU"))
        real, evict = module.plan_beside, agent.evict

        async def overtaken(*asked: Any) -> Plan:
            made = await real(*asked)
            made_for.extend(one.wanted_by for one in made.evictions)
            admission.withdraw("owed")
            return made

        async def noted(kernel_id: str) -> None:
            told.append(kernel_id)
            await evict(kernel_id)

        agent.evict = noted
        monkeypatch.setattr(module, "plan_beside", overtaken)
        gone = await starts(admission, "owed", "bob")
        await settle()
        assert isinstance(gone.exception(), WithdrawnError)
        assert (made_for, told) == (["owed"], [])

    play(scene, devices=2, quotas=lambda: QUOTAS if is_swapped else ENDING)
