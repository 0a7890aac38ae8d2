"""A plan of many nodes and requests: the loop serves others while it is made."""

from __future__ import annotations

import asyncio

import pytest

from jupyter_aliquot.gateway.scheduling.agents.plan_beside import plan_beside
from jupyter_aliquot.gateway.scheduling.ledger import Device, KernelRef, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.planner import Pending, plan
from jupyter_aliquot.gateway.scheduling.queue import RequestQueue, Waiting
from jupyter_aliquot.gateway.scheduling.wait_reason import not_planned
from jupyter_aliquot.provisioner.errors import WithdrawnError
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Request

QUARTER = Request(GpuShare(25))


def nodes(count: int) -> LedgerSnapshot:
    """Return empty nodes of two devices each."""

    def device(node: int, index: int) -> Device:
        return Device(f"GPU-{node}-{index}", index, "Test", Bytes(8 << 30), GpuShare(0), Bytes(0))

    return LedgerSnapshot(
        others=tuple(Node(f"n{node}", "test", (device(node, 0), device(node, 1))) for node in range(count))
    )


def queue(count: int) -> list[Pending]:
    return [Pending(f"k{number}", f"u{number % 7}", QUARTER, float(number)) for number in range(count)]


async def test_a_long_plan_is_the_same_and_lets_others_run() -> None:
    snapshot, pending, turns = nodes(40), queue(400), 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    found = await plan_beside(snapshot, pending, 1000.0)
    counting.cancel()
    assert turns > 2, "four hundred requests take longer than a turn of the loop"
    assert found == plan(snapshot, pending, 1000.0)
    assert len(found.admissions) == 320


async def test_a_short_plan_is_made_at_once() -> None:
    snapshot, pending = nodes(2), queue(9)
    work = plan_beside(snapshot, pending, 1000.0)
    with pytest.raises(StopIteration) as done:
        work.send(None)  # it never waits
    assert done.value.value == plan(snapshot, pending, 1000.0)


async def test_a_request_that_left_while_it_was_planned_ends_no_kernel() -> None:
    told, waits = list[str](), RequestQueue()
    requester = KernelRef("new", "ada")
    pending = Pending("new", "ada", QUARTER, 0.0, replaces=frozenset({"old"}))
    future = asyncio.get_running_loop().create_future()
    waiting = Waiting(requester, pending, 0.0, future, not_planned(QUARTER), lambda: told.append("old"))
    waits.add(waiting)
    waits.withdraw("new", "the start was canceled")
    waits.preempt(waiting)
    assert told == []
    with pytest.raises(WithdrawnError):
        await future
