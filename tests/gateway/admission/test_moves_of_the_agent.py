"""The agent's moves: together while nothing waits for them, at once for a request that does."""

from __future__ import annotations

import asyncio
from typing import Any

from jupyter_aliquot.gateway.scheduling.admission import Admission
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.provisioner.resources import GpuShare, Request


def submit(admission: Admission, name: str, hundredths: int) -> Any:
    return admission.submit(KernelRef(name, "ada", f"{name}.ipynb", "python3"), Request(GpuShare(hundredths)))


def count_cycles(admission: Admission) -> list[None]:
    cycles: list[None] = []
    admission.observe(lambda: cycles.append(None))
    return cycles


def test_moves_for_which_nothing_waits_are_one_cycle(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 50)
        await settle()
        cycles, looked = count_cycles(admission), asyncio.Event()
        admission.observe(looked.set)
        for _ in range(20):
            agent.tell()
        await looked.wait()
        await settle()
        assert len(cycles) == 1

    play(scene)


def test_a_move_is_looked_at_at_once_while_a_request_waits(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 50)
        waits = submit(admission, "b", 100)
        await settle()
        cycles = count_cycles(admission)
        del agent.held["a"]  # another program's, to the agent
        agent.tell()
        await settle()
        assert cycles
        assert waits.done()

    play(scene)


def test_a_move_during_a_cycle_is_looked_at_after_it(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await submit(admission, "a", 100)
        await settle()
        waits = submit(admission, "b", 100)
        tells = agent.status

        async def moves_after_it_told() -> Any:
            node = await tells()
            agent.status = tells
            del agent.held["a"]
            agent.tell()
            return node

        agent.status = moves_after_it_told
        await settle()
        assert waits.done()

    play(scene)


def test_a_grant_and_its_release_are_a_cycle_each(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        await settle()
        cycles = count_cycles(admission)
        await submit(admission, "a", 50)
        await settle()
        await admission.release("a")  # of which the agent tells
        await settle()
        assert len(cycles) == 2

    play(scene)
