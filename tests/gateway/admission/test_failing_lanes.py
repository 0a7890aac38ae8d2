"""Agents that dial in and refuse, fail or leave: admission waits for them, and asks nothing in vain at full speed."""

from __future__ import annotations

import asyncio
from typing import Any

from jupyter_aliquot.gateway.scheduling.admission import Admission
from jupyter_aliquot.gateway.scheduling.cordons import Cordon
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.provisioner.errors import AgentUnavailableError, AliquotError, NoRoomError
from jupyter_aliquot.provisioner.resources import GpuShare, Grant, Request


def count_calls(node: Any, call: str, error: AliquotError | None = None) -> list[int]:
    """Return a list that grows with each such call of the agent; with *error* the call fails."""
    calls: list[int] = []
    original = getattr(node, call)

    async def counted(*asked: Any) -> Any:
        calls.append(1)
        await asyncio.sleep(0)
        if error is not None:
            raise error
        return await original(*asked)

    setattr(node, call, counted)
    return calls


def test_an_agent_that_refuses_is_asked_again_after_a_time_or_once_it_tells_something_else(
    desk: Any, remote: Any
) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        node = remote.node(clock, "a")
        async with remote.place(clock, node) as place:
            calls = count_calls(node, "reserve", NoRoomError("others have it"))
            await place.ask("k1", 100)
            for _ in range(5):
                await desk.settle()
            assert len(calls) == 1
            assert "others have it" in place.admission.snapshot().queue[0].why.sentence
            await clock.advance(6.0)
            assert len(calls) == 2
            node.held["other"] = node._place(KernelRef("other", "x"), Request(GpuShare(25)), {"GPU-a-0": 25})
            await node.refresh()
            place.admission.withdraw("k1")
            await place.ask("k2", 50)
            assert len(calls) == 3, "its answer has changed, and k2 has room by it"

    asyncio.run(scenario())


def test_an_agent_that_fails_is_asked_again_after_a_time(desk: Any, remote: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        node = remote.node(clock, "a")
        async with remote.place(clock, node) as place:
            calls = count_calls(node, "refresh", AgentUnavailableError("it does not answer"))
            granted = await place.ask("k1", 50)
            waiting = await place.ask("k2", 50)
            for _ in range(5):
                await desk.settle()
            assert granted.done()
            assert len(calls) == 1
            assert not waiting.done()
            await clock.advance(6.0)
            assert waiting.done()

    asyncio.run(scenario())


def test_a_kernel_that_leaves_slowly_has_its_agent_told_once(desk: Any, remote: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        node = remote.node(clock, "a")
        node.evicted, node.busy = set(), {"k1"}
        cordons: dict[str, Cordon] = {}
        async with remote.place(clock, node, cordon_of=cordons.get) as place:
            assert await place.granted("k1", 100) == "a"
            cordons["a"] = Cordon("root", 0.0, "", is_draining=True)
            place.admission.plan_again()
            await desk.settle()
            assert node.told_to_leave == {"k1"}
            await node.refresh()
            await desk.settle()
            calls = count_calls(node, "refresh")
            for _ in range(5):
                await desk.settle()
            assert len(calls) <= 1
            node.busy.clear()
            node.let_leave()
            await node.refresh()
            await desk.settle()
            assert [one.is_evicted for one in place.admission.snapshot().holdings] == [True]

    asyncio.run(scenario())


def test_admission_sleeps_while_its_own_agent_is_away_for_long(desk: Any, remote: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        node, own = remote.node(clock, "a"), desk.agent(clock)
        async with remote.place(clock, node, own=own, agent_loss_seconds=30.0) as place:
            assert await place.granted("k1", 100) == "node"
            assert await place.granted("k2", 100) == "a"
            waiting = await place.ask("k3", 100)
            own.go()
            await clock.advance(31.0)
            assert await cycles_of(place.admission, desk) == 0
            release = asyncio.ensure_future(place.admission.release("k2"))
            await desk.settle()
            await release
            assert waiting.result().node == "a"

    asyncio.run(scenario())


def test_admission_sleeps_while_an_agent_is_asked_for_a_request_whose_time_is_over(desk: Any, remote: Any) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        node = remote.node(clock, "a")
        node.answers.clear()
        async with remote.place(clock, node, queue_timeout_seconds=10.0) as place:
            waiting = await place.ask("k1", 100)
            await clock.advance(11.0)
            assert await cycles_of(place.admission, desk) == 0
            node.answers.set()
            await desk.settle()
            assert isinstance(waiting.result(), Grant)

    asyncio.run(scenario())


async def cycles_of(admission: Admission, desk: Any) -> int:
    """Return how many cycles there are while nothing happens."""
    seen: list[int] = []
    end = admission.observe(lambda: seen.append(1))
    for _ in range(3):
        await desk.settle()
    end()
    return len(seen)
