"""Kernels that were moved while no gateway waited for it: the ledger follows the agent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jupyter_aliquot.gateway.scheduling.admission import Admission
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.provisioner.resources import GpuShare, Request

LONG_SECONDS = 60.0


def submit(admission: Admission, name: str, hundredths: int) -> Any:
    return admission.submit(KernelRef(name, "ada", f"{name}.ipynb", "python3"), Request(GpuShare(hundredths)))


def test_a_move_that_ends_without_a_gateway_is_in_the_ledger(play: Any, settle: Any) -> None:
    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        agent.evicted = set()
        told: list[tuple[str, Any]] = []
        admission.observe_resizes(lambda kernel_id, grant: told.append((kernel_id, grant.uuids)))
        (source,) = (await submit(admission, "a", 50)).uuids
        target = "GPU-1" if source == "GPU-0" else "GPU-0"
        looked = asyncio.Event()
        admission.observe(looked.set)
        agent.move("a", int(target[-1]))
        await looked.wait()
        await settle()
        await clock.advance(LONG_SECONDS)
        holding = admission.ledger.holdings["a"]
        assert (holding.grant.uuids, holding.is_confirmed) == ((target,), True)
        assert told == [("a", (target,))], "its kernel restarts there"
        waits = submit(admission, "b", 100)
        await settle()
        assert waits.result().uuids == (source,), "others get what it left"

    play(scene, devices=2)


def test_a_kernel_that_ends_before_its_renewal_after_a_move_keeps_nothing(play: Any, settle: Any) -> None:
    """The renewal is a reservation, and made anew what the kernel's end had released."""

    async def scene(admission: Admission, agent: Any, clock: Any) -> None:
        grant = await submit(admission, "a", 50)
        await admission.release("a")
        await settle()
        assert agent.held == {}
        agent.held["a"] = grant
        admission.take_moved(grant)
        await settle()
        await clock.advance(LONG_SECONDS)
        assert (agent.held, dict(admission.ledger.holdings)) == ({}, {})

    play(scene, devices=2)


@pytest.mark.parametrize("is_evicted", [False, True])
def test_a_move_on_another_node_is_in_the_ledger(desk: Any, remote: Any, is_evicted: bool) -> None:
    async def scenario() -> None:
        clock = desk.clock()
        node = remote.node(clock, "a", 2)
        node.evicted = set()
        async with remote.place(clock, node) as place:
            assert await place.granted("k1", 50) == "a"
            (source,) = place.admission.ledger.holdings["k1"].grant.uuids
            target = {"GPU-a-0": 1, "GPU-a-1": 0}[source]
            node.move("k1", target)
            if is_evicted:
                node.evicted.add("k1")
            await node.refresh()
            for _ in range(3):
                await clock.advance(LONG_SECONDS)
            holding = place.admission.ledger.holdings["k1"]
            assert (holding.grant.uuids, holding.is_confirmed) == ((f"GPU-a-{target}",), True)

    asyncio.run(scenario())
