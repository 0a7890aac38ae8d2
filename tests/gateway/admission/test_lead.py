"""A replica that may not lead any more: it grants, evicts, resizes, renews and refuses nothing meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lead_by_hand import LeadByHand

from jupyter_aliquot.gateway.scheduling.admission import Admission, KernelRef
from jupyter_aliquot.gateway.scheduling.lending.reclaim import Evict
from jupyter_aliquot.gateway.scheduling.wait_reason import WaitCode
from jupyter_aliquot.gateway.teams.reading import read_quotas
from jupyter_aliquot.provisioner.resources import GpuShare, Grant, Request

QUOTAS = read_quotas(
    "teams:\n  a: {users: [ann], nominalQuota: 1, mayBeEnded: any}\n  b: {users: [bob], nominalQuota: 1}\n",
    "aliquot.yaml",
)
LOOK_AGAIN_SECONDS = 6.0


@pytest.fixture
def a_lead() -> LeadByHand:
    return LeadByHand()


def starts(admission: Admission, kernel_id: str, hundredths: int = 100, owner: str = "ann") -> asyncio.Future[Grant]:
    return admission.submit(KernelRef(kernel_id, owner), Request(GpuShare(hundredths)))


def test_nothing_is_granted_and_nothing_refused_until_it_leads_again(play: Any, settle: Any, a_lead: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        a_lead.is_held = False
        asked = starts(admission, "k1")
        await settle()
        await clock.advance(3600)
        assert (asked.done(), agent.held) == (False, {})
        entry = admission.waiting("k1")
        assert entry is not None
        assert entry.why.code is WaitCode.AGENT_UNAVAILABLE
        assert "cannot reach the Kubernetes API" in entry.why.sentence
        agent.go()
        await clock.advance(3600)
        assert not asked.done(), "an agent that is away refuses nothing, either"
        agent.come_back()
        a_lead.is_held = True
        await clock.advance(LOOK_AGAIN_SECONDS)
        assert asked.result().kernel_id == "k1"

    play(scene, lead=a_lead)


def test_a_request_whose_time_is_over_is_refused_by_the_replica_that_leads(play: Any, settle: Any, a_lead: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await starts(admission, "k1")
        late = starts(admission, "k2")
        await settle()
        a_lead.is_held = False
        await clock.advance(60)
        assert not late.done(), "another replica has it in its queue, too"
        a_lead.is_held = True
        await clock.advance(LOOK_AGAIN_SECONDS)
        assert late.exception() is not None

    play(scene, lead=a_lead, queue_timeout_seconds=30.0)


def test_a_plan_that_outlasts_the_lead_is_not_carried_out(play: Any, settle: Any, a_lead: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        for asked_before in range(3):
            # The cycle asks before the plan and after it, and the commit asks again: it leads no more then.
            a_lead.is_held, a_lead.answers = False, [True] * asked_before
            waiting = starts(admission, f"k{asked_before}", 10)
            await settle()
            assert agent.held == {}, f"it was asked {asked_before} times before"
            waiting.cancel()
            await settle()

    play(scene, lead=a_lead)


def test_no_kernel_is_evicted_or_ended_for_another(play: Any, settle: Any, a_lead: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        ended: list[str] = []
        admission.evictor.observe_ends(lambda kernel_id, why: ended.append(kernel_id))
        agent.evicted, agent.pinned = set(), {"k1"}
        for kernel_id in ("k1", "k2"):
            await starts(admission, kernel_id)
        a_lead.is_held = False
        owed = starts(admission, "owed", owner="bob")
        await settle()
        await clock.advance(400)
        assert (ended, agent.told_to_leave, owed.done()) == ([], set(), False)
        a_lead.is_held = True
        await clock.advance(LOOK_AGAIN_SECONDS)
        assert ended or agent.told_to_leave

    play(scene, devices=2, quotas=lambda: QUOTAS, lead=a_lead)


def test_a_lane_that_outlasts_the_lead_tells_no_eviction(play: Any, settle: Any, a_lead: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        agent.evicted = set()
        await starts(admission, "k1")
        a_lead.is_held = False
        await admission.evictor.carry_out(agent, "node", [Evict("k1", "owed")])
        assert agent.told_to_leave == set()
        a_lead.is_held = True
        await admission.evictor.carry_out(agent, "node", [Evict("k1", "owed")])
        assert agent.told_to_leave == {"k1"}

    play(scene, lead=a_lead)


def test_an_eviction_under_way_is_not_called_off(play: Any, settle: Any, a_lead: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        agent.evicted, agent.busy = set(), {"k1", "k2"}
        for kernel_id in ("k1", "k2"):
            await starts(admission, kernel_id)
        starts(admission, "owed", owner="bob")
        await settle()
        assert len(agent.told_to_leave) == 1
        a_lead.is_held = False
        admission.withdraw("owed")
        await clock.advance(LOOK_AGAIN_SECONDS)
        assert len(agent.told_to_leave) == 1, "the replica that leads may want it"
        a_lead.is_held = True
        await clock.advance(LOOK_AGAIN_SECONDS)
        assert not agent.told_to_leave

    play(scene, devices=2, quotas=lambda: QUOTAS, lead=a_lead)


def test_a_size_stays_and_an_evicted_kernel_does_not_return(play: Any, settle: Any, a_lead: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        agent.evicted = set()
        for kernel_id in ("k1", "k2"):
            await starts(admission, kernel_id)
        await starts(admission, "owed", owner="bob")
        await settle()
        (gone,), stays = agent.evicted, ({"k1", "k2"} - agent.evicted).pop()
        a_lead.is_held = False
        changing = asyncio.ensure_future(admission.resize(stays, Request(GpuShare(50))))
        await admission.release("owed")
        await settle()
        assert agent.held[stays].request.gpus.hundredths == 100
        assert agent.evicted == {gone}
        assert "owed" not in agent.held, "what has ended gives its GPU back"
        a_lead.is_held = True
        await clock.advance(LOOK_AGAIN_SECONDS)
        await changing
        assert agent.held[stays].request.gpus.hundredths == 50
        assert agent.evicted == set()

    play(scene, devices=2, quotas=lambda: QUOTAS, lead=a_lead)


def test_an_agent_that_comes_back_is_told_no_grant(play: Any, settle: Any, a_lead: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await starts(admission, "k1")
        a_lead.is_held = False
        agent.go()
        agent.come_back()
        await clock.advance(LOOK_AGAIN_SECONDS)
        assert agent.held == {}, "the kernel may have ended at another replica"
        a_lead.is_held = True
        await clock.advance(LOOK_AGAIN_SECONDS)
        assert set(agent.held) == {"k1"}

    play(scene, lead=a_lead)


def test_nodes_that_dial_in_are_asked_and_told_nothing(desk: Any, remote: Any, a_lead: Any) -> None:
    async def scene() -> None:
        clock = desk.clock()
        node = remote.node(clock, "a", 2)
        node.evicted = set()
        async with remote.place(clock, node, quotas=lambda: QUOTAS, lead=a_lead) as place:
            for kernel_id in ("k1", "k2"):
                assert await place.granted(kernel_id, 100, owner="ann") == "a"
            a_lead.is_held = False
            owed = await place.ask("owed", 100, owner="bob")
            await clock.advance(LOOK_AGAIN_SECONDS)
            assert (owed.done(), node.told_to_leave) == (False, set())
            node.go()
            node.come_back()
            await clock.advance(LOOK_AGAIN_SECONDS)
            assert node.held == {}
            a_lead.is_held = True
            await clock.advance(LOOK_AGAIN_SECONDS)
            await clock.advance(LOOK_AGAIN_SECONDS)
            assert owed.result().node == "a"

    asyncio.run(scene())


def test_what_an_agent_may_hold_is_released_by_the_replica_that_leads(desk: Any, a_lead: Any) -> None:
    async def scene() -> None:
        clock = desk.clock()
        agent = desk.agent(clock)
        async with desk.admission(agent, clock, lead=a_lead) as admission:
            asked = starts(admission, "k1")
            while True:
                await asyncio.sleep(0)
                if agent.held:
                    break
            agent.go()  # the answer is lost
            a_lead.is_held = False
            admission.withdraw("k1")
            agent.come_back(forgetful=False)
            await clock.advance(LOOK_AGAIN_SECONDS)
            assert asked.done()
            assert set(agent.held) == {"k1"}, "another replica may have granted it"
            a_lead.is_held = True
            await clock.advance(LOOK_AGAIN_SECONDS)
            assert agent.held == {}

    asyncio.run(scene())


def test_it_looks_again_every_few_seconds_while_it_does_not_lead(play: Any, settle: Any, a_lead: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await starts(admission, "k1")
        starts(admission, "k2")
        await settle()
        a_lead.is_held, asked = False, 0
        was_current = a_lead.is_current

        def is_current() -> bool:
            nonlocal asked
            asked += 1
            return bool(was_current())

        a_lead.is_current = is_current
        await clock.advance(60)  # the time of k2 is over, and the replica that leads refuses it
        asked = 0
        for _ in range(200):
            await asyncio.sleep(0)
        assert asked == 0, "no time goes by"
        await clock.advance(LOOK_AGAIN_SECONDS)
        assert asked > 0

    play(scene, lead=a_lead, queue_timeout_seconds=30.0)


def test_a_drain_that_nothing_waits_for_is_carried_out_once_it_leads_again(play: Any, settle: Any, a_lead: Any) -> None:
    going: set[str] = set()

    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        agent.evicted = set()
        grant = await starts(admission, "k1")
        await settle()
        a_lead.is_held = False
        going.update(quota.uuid for quota in grant.quotas)
        admission.plan_again()
        await settle()
        assert agent.told_to_leave == set()
        a_lead.is_held = True
        await clock.advance(LOOK_AGAIN_SECONDS)
        assert agent.told_to_leave | agent.evicted == {"k1"}

    play(scene, devices=2, lead=a_lead, leaving_devices=lambda: frozenset(going))
