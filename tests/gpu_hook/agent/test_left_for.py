"""The reason why a kernel's memory was taken out, as its user sees it.

It depends on the kernel's state then, and on the kernel that wanted the room.
"""

from __future__ import annotations

import asyncio

import pytest
from keeper_node import ANode, call

from jupyter_aliquot.gpu_hook.agent.activity.idleness import Activity
from jupyter_aliquot.gpu_hook.agent.scheduling.records import LeftFor
from jupyter_aliquot.gpu_hook.agent.swap.facts import MoveResult
from jupyter_aliquot.gpu_hook.agent.swap.table import KernelState


@pytest.mark.parametrize(
    ("is_busy", "workload_class", "want"),
    [
        (False, "production", LeftFor.IDLE),
        (False, "opportunistic", LeftFor.IDLE),
        (True, "production", LeftFor.TURN),
        (True, "opportunistic", LeftFor.PRODUCTION),
    ],
)
def test_a_kernel_leaves_for_another_that_waits(is_busy: bool, workload_class: str, want: LeftFor) -> None:
    async def scenario() -> None:
        node = ANode()
        leaver, waker = (
            node.kernel("leaver", 600, workload_class=workload_class),
            node.kernel("waker", 600, KernelState.SWAPPED),
        )
        if is_busy:
            leaver.activity = Activity(1, 1, node.now + 99)
        call(waker, node)
        await node.turn(later=100)
        assert leaver.residency.state is KernelState.SWAPPING_OUT
        assert node.keeper.record("leaver").left_for is None  # it is not out yet
        await node.finish(leaver)
        assert node.keeper.record("leaver").left_for is want
        await node.keeper.close()

    asyncio.run(scenario())


def test_a_kernel_that_could_not_leave_did_not() -> None:
    async def scenario() -> None:
        node = ANode()
        leaver, waker = node.kernel("leaver", 600), node.kernel("waker", 600, KernelState.SWAPPED)
        call(waker, node)
        await node.turn(later=10)
        await node.finish(leaver, MoveResult.BUSY)
        assert node.keeper.record("leaver").left_for is None
        await node.keeper.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("want", [LeftFor.ASKED, LeftFor.COMPUTE])
def test_a_kernel_leaves_though_nobody_needs_its_room(want: LeftFor) -> None:
    async def scenario() -> None:
        node = ANode()
        leaver = node.kernel("leaver", 600, workload_class="opportunistic")
        await node.turn(later=10)
        if want is LeftFor.COMPUTE:
            node.keeper.keep_out("leaver")
        else:
            node.keeper.record("leaver").asked_out_at = node.now
        await node.turn()
        await node.finish(leaver)
        assert node.keeper.record("leaver").left_for is want
        await node.keeper.close()

    asyncio.run(scenario())
