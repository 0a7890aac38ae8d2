"""Kernels that production displaces: they leave, wait with a reason, and come back.

They leave for any kernel that needs their room.
"""

from __future__ import annotations

import asyncio

from keeper_node import MIB, ANode, call

from jupyter_aliquot.gpu_hook.agent.scheduling.views import Reason
from jupyter_aliquot.gpu_hook.agent.swap.table import KernelState


def test_a_displaced_kernel_leaves_busy_as_it_is_and_comes_back_when_it_is_let_in() -> None:
    async def scenario() -> None:
        node = ANode()
        kernel = node.kernel("h", 100, workload_class="opportunistic")
        call(kernel, node)
        kernel.residency.waits_since = None  # it works
        node.keeper.keep_out("h")
        await node.turn()
        assert kernel.residency.state is KernelState.SWAPPING_OUT
        assert node.keeper.is_kept_out("h")
        await node.finish(kernel)
        call(kernel, node)
        await node.turn(1.0)
        wait = node.keeper.wait("h")
        assert wait is not None
        assert wait.reason is Reason.COMPUTE
        assert kernel.residency.state is KernelState.SWAPPED
        node.keeper.let_in("h")
        await node.turn()
        assert kernel.residency.state is KernelState.SWAPPING_IN
        await node.finish(kernel)
        assert node.keeper.wait("h") is None

    asyncio.run(scenario())


def test_a_displaced_kernel_that_cannot_leave_still_gets_its_memory() -> None:
    async def scenario() -> None:
        node = ANode()
        kernel = node.kernel("h", 100, workload_class="opportunistic")
        kernel.residency.mode_reason = "off"
        kernel.grow(100 * MIB)
        node.keeper.keep_out("h")
        await node.turn()
        assert kernel.residency.state is KernelState.RESIDENT
        assert not node.keeper.is_kept_out("h")
        assert kernel.credit_queues.answers == ["given"]

    asyncio.run(scenario())


def test_a_displaced_kernel_that_is_moved_to_another_device_comes_in_there() -> None:
    async def scenario() -> None:
        node = ANode()
        kernel = node.kernel("h", 100, KernelState.CHECKPOINTED)
        record = node.keeper.record("h")
        assert record is not None
        node.keeper.keep_out("h")
        record.is_asked_in = True
        await node.turn(1.0)
        assert kernel.residency.state is KernelState.CHECKPOINTED
        record.is_arriving = True
        await node.turn(1.0)
        assert kernel.residency.state is KernelState.SWAPPING_IN

    asyncio.run(scenario())
