"""A kernel that answers each order to leave, and does not leave.

It may be at work that takes long, or malicious.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from keeper_node import MIB, UUID, AKernel, ANode, call

from jupyter_aliquot.gpu_hook.agent.scheduling.views import Reason
from jupyter_aliquot.gpu_hook.agent.swap.facts import Move, MoveRefusal, MoveResult
from jupyter_aliquot.gpu_hook.agent.swap.table import KernelState

PATIENCE_SECONDS = 60  # of the node's policy
VACATE_RETRY_SECONDS = 6  # so soon it has tried again
Scenario = Callable[[ANode], Coroutine[Any, Any, None]]


@pytest.fixture
def play() -> Callable[[Scenario], None]:
    def play(scenario: Scenario) -> None:
        async def run() -> None:
            node = ANode()
            await scenario(node)
            await node.keeper.close()

        asyncio.run(run())

    return play


async def wait(node: ANode, wanter: AKernel, busy: AKernel, seconds: float, result: MoveResult) -> list[Reason | None]:
    """Answer each order to leave in the same way, for so long or until the wanter has its answer.

    Return the reasons that the wanter received.
    """
    heard: list[Reason | None] = []
    until = node.now + seconds
    while node.now < until and not wanter.credit_queues.answers:
        await node.turn(later=1)
        if busy.residency.state is KernelState.SWAPPING_OUT:
            refusal = MoveRefusal.after(busy.residency.refusal, Move(result, "busy"), node.now)
            busy.residency.refusal = refusal
            await node.finish(busy, result)
        waits = node.keeper.wait(wanter.kernel_id)
        heard.append(None if waits is None else waits.reason)
    return heard


@pytest.mark.parametrize("result", [MoveResult.BUSY, MoveResult.REFUSED, MoveResult.HOST_FULL, MoveResult.FAILED])
def test_growth_behind_one_that_never_leaves_is_told_so_and_refused_after_the_patience(
    play: Any, result: MoveResult
) -> None:
    async def scenario(node: ANode) -> None:
        busy, grower = node.kernel("busy", 900), node.kernel("grower", 50)
        grower.grow(300 * MIB)
        began = node.now
        heard = await wait(node, grower, busy, 20, result)
        assert Reason.STUCK in heard
        assert grower.credit_queues.answers == []
        await wait(node, grower, busy, 3 * PATIENCE_SECONDS, result)
        assert grower.credit_queues.answers == ["refused"]
        assert PATIENCE_SECONDS <= node.now - began <= 2 * PATIENCE_SECONDS
        assert busy.residency.refusal is not None
        assert busy.residency.refusal.attempts >= 5
        assert busy.residency.state is KernelState.RESIDENT

    play(scenario)


def test_each_new_call_has_it_told_again_before_it_is_refused(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        busy, grower = node.kernel("busy", 900), node.kernel("grower", 50)
        for _ in range(3):
            before = busy.residency.refusal
            grower.credit_queues.answers = []
            await node.turn(later=1)  # nothing waits
            grower.grow(300 * MIB)
            await wait(node, grower, busy, 5 * PATIENCE_SECONDS, MoveResult.BUSY)
            assert grower.credit_queues.answers == ["refused"]
            assert busy.residency.refusal is not before

    play(scenario)


def test_one_whose_work_ends_leaves_though_it_was_stuck(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        busy, grower = node.kernel("busy", 900), node.kernel("grower", 50)
        grower.grow(300 * MIB)
        heard = await wait(node, grower, busy, 25, MoveResult.BUSY)
        assert Reason.STUCK in heard
        while busy.residency.state is not KernelState.SWAPPING_OUT:
            await node.turn(later=1)
        await node.finish(busy)
        assert grower.credit_queues.answers == ["given"]

    play(scenario)


def test_a_swapped_kernel_waits_on_and_keeps_nobody_else_from_room(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        busy, waker = node.kernel("busy", 600), node.kernel("waker", 600, KernelState.SWAPPED)
        other = node.kernel("other", 100)
        call(waker, node)
        await wait(node, waker, busy, 20, MoveResult.BUSY)
        other.grow(200 * MIB)
        heard = await wait(node, waker, busy, 5 * PATIENCE_SECONDS, MoveResult.BUSY)
        assert heard[-1] is Reason.STUCK
        assert other.credit_queues.answers == ["given"]

    play(scenario)


def test_another_that_can_leave_leaves_instead(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        busy, grower = node.kernel("busy", 400), node.kernel("grower", 300)
        node.kernel("stays", 300).residency.mode_reason = "its residency mode is off"
        grower.grow(300 * MIB)
        heard = await wait(node, grower, busy, 20, MoveResult.BUSY)
        assert Reason.STUCK in heard
        idle = next(kernel for kernel in node.kernels if kernel.kernel_id == "stays")
        idle.residency.mode_reason = ""
        while idle.residency.state is not KernelState.SWAPPING_OUT:
            await node.turn(later=1)
        await node.finish(idle)
        assert grower.credit_queues.answers == ["given"]

    play(scenario)


async def refuse(node: ANode, kernel: AKernel) -> None:
    """Let the next checkpoint of this kernel come to nothing, and the keeper look again."""
    assert kernel.residency.move is not None
    kernel.residency.move.set_result(Move(MoveResult.REFUSED, "process 7 does not answer"))
    for _ in range(3):
        await asyncio.sleep(0)


def test_a_checkpoint_that_a_kernel_refused_is_tried_again_soon_while_its_device_goes(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        kernel = node.kernel("k", 900, KernelState.SWAPPED)
        node.keeper.evict("k")
        node.keeper.vacate(frozenset({UUID}))
        await node.turn()
        await refuse(node, kernel)
        assert node.keeper.vacate(frozenset({UUID})) == {UUID: {"k": "process 7 does not answer"}}
        await node.turn(later=VACATE_RETRY_SECONDS)
        assert kernel.residency.state is KernelState.SWAPPING_OUT
        await node.finish(kernel)
        assert node.keeper.vacate(frozenset({UUID})) == {UUID: {}}

    play(scenario)


def test_an_old_refusal_is_no_reason_why_contexts_stay_on_a_device_that_goes(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        kernel = node.kernel("k", 900, KernelState.SWAPPED)
        node.keeper.evict("k")
        node.keeper.vacate(frozenset({UUID}))
        await node.turn()
        await refuse(node, kernel)
        node.keeper.evict("k", is_evicted=False)  # the device stays, after all
        assert node.keeper.vacate(frozenset()) == {}
        await node.turn(later=3600)
        assert node.keeper.vacate(frozenset({UUID})) == {UUID: {"k": ""}}, "the gateway would end it for that reason"

    play(scenario)
