"""Contexts of other kernels leave for a kernel that does not fit beside them, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from keeper_node import CARD, MIB, UUID, AKernel, ANode, call

from jupyter_aliquot.gpu_hook.agent.activity.idleness import Activity, Telemetry
from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceReading
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts
from jupyter_aliquot.gpu_hook.agent.scheduling.views import Reason
from jupyter_aliquot.gpu_hook.agent.swap.facts import MoveResult
from jupyter_aliquot.gpu_hook.agent.swap.table import KernelState


@pytest.fixture
def play() -> Callable[[Callable[[ANode], Coroutine[Any, Any, None]]], None]:
    def play(scenario: Callable[[ANode], Coroutine[Any, Any, None]]) -> None:
        async def run() -> None:
            node = ANode()
            await scenario(node)
            await node.keeper.close()

        asyncio.run(run())

    return play


class TestContextsThatLeave:
    """A kernel that fills the device comes back beside no other kernel's context."""

    async def a_full_one(self, node: ANode, others: int, **idle: int) -> tuple[AKernel, list[AKernel]]:
        """Make a kernel of 950 MiB that is out and called, and idle ones with contexts of so many MiB.

        Contexts take *others* MiB of the device, these included.
        """
        full = node.kernel("full", 950, KernelState.SWAPPED)
        made = [node.kernel(name, 20) for name in idle]
        for kernel, context in zip(made, idle.values(), strict=True):
            kernel.residency.context = context * MIB
        node.look(others=others * MIB)
        call(full, node)
        await node.turn(later=10)
        return full, made

    def wait_of(self, node: ANode) -> Reason:
        wait = node.keeper.wait("full")
        assert wait is not None
        return wait.reason

    def test_those_of_an_idle_kernel_follow_its_memory(self, play: Any) -> None:
        async def scenario(node: ANode) -> None:
            full, (idle,) = await self.a_full_one(node, 60, idle=60)
            assert (self.wait_of(node), idle.residency.state) == (Reason.MOVING, KernelState.SWAPPING_OUT)
            idle.residency.since = node.now
            await node.finish(idle)
            assert idle.residency.state is KernelState.SWAPPED, "the driver's figures are from before"
            await node.turn(later=3)
            assert idle.residency.state is KernelState.SWAPPING_OUT
            idle.residency.since = node.now
            await node.finish(idle)
            assert (idle.residency.state, self.wait_of(node)) == (KernelState.CHECKPOINTED, Reason.MOVING)
            node.look()
            await node.turn(later=1)
            assert full.residency.state is KernelState.SWAPPING_IN
            assert idle.residency.state is KernelState.CHECKPOINTED

        play(scenario)

    def test_no_more_of_them_than_are_needed_the_longest_idle_first(self, play: Any) -> None:
        async def scenario(node: ANode) -> None:
            young = node.kernel("young", 20)
            young.residency.context, young.activity = 40 * MIB, Activity(0, 0, 900.0)
            _, (old,) = await self.a_full_one(node, 80, old=40)
            assert (young.residency.state, old.residency.state) == (KernelState.RESIDENT, KernelState.SWAPPING_OUT)

        play(scenario)

    def test_those_of_a_busy_kernel_are_waited_for(self, play: Any) -> None:
        async def scenario(node: ANode) -> None:
            busy = node.kernel("busy", 20)
            busy.residency.context, busy.activity = 60 * MIB, Activity(1, 1, node.now)
            busy.residency.telemetry = Telemetry(calls_inside=1, last_call=node.now)
            await self.a_full_one(node, 60)
            assert self.wait_of(node) is Reason.BUSY
            assert busy.residency.state is KernelState.RESIDENT

        play(scenario)

    def test_where_they_cannot_leave_the_kernel_is_stuck_and_no_other_moves_for_it(self, play: Any) -> None:
        async def scenario(node: ANode) -> None:
            idle = node.kernel("idle", 20)
            idle.residency.context, idle.residency.not_saved = 60 * MIB, "it is a client of MPS"
            await self.a_full_one(node, 60)
            assert (self.wait_of(node), idle.residency.state) == (Reason.STUCK, KernelState.RESIDENT)

        play(scenario)

    def test_of_two_that_fill_the_device_and_are_out_the_first_gets_the_others_out(self, play: Any) -> None:
        async def scenario(node: ANode) -> None:
            second = node.kernel("second", 930, KernelState.SWAPPED)
            second.residency.context = 60 * MIB
            first, _ = await self.a_full_one(node, 110)
            first.residency.context = 60 * MIB
            call(second, node)
            await node.turn(later=3)
            assert second.residency.state is KernelState.SWAPPING_OUT
            second.residency.since = node.now
            await node.finish(second)
            node.look(others=50 * MIB)
            await node.turn(later=1)
            assert first.residency.state is KernelState.SWAPPING_IN
            assert second.residency.state is KernelState.CHECKPOINTED

        play(scenario)

    def test_those_of_a_kernel_that_is_kept_out_leave_though_it_waits(self, play: Any) -> None:
        async def scenario(node: ANode) -> None:
            low = node.kernel("low", 20, KernelState.SWAPPED)
            low.residency.context = 60 * MIB
            node.keeper.keep_out("low")
            call(low, node)
            await self.a_full_one(node, 60)
            assert low.residency.state is KernelState.SWAPPING_OUT

        play(scenario)

    def test_a_kernel_that_came_in_a_moment_ago_stays(self, play: Any) -> None:
        async def scenario(node: ANode) -> None:
            idle = node.kernel("idle", 20)
            idle.residency.context = 60 * MIB
            node.keeper.record("idle").held_since = node.now + 8
            await self.a_full_one(node, 60)
            assert idle.residency.state is KernelState.RESIDENT
            await node.turn(later=5)
            assert idle.residency.state is KernelState.SWAPPING_OUT

        play(scenario)

    def test_a_cell_of_a_kernel_that_makes_way_waits_for_the_other(self, play: Any) -> None:
        async def scenario(node: ANode) -> None:
            full, (idle,) = await self.a_full_one(node, 60, idle=60)
            idle.residency.since = node.now
            await node.finish(idle)
            call(idle, node)
            await node.turn(later=3)
            assert idle.residency.state is KernelState.SWAPPING_OUT, "its contexts leave all the same"
            wait = node.keeper.wait("idle")
            assert wait is not None
            assert wait.reason is Reason.QUEUE
            full.residency.waits_since, full.residency.telemetry = None, Telemetry()  # an interrupt ended its call
            idle.residency.since = node.now
            await node.finish(idle)
            await node.turn()
            assert idle.residency.state is KernelState.SWAPPING_IN

        play(scenario)

    def test_after_a_refused_checkpoint_it_moves_no_more_for_that(self, play: Any) -> None:
        async def scenario(node: ANode) -> None:
            _, (idle,) = await self.a_full_one(node, 60, idle=60)
            idle.residency.since = node.now
            await node.finish(idle)
            await node.turn(later=3)
            await node.finish(idle, MoveResult.FAILED)
            call(idle, node)
            await node.turn()
            await node.finish(idle)
            assert idle.residency.state is KernelState.RESIDENT
            idle.residency.telemetry = Telemetry()
            await node.turn(later=300)
            assert idle.residency.state is KernelState.RESIDENT

        play(scenario)

    @pytest.mark.parametrize("lack", ["want", "host memory", "device", "idle kernel"])
    def test_none_leaves_in_vain(self, play: Any, lack: str) -> None:
        async def scenario(node: ANode) -> None:
            idle = node.kernel("idle", 20)
            idle.residency.context = 60 * MIB
            node.host_room = 0 if lack == "host memory" else None
            if lack == "idle kernel":
                busy = node.kernel("busy", 200)
                busy.activity = Activity(1, 1, node.now)
                busy.residency.telemetry = Telemetry(calls_inside=1, last_call=node.now)
            full = node.kernel("full", 40 if lack == "device" else 950, KernelState.SWAPPED)
            node.look(others=60 * MIB)
            if lack == "device":
                lost = DeviceReading(DeviceFacts(UUID, 0, "a", CARD), used_bytes=0, is_lost=True)
                node.keeper.room.look([lost], {})
            if lack == "want":
                node.keeper.record("full").hinted_until = node.now + 60
            else:
                call(full, node)
            await node.turn(later=10)
            assert idle.residency.state is KernelState.RESIDENT

        play(scenario)

    def test_needless_ones_stay(self, play: Any) -> None:
        async def scenario(node: ANode) -> None:
            small = node.kernel("a small one", 20)
            small.residency.context, small.activity = 20 * MIB, Activity(0, 0, 0.0)
            _, (large,) = await self.a_full_one(node, 90, large=70)
            assert (small.residency.state, large.residency.state) == (KernelState.RESIDENT, KernelState.SWAPPING_OUT)

        play(scenario)
