"""Starts that come before the gateway has reached its node agent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jupyter_aliquot.gateway.scheduling.admission import Admission, AdmissionSettings
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.provisioner.errors import NeverFitsError
from jupyter_aliquot.provisioner.resources import GpuShare, Request

ASKER = KernelRef("", "ada", "", "python3")
LARGE = Request(GpuShare(300))


class Scene:
    """A gateway that has just begun, and has not yet reached its agent.

    ``waiting`` is a start that waits for the agent's first answer.
    """

    def __init__(self, desk: Any) -> None:
        self.settle, self.clock = desk.settle, desk.clock()
        self.agent = desk.agent(self.clock)
        self.agent.connections, self.agent.unavailable_since, self.agent.message = 0, 0.0, "not connected yet"
        self.admission = Admission(self.agent, self.clock, AdmissionSettings())
        self.waiting: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        await self.admission.start()
        self.waiting = asyncio.create_task(self.admission.readiness.wait())
        await self.settle()

    async def is_waiting(self) -> bool:
        await self.settle()
        assert self.waiting is not None
        return not self.waiting.done()


@pytest.fixture
def a_scene(desk: Any) -> Scene:
    return Scene(desk)


def play(act: Any) -> None:
    asyncio.run(asyncio.wait_for(act(), 10))


def test_a_size_that_never_fits_is_refused_once_a_slow_agent_was_heard(a_scene: Scene) -> None:
    async def act() -> None:
        await a_scene.begin()
        await a_scene.clock.advance(9.0)
        assert await a_scene.is_waiting()
        a_scene.agent.come_back()
        assert not await a_scene.is_waiting()
        with pytest.raises(NeverFitsError, match="this node has 1 GPU"):
            a_scene.admission.check(ASKER, LARGE)
        a_scene.agent.go()
        await a_scene.settle()
        # The agent's last report counts.
        with pytest.raises(NeverFitsError, match="this node has 1 GPU"):
            a_scene.admission.check(ASKER, LARGE)
        await a_scene.admission.stop()

    play(act)


@pytest.mark.parametrize("is_found_missing", [True, False])
def test_where_no_agent_is_heard_a_start_waits_in_the_queue_and_says_so(a_scene: Scene, is_found_missing: bool) -> None:
    async def act() -> None:
        await a_scene.begin()
        assert await a_scene.is_waiting()
        if is_found_missing:
            a_scene.agent.go()
        else:
            await a_scene.clock.advance(10.0)
        assert not await a_scene.is_waiting()
        a_scene.admission.check(ASKER, LARGE)
        future = a_scene.admission.submit(KernelRef("a", "ada", "", "python3"), LARGE)
        await a_scene.settle()
        assert (
            a_scene.admission.waiting("a").reason
            == "The node agent does not answer: it went away. The gateway tries again"
        )
        a_scene.agent.come_back()
        with pytest.raises(NeverFitsError, match="this node has 1 GPU"):
            await future
        await a_scene.admission.stop()

    play(act)


def test_a_node_without_a_gpu_is_known_as_one(desk: Any) -> None:
    async def act() -> None:
        clock = desk.clock()
        async with desk.admission(desk.agent(clock, devices=0), clock) as admission:
            with pytest.raises(NeverFitsError, match="this node has no GPU"):
                admission.check(ASKER, LARGE)

    play(act)
