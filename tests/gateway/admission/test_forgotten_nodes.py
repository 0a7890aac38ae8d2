"""Nodes that are forgotten, come back, or become the gateway's own: what ended there is released in the end."""

from __future__ import annotations

import asyncio
from typing import Any

from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.provisioner.resources import GpuShare, Request


async def released(place: Any, desk: Any, kernel_id: str) -> bool:
    """Release a kernel, and return whether that is done without another event."""
    release = asyncio.ensure_future(place.admission.release(kernel_id))
    await desk.settle()
    is_done = release.done()
    release.cancel()
    return is_done


def test_the_gateways_own_node_has_no_lane_although_it_dialed_in_once(desk: Any, remote: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        own, before = desk.agent(clock), remote.node(clock, "node")
        before.unavailable_since = 0.0
        async with remote.place(clock, before, own=own, is_known=False) as place:
            assert await place.granted("k1", 100) == "node"
            own.come_back()
            await desk.settle()
            assert set(own.held) == {"k1"}, "it was renewed"
            assert await released(place, desk, "k1")
            assert own.held == {}
            assert await place.granted("k2", 100) == "node"
            assert place.admission.ledger.is_complete

    asyncio.run(scenario())


def test_a_kernel_that_ends_on_a_forgotten_node_is_released_when_the_node_is_back(desk: Any, remote: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        own, node = desk.agent(clock), remote.node(clock, "a")
        async with remote.place(clock, node, own=own) as place:
            assert [await place.granted("k1", 100), await place.granted("k2", 100)] == ["node", "a"]
            del place.nodes["a"]
            node.go()
            assert await released(place, desk, "k2")
            assert place.admission.snapshot().releasing == frozenset(), "it may start elsewhere"
            place.nodes["a"] = node
            node.come_back(forgetful=False)
            await node.refresh()
            place.admission.plan_again()
            await desk.settle()
            assert (set(own.held), set(node.held)) == ({"k1"}, set())

    asyncio.run(scenario())


def test_what_a_forgotten_node_may_have_reserved_is_released_by_its_next_agent(desk: Any, remote: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        node, again = remote.node(clock, "a"), remote.node(clock, "a")
        node.answers.clear()
        async with remote.place(clock, node) as place:
            waiting = await place.ask("k1", 100)
            del place.nodes["a"]
            place.admission.plan_again()
            await desk.settle()
            node.go()
            node.answers.set()
            await desk.settle()
            waiting.cancel()
            again.held["k1"] = again._place(KernelRef("k1", "ada"), Request(GpuShare(100)), {"GPU-a-0": 100})
            await again.refresh()
            place.nodes["a"] = again
            place.admission.plan_again()
            await desk.settle()
            assert again.held == {}

    asyncio.run(scenario())


def test_a_gateway_that_stops_releases_what_an_agent_was_asked_for(desk: Any, remote: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        own, node = desk.agent(clock), remote.node(clock, "a")
        async with remote.place(clock, node, own=own) as place:
            assert await place.granted("k1", 100) == "node"
            never, reserve = asyncio.Event(), node.reserve

            async def unanswered(*asked: Any) -> None:
                await reserve(*asked)
                await never.wait()

            node.reserve = unanswered
            waiting = await place.ask("k2", 100)
            assert set(node.held) == {"k2"}
            await place.admission.stop(leaves_kernels=True)
            assert node.held == {}
            assert not waiting.done()
            assert set(own.held) == {"k1"}

    asyncio.run(scenario())


def test_a_kernel_whose_own_agent_is_lost_meanwhile_starts_on_another_node(desk: Any, remote: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        own, node = desk.agent(clock), remote.node(clock, "a")
        async with remote.place(clock, node, own=own) as place:
            assert await place.granted("k1", 100) == "node"
            assert await released(place, desk, "k1")
            lost, reserve = asyncio.Event(), own.reserve

            async def unanswered(*asked: Any) -> Any:
                own.held["k2"] = own._place(*asked)
                await lost.wait()
                return await reserve(*asked)

            own.reserve = unanswered
            large = await place.ask("k2", 100)
            own.go()
            lost.set()
            await desk.settle()
            assert large.result().node == "a"
            own.reserve = reserve
            own.come_back(forgetful=False)
            await desk.settle()
            assert (set(own.held), set(node.held)) == (set(), {"k2"})

    asyncio.run(scenario())
