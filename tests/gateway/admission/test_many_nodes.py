"""Admission over nodes whose agents dial in: it chooses a node, then its devices, and waits for none of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jupyter_aliquot.gateway.scheduling.cordons import Cordon
from jupyter_aliquot.gateway.scheduling.dry_run import Candidate, Outcome, QueueState, dry_run
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.provisioner.errors import NeverFitsError
from jupyter_aliquot.provisioner.resources import GpuShare, Grant, Request


def test_kernels_fill_one_node_after_the_other_and_the_next_one_waits(desk: Any, remote: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        first, second = remote.node(clock, "a"), remote.node(clock, "b")
        async with remote.place(clock, first, second) as place:
            assert await place.granted("k1", 60) == "a"
            assert await place.granted("k2", 60) == "b"
            assert await place.granted("k3", 40) == "a", "where it leaves the least"
            waiting = await place.ask("k4", 60)
            assert not waiting.done()
            assert place.admission.snapshot().queue[0].why.code.value == "gpu"
            release = asyncio.ensure_future(place.admission.release("k2"))
            await desk.settle()
            await release
            assert waiting.result().node == "b"
            assert (set(first.held), set(second.held)) == ({"k1", "k3"}, {"k4"})
            with pytest.raises(
                NeverFitsError, match="the nodes have 2 GPUs together, and those of a kernel are all on"
            ):
                await place.ask("k5", 200)
            with pytest.raises(NeverFitsError, match=r"Ask for less$"):
                await place.ask("k6", 300)

    asyncio.run(scenario())


def test_a_slow_agent_delays_its_own_kernels_alone(desk: Any, remote: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        slow, quick = remote.node(clock, "a"), remote.node(clock, "b")
        slow.answers.clear()
        async with remote.place(clock, slow, quick) as place:
            stuck = await place.ask("k1", 100)
            assert not stuck.done()
            assert await place.granted("k2", 50) == "b"
            assert await place.granted("k3", 50) == "b"
            behind = await place.ask("k4", 50)
            assert not behind.done(), "what is promised to k1 is not given twice"
            slow.answers.set()
            await desk.settle()
            assert stuck.result().node == "a"

    asyncio.run(scenario())


def test_an_unknown_node_keeps_its_kernels_and_gets_no_new_one(desk: Any, remote: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        first, second = remote.node(clock, "a", devices=2), remote.node(clock, "b")
        async with remote.place(clock, first, second) as place:
            assert await place.granted("k1", 100) == "b"
            assert await place.granted("k2", 100) == "a"
            first.go()
            await desk.settle()
            waiting = await place.ask("k3", 100)
            large = await place.ask("k4", 200)
            await clock.advance(600.0)
            assert not waiting.done()
            assert not large.done(), "the only node for it is unknown, not gone"
            assert {one.grant.kernel_id for one in place.admission.snapshot().holdings} == {"k1", "k2"}
            first.come_back(forgetful=True)
            await first.refresh()
            await desk.settle()
            assert waiting.result().node == "a"
            assert {"k2", "k3"} == set(first.held), "k2 was renewed before k3 was granted"
            assert all(one.is_confirmed for one in place.admission.snapshot().holdings)

    asyncio.run(scenario())


def test_a_kernel_whose_agent_is_lost_meanwhile_starts_elsewhere_and_leaves_nothing(desk: Any, remote: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        lost, other = remote.node(clock, "a"), remote.node(clock, "b")
        lost.answers.clear()
        async with remote.place(clock, lost, other) as place:
            future = await place.ask("k1", 100)
            held = await desk_reserves(lost, "k1")
            lost.go()
            lost.answers.set()
            await desk.settle()
            assert future.result().node == "b"
            assert set(lost.held) == {held}, "it had reserved before it went"
            lost.come_back(forgetful=False)
            await lost.refresh()
            await desk.settle()
            assert (set(lost.held), set(other.held)) == (set(), {"k1"})

    asyncio.run(scenario())


async def desk_reserves(node: Any, kernel_id: str) -> str:
    """Have a node hold a reservation whose answer the gateway never gets."""
    grant = node._place(KernelRef(kernel_id, "ada"), Request(GpuShare(100)), {f"GPU-{node.name}-0": 100})
    node.held[kernel_id] = grant
    return kernel_id


def test_a_release_of_a_lost_node_is_told_when_it_is_back(desk: Any, remote: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        node = remote.node(clock, "a")
        async with remote.place(clock, node) as place:
            assert await place.granted("k1", 100) == "a"
            node.go()
            await desk.settle()
            release = asyncio.ensure_future(place.admission.release("k1"))
            await desk.settle()
            await release
            assert place.admission.snapshot().holdings == ()
            node.come_back(forgetful=False)
            await node.refresh()
            await desk.settle()
            assert node.held == {}

    asyncio.run(scenario())


def test_a_cordoned_node_gets_nothing_and_the_others_do(desk: Any, remote: Any) -> None:
    async def scenario() -> None:
        clock, cordons = desk.clock(), {"a": Cordon("root", 0.0, "a new driver")}
        first, second = remote.node(clock, "a"), remote.node(clock, "b")
        async with remote.place(clock, first, second, cordon_of=cordons.get) as place:
            assert await place.granted("k1", 50) == "b"
            cordons["b"] = Cordon("root", 0.0, "", is_draining=False)
            place.admission.plan_again()
            waiting = await place.ask("k2", 50)
            assert not waiting.done()
            why = place.admission.snapshot().queue[0].why
            assert why.code.value == "cordoned"
            assert "the node a" in why.sentence
            del cordons["a"]
            place.admission.plan_again()
            await desk.settle()
            assert waiting.result().node == "a"

    asyncio.run(scenario())


def test_a_drained_node_has_its_own_kernels_leave(desk: Any, remote: Any) -> None:
    async def scenario() -> None:
        clock, cordons = desk.clock(), dict[str, Cordon]()
        first, second = remote.node(clock, "a"), remote.node(clock, "b")
        first.evicted, second.evicted = set(), set()
        async with remote.place(clock, first, second, cordon_of=cordons.get) as place:
            assert [await place.granted("k1", 100), await place.granted("k2", 100)] == ["a", "b"]
            cordons["b"] = Cordon("root", 0.0, "", is_draining=True)
            place.admission.plan_again()
            await desk.settle()
            await second.refresh()
            await desk.settle()
            assert (first.evicted, second.evicted) == (set(), {"k2"})
            held = {one.grant.kernel_id: one.is_evicted for one in place.admission.snapshot().holdings}
            assert held == {"k1": False, "k2": True}
            del cordons["b"]
            place.admission.plan_again()
            await desk.settle()
            assert second.evicted == set(), "it returned to its node"

    asyncio.run(scenario())


def test_a_kernel_grows_on_its_own_node(desk: Any, remote: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        first, second = remote.node(clock, "a"), remote.node(clock, "b")
        async with remote.place(clock, first, second) as place:
            assert await place.granted("k1", 50) == "a"
            assert await place.granted("k2", 25) == "a"
            grown = asyncio.ensure_future(place.admission.resize("k1", Request(GpuShare(75))))
            await desk.settle()
            assert isinstance(grown.result(), Grant)
            waits = asyncio.ensure_future(place.admission.resize("k1", Request(GpuShare(100))))
            await desk.settle()
            assert not isinstance(waits.result(), Grant), "the other node is no help"
            assert first.reserved(0) == 100

    asyncio.run(scenario())


def test_a_dry_run_counts_all_nodes(desk: Any, remote: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        first, second = remote.node(clock, "a"), remote.node(clock, "b", devices=2)
        async with remote.place(clock, first, second) as place:
            assert await place.granted("k1", 100) == "a"
            known = place.admission.snapshot()
            told = {
                size: dry_run(QueueState(known.ledger), Candidate("ada", Request(GpuShare(size))), 0.0).outcome
                for size in (100, 200, 300)
            }
            assert told == {100: Outcome.STARTS, 200: Outcome.STARTS, 300: Outcome.NEVER}
            second.go()
            place.admission.plan_again()
            await desk.settle()
            ledger = place.admission.snapshot().ledger
            assert dry_run(QueueState(ledger), Candidate("ada", Request(GpuShare(200))), 0.0).outcome is Outcome.QUEUED

    asyncio.run(scenario())
