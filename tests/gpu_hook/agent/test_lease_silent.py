"""A kernel whose process does not answer an order to move, as a stopped one.

The tests look at its neighbours' waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from keeper_node import MIB, AKernel, ANode, call

from jupyter_aliquot.gpu_hook.agent.scheduling.views import Policy, Reason
from jupyter_aliquot.gpu_hook.agent.swap.facts import MoveResult
from jupyter_aliquot.gpu_hook.agent.swap.table import KernelState

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


async def fall_silent(node: ANode, kernel: AKernel) -> None:
    """Order the kernel to leave, without an answer from its process."""
    await node.turn(later=10)
    assert kernel.residency.state is KernelState.SWAPPING_OUT
    kernel.residency.silent_pids = (7,)
    await node.finish(kernel, MoveResult.SILENT)
    await node.turn(later=1)


def test_who_waits_for_a_silent_kernel_hears_that_it_is_stuck(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        stopped, waker = node.kernel("stopped", 600), node.kernel("waker", 600, KernelState.SWAPPED)
        call(waker, node)
        await fall_silent(node, stopped)
        assert node.keeper.wait("waker").reason is Reason.STUCK
        await node.turn(later=1000)
        assert node.keeper.wait("waker").reason is Reason.STUCK

    play(scenario)


def test_growth_waits_for_an_answer_until_the_deadline_and_is_then_refused(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        stopped, grower = node.kernel("stopped", 600), node.kernel("grower", 300)
        grower.grow(300 * MIB)
        await fall_silent(node, stopped)
        await node.turn(later=Policy.answer_seconds - 2)
        assert grower.credit_queues.answers == []
        assert node.keeper.wait("grower").reason is Reason.STUCK
        await node.turn(later=2)
        assert grower.credit_queues.answers == ["refused"]

    play(scenario)


def test_one_that_answers_again_is_told_to_leave_again(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        stopped, grower = node.kernel("stopped", 600), node.kernel("grower", 300)
        grower.grow(300 * MIB)
        await fall_silent(node, stopped)
        stopped.residency.silent_pids = ()
        await node.turn(later=2)
        assert stopped.residency.state is KernelState.SWAPPING_OUT
        await node.finish(stopped)
        assert grower.credit_queues.answers == ["given"]

    play(scenario)


def test_another_that_can_leave_leaves_instead(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        stopped, idle, grower = node.kernel("stopped", 400), node.kernel("idle", 300), node.kernel("grower", 300)
        stopped.residency.silent_pids = (7,)
        grower.grow(300 * MIB)
        await node.turn(later=10)
        assert idle.residency.state is KernelState.SWAPPING_OUT
        assert stopped.residency.state is KernelState.RESIDENT

    play(scenario)
