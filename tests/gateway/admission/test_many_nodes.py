"""Admission over nodes whose agents dial in: it chooses a node, then its devices, and waits for none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from jupyter_aliquot.gateway.scheduling.admission import Admission, AdmissionSettings
from jupyter_aliquot.gateway.scheduling.agents.lanes import NoLocalAgent, RemoteAgent
from jupyter_aliquot.gateway.scheduling.cordons import Cordon
from jupyter_aliquot.gateway.scheduling.dry_run import Candidate, Outcome, QueueState, dry_run
from jupyter_aliquot.gateway.scheduling.ledger import Device, KernelRef, Node
from jupyter_aliquot.provisioner.errors import AgentUnavailableError, NeverFitsError
from jupyter_aliquot.provisioner.resources import GpuShare, Grant, Request


def make_node(desk: Any, clock: Any, name: str, devices: int = 1) -> Any:
    """Return a node's agent that a test moves by hand; its devices are of its own."""

    class HandNode(desk.agent):
        def __init__(self) -> None:
            super().__init__(clock, devices)
            self.name = name
            self.last: Node | None = None
            self.answers = asyncio.Event()
            self.answers.set()

        async def refresh(self) -> None:
            self.last = replace(await self.status(), name=name)
            self.tell()

        def go(self) -> None:
            self.last = None if self.last is None else replace(self.last, is_away=True)
            super().go()

        async def reserve(self, requester: KernelRef, request: Request, placement: Mapping[str, int]) -> Grant:
            await self.answers.wait()
            if self.unavailable_since is not None:
                raise AgentUnavailableError("it went away")
            return await super().reserve(requester, request, placement)

        def _device(self, index: int) -> Device:
            return replace(super()._device(index), uuid=f"GPU-{name}-{index}")

        def _place(self, *asked: Any) -> Grant:
            return replace(super()._place(*asked), node=name)

    return HandNode()


class Nodes:
    """The nodes that have registered."""

    def __init__(self, *nodes: Any) -> None:
        self.nodes = {one.name: one for one in nodes}

    def agents(self) -> Mapping[str, RemoteAgent]:
        return self.nodes

    def listen(self, listener: Callable[[], None]) -> None:
        for one in self.nodes.values():
            one.listen(listener)


class Place:
    """An admission over some nodes, without a node of its own."""

    def __init__(self, desk: Any, admission: Admission, nodes: Mapping[str, Any]) -> None:
        self._desk = desk
        self.admission, self.nodes = admission, nodes

    async def ask(self, kernel_id: str, hundredths: int, **fields: Any) -> asyncio.Future[Grant]:
        future = self.admission.submit(
            KernelRef(kernel_id, fields.pop("owner", "ada"), **fields), Request(GpuShare(hundredths))
        )
        await self._desk.settle()
        return future

    async def granted(self, kernel_id: str, hundredths: int, **fields: Any) -> str:
        """Return the node of a kernel that starts at once."""
        future = await self.ask(kernel_id, hundredths, **fields)
        assert future.done(), self.admission.snapshot().queue
        return future.result().node


@asynccontextmanager
async def a_place(desk: Any, clock: Any, *made: Any, **settings: Any) -> Any:
    for one in made:
        await one.refresh()
    admission = Admission(NoLocalAgent(), clock, AdmissionSettings(**settings), remote=Nodes(*made))
    await admission.start()
    await desk.settle()
    try:
        yield Place(desk, admission, {one.name: one for one in made})
    finally:
        await admission.stop()


def test_kernels_fill_one_node_after_the_other_and_the_next_one_waits(desk: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        first, second = make_node(desk, clock, "a"), make_node(desk, clock, "b")
        async with a_place(desk, clock, first, second) as place:
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
            with pytest.raises(NeverFitsError):
                await place.ask("k5", 200)

    asyncio.run(scenario())


def test_a_slow_agent_delays_its_own_kernels_alone(desk: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        slow, quick = make_node(desk, clock, "a"), make_node(desk, clock, "b")
        slow.answers.clear()
        async with a_place(desk, clock, slow, quick) as place:
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


def test_an_unknown_node_keeps_its_kernels_and_gets_no_new_one(desk: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        first, second = make_node(desk, clock, "a", devices=2), make_node(desk, clock, "b")
        async with a_place(desk, clock, first, second) as place:
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


def test_a_kernel_whose_agent_is_lost_meanwhile_starts_elsewhere_and_leaves_nothing_behind(desk: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        lost, other = make_node(desk, clock, "a"), make_node(desk, clock, "b")
        lost.answers.clear()
        async with a_place(desk, clock, lost, other) as place:
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


def test_a_release_of_a_lost_node_is_told_when_it_is_back(desk: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        node = make_node(desk, clock, "a")
        async with a_place(desk, clock, node) as place:
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


def test_a_cordoned_node_gets_nothing_and_the_others_do(desk: Any) -> None:
    async def scenario() -> None:
        clock, cordons = desk.clock(), {"a": Cordon("root", 0.0, "a new driver")}
        first, second = make_node(desk, clock, "a"), make_node(desk, clock, "b")
        async with a_place(desk, clock, first, second, cordon_of=cordons.get) as place:
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


def test_a_drained_node_has_its_own_kernels_leave(desk: Any) -> None:
    async def scenario() -> None:
        clock, cordons = desk.clock(), dict[str, Cordon]()
        first, second = make_node(desk, clock, "a"), make_node(desk, clock, "b")
        first.evicted, second.evicted = set(), set()
        async with a_place(desk, clock, first, second, cordon_of=cordons.get) as place:
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


def test_a_kernel_grows_on_its_own_node(desk: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        first, second = make_node(desk, clock, "a"), make_node(desk, clock, "b")
        async with a_place(desk, clock, first, second) as place:
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


def test_a_dry_run_counts_all_nodes(desk: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        first, second = make_node(desk, clock, "a"), make_node(desk, clock, "b", devices=2)
        async with a_place(desk, clock, first, second) as place:
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
