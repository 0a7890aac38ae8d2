"""The lease keeper at work in virtual time.

The kernels' moves end when the test ends them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from keeper_node import CARD, MIB, UUID, AKernel, ANode, call

from jupyter_aliquot.gpu_hook.agent.activity.idleness import Activity, Telemetry
from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceReading
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts
from jupyter_aliquot.gpu_hook.agent.scheduling.views import Reason
from jupyter_aliquot.gpu_hook.agent.swap.facts import MoveRefusal, MoveResult
from jupyter_aliquot.gpu_hook.agent.swap.table import KernelState
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.gpu_hook.protocol.codec import ResidencyMode


@pytest.fixture
def play() -> Callable[[Callable[[ANode], Coroutine[Any, Any, None]]], None]:
    def play(scenario: Callable[[ANode], Coroutine[Any, Any, None]]) -> None:
        async def run() -> None:
            node = ANode()
            await scenario(node)
            await node.keeper.close()

        asyncio.run(run())

    return play


def test_a_call_makes_an_idle_kernel_leave_and_then_comes_in(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        idle, waker = node.kernel("idle", 600), node.kernel("waker", 600, KernelState.SWAPPED)
        call(waker, node)
        await node.turn(later=10)
        assert idle.residency.state is KernelState.SWAPPING_OUT
        assert waker.residency.state is KernelState.SWAPPED
        assert node.keeper.wait("waker").reason is Reason.MOVING
        await node.finish(idle)
        assert waker.residency.state is KernelState.SWAPPING_IN
        await node.finish(waker)
        assert node.keeper.wait("waker") is None

    play(scenario)


def test_a_record_counts_the_turns_of_its_cell_and_not_its_waits(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        first, second = node.kernel("first", 600), node.kernel("second", 600, KernelState.SWAPPED)
        first.activity = Activity(1, 1, node.now)
        await node.turn()
        call(second, node)
        await node.turn(later=40)  # the turn of the first is over
        assert first.residency.state is KernelState.SWAPPING_OUT
        await node.finish(first)
        call(first, node)
        await node.turn(later=20)
        await node.finish(second)
        view = node.keeper.record("first").view(node.moment())
        assert view.ran_seconds == view.last_turn_seconds == 40
        second_view = node.keeper.record("second").view(node.moment())
        assert second_view.ran_seconds == 0

    play(scenario)


def test_room_that_was_promised_is_nobody_elses(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        waker, other = node.kernel("waker", 600, KernelState.SWAPPED), node.kernel("other", 100)
        call(waker, node)
        await node.turn(later=10)
        assert waker.residency.state is KernelState.SWAPPING_IN
        other.grow(400 * MIB)
        await node.turn()
        assert other.credit_queues.answers == []
        await node.finish(waker)
        assert other.credit_queues.answers == []

    play(scenario)


def test_growth_waits_for_an_idle_kernel_to_leave(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        idle, grower = node.kernel("idle", 600), node.kernel("grower", 300)
        assert node.keeper.has_room("grower", UUID, 100 * MIB)
        assert not node.keeper.has_room("grower", UUID, 200 * MIB)
        grower.grow(200 * MIB)
        await node.turn(later=10)
        assert idle.residency.state is KernelState.SWAPPING_OUT
        assert grower.credit_queues.answers == []
        await node.finish(idle)
        assert grower.credit_queues.answers == ["given"]

    play(scenario)


def paged(node: ANode, name: str, mib: int, *, guarantee: int, priority: str = "opportunistic") -> AKernel:
    """Add a kernel on unified memory, with a guarantee below its limit."""
    part = Part(UUID, 0, 40, CARD, guarantee * MIB)
    kernel = node.kernel(name, mib, parts=(part,), workload_class=priority)
    kernel.residency.mode = ResidencyMode.MANAGED
    return kernel


def test_unified_memory_beyond_the_guarantee_waits_for_no_room(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        busy, pages = node.kernel("busy", 600), paged(node, "pages", 400, guarantee=400)
        busy.activity = Activity(1, 1, node.now)
        await node.turn()
        assert node.keeper.has_room("pages", UUID, 500 * MIB)
        pages.grow(500 * MIB)
        await node.turn()
        assert pages.credit_queues.answers == ["given"]
        assert (busy.residency.state, node.keeper.wait("pages")) == (KernelState.RESIDENT, None)

    play(scenario)


def test_unified_memory_within_the_guarantee_waits_for_room(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        node.kernel("idle", 800)
        pages = paged(node, "pages", 100, guarantee=400)
        assert not node.keeper.has_room("pages", UUID, 500 * MIB)
        pages.grow(500 * MIB)
        await node.turn()
        assert pages.credit_queues.answers == []

    play(scenario)


def test_unified_memory_beyond_the_guarantee_takes_no_room_from_others(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        pages, grower = paged(node, "pages", 900, guarantee=300), node.kernel("grower", 100)
        pages.activity = Activity(1, 1, node.now)
        await node.turn()
        assert node.keeper.has_room("grower", UUID, 600 * MIB)
        assert not node.keeper.has_room("grower", UUID, 601 * MIB)
        grower.grow(600 * MIB)
        await node.turn()
        assert grower.credit_queues.answers == ["given"]
        assert pages.residency.state is KernelState.RESIDENT, "the driver pages it; it is not swapped out"

    play(scenario)


def test_a_look_takes_paged_memory_for_no_other_programs(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        reading = DeviceReading(DeviceFacts(UUID, 0, "a", CARD), used_bytes=CARD)
        for used, on_device, excess, want in ((300, 250, 0, 50), (980, 1400, 900, 50), (1000, 920, 900, 80)):
            for _ in range(3):
                known = replace(reading, used_bytes=used * MIB)
                node.keeper.room.look([known], {UUID: on_device * MIB}, lambda uuid, excess=excess: excess * MIB)
            assert node.keeper.room.capacity_bytes(UUID) == CARD - want * MIB

    play(scenario)


def test_growth_that_nobody_can_make_room_for_is_refused_at_once(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        stays, grower = node.kernel("stays", 600), node.kernel("grower", 300)
        stays.residency.mode_reason = "its residency mode is off"
        grower.grow(200 * MIB)
        await node.turn(later=10)
        assert grower.credit_queues.answers == ["refused"]

    play(scenario)


def test_what_only_others_seem_to_have_is_left_to_the_driver(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        grower = node.kernel("grower", 300)
        node.look(others=100 * MIB)
        grower.grow(650 * MIB)
        await node.turn(later=10)
        assert grower.credit_queues.answers == ["given"]

    play(scenario)


def test_what_others_seem_to_have_for_a_moment_refuses_nobody(play: Any) -> None:
    """A long move is on the device before it is booked: it looks like another process's memory."""

    async def scenario(node: ANode) -> None:
        idle, grower = node.kernel("idle", 400), node.kernel("grower", 500)
        node.look(others=400 * MIB)
        grower.grow(300 * MIB)
        await node.turn(later=40)
        await node.turn(later=4)
        assert grower.credit_queues.answers == []
        node.look()
        await node.turn()
        assert idle.residency.state is KernelState.SWAPPING_OUT
        await node.finish(idle)
        assert grower.credit_queues.answers == ["given"]

    play(scenario)


def test_credit_that_its_process_has_not_shown_yet_refuses_nobody(play: Any) -> None:
    """A new loan is on no hook's page yet: it looks like memory that cannot leave."""

    async def scenario(node: ANode) -> None:
        lent, grower = node.kernel("lent", 600), node.kernel("grower", 300)
        lent.residency.unswappable = 600 * MIB
        grower.grow(200 * MIB)
        await node.turn(later=10)
        assert grower.credit_queues.answers == []
        lent.residency.unswappable = 0
        await node.turn()
        assert lent.residency.state is KernelState.SWAPPING_OUT
        await node.finish(lent)
        assert grower.credit_queues.answers == ["given"]

    play(scenario)


def test_what_stays_on_the_device_refuses_who_needs_it(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        stays, grower = node.kernel("stays", 600), node.kernel("grower", 300)
        stays.residency.unswappable = 600 * MIB
        grower.grow(200 * MIB)
        await node.turn(later=10)
        await node.turn(later=6)
        assert grower.credit_queues.answers == ["refused"]

    play(scenario)


def test_what_others_have_refuses_who_needs_it(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        idle, grower = node.kernel("idle", 400), node.kernel("grower", 500)
        node.look(others=400 * MIB)
        grower.grow(300 * MIB)
        await node.turn(later=40)
        assert grower.credit_queues.answers == []
        await node.turn(later=6)
        assert grower.credit_queues.answers == ["refused"]
        assert idle.residency.state is KernelState.RESIDENT

    play(scenario)


def test_growth_for_which_the_host_has_no_memory_is_refused_in_the_end(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        node.host_room = 100 * MIB
        idle, grower = node.kernel("idle", 600), node.kernel("grower", 300)
        grower.grow(200 * MIB)
        await node.turn(later=10)
        assert node.keeper.wait("grower").reason is Reason.HOST
        await node.turn(later=59)
        assert grower.credit_queues.answers == []
        await node.turn(later=2)
        assert grower.credit_queues.answers == ["refused"]
        assert idle.residency.state is KernelState.RESIDENT

    play(scenario)


def test_one_that_could_not_drain_is_left_alone_for_its_time(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        busy, waker = node.kernel("busy", 600), node.kernel("waker", 600, KernelState.SWAPPED)
        call(waker, node)
        await node.turn(later=10)
        busy.residency.refusal = MoveRefusal(MoveResult.BUSY, "a kernel runs", node.now + 4)
        await node.finish(busy, MoveResult.BUSY)
        assert busy.residency.state is KernelState.RESIDENT
        await node.turn(later=3)
        assert busy.residency.state is KernelState.RESIDENT
        await node.turn(later=2)
        assert busy.residency.state is KernelState.SWAPPING_OUT

    play(scenario)


def test_one_that_could_not_come_in_tries_again_later(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        waker = node.kernel("waker", 600, KernelState.SWAPPED)
        call(waker, node)
        await node.turn(later=10)
        await node.finish(waker, MoveResult.NO_ROOM)
        assert waker.residency.state is KernelState.SWAPPED
        assert node.keeper.wait("waker").reason is Reason.REFUSED, "it holds itself up, and no other kernel does"
        await node.turn(later=2)
        assert waker.residency.state is KernelState.SWAPPING_IN

    play(scenario)


def test_nothing_leaves_while_processes_are_still_to_come_back(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        idle, waker = node.kernel("idle", 600), node.kernel("waker", 600, KernelState.SWAPPED)
        idle.is_expecting = True
        call(waker, node)
        await node.turn(later=10)
        await node.turn(later=100)
        assert idle.residency.state is KernelState.RESIDENT
        idle.is_expecting = False
        await node.turn(later=1)
        assert idle.residency.state is KernelState.SWAPPING_OUT

    play(scenario)


def test_one_whose_device_works_is_busy_though_it_calls_nothing(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        worker = node.kernel("worker", 600)
        call(node.kernel("waker", 600, KernelState.SWAPPED), node)
        node.now += 10
        worker.worked_at = node.now - 1
        await node.turn()
        assert worker.residency.state is KernelState.RESIDENT
        await node.turn(later=2)
        assert worker.residency.state is KernelState.SWAPPING_OUT

    play(scenario)


def test_a_cell_wakes_its_kernel_before_it_calls_and_input_does_not(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        waker = node.kernel("waker", 600, KernelState.SWAPPED)
        waker.activity = Activity(1, 1, node.now, input=node.now)
        await node.turn(later=10)
        assert waker.residency.state is KernelState.SWAPPED
        waker.activity = Activity(1, 1, node.now)
        await node.turn()
        assert waker.residency.state is KernelState.SWAPPING_IN

    play(scenario)


def test_a_cell_that_was_interrupted_while_it_waited_is_not_brought_back_and_the_next_one_is(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        busy, stopped = node.kernel("busy", 600), node.kernel("stopped", 600, KernelState.SWAPPED)
        busy.activity = Activity(1, 1, node.now)
        busy.residency.telemetry = Telemetry(last_call=node.now, calls_inside=1)
        stopped.activity = Activity(1, 1, node.now)
        call(stopped, node)
        await node.turn()
        assert node.keeper.wait("stopped") is not None
        stopped.residency.waits_since, stopped.residency.gave_up_at = None, node.now  # its cell still runs: it ends now
        await node.turn()
        assert node.keeper.wait("stopped") is None
        busy.activity, busy.residency.telemetry = Activity(0, 0, node.now), Telemetry()
        await node.turn(later=10)
        assert (busy.residency.state, stopped.residency.state) == (KernelState.RESIDENT, KernelState.SWAPPED)
        stopped.activity = Activity(1, 1, node.now)
        await node.turn()
        await node.turn()
        assert busy.residency.state is not KernelState.RESIDENT

    play(scenario)


def test_a_hint_makes_idle_ones_leave_and_is_forgotten(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        busy = node.kernel("busy", 600)
        node.kernel("waker", 600, KernelState.SWAPPED)
        busy.activity = Activity(1, 1, node.now)
        busy.residency.telemetry = Telemetry(last_call=node.now, calls_inside=1)
        node.keeper.record("waker").hinted_until = node.now + 30
        await node.turn(later=10)
        assert node.keeper.wait("waker").reason is Reason.BUSY
        await node.turn(later=25)
        assert node.keeper.wait("waker") is None
        assert busy.residency.state is KernelState.RESIDENT

    play(scenario)


def test_host_memory_for_whoever_will_have_to_leave_is_made_ahead(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        busy, waker = node.kernel("busy", 600), node.kernel("waker", 600, KernelState.SWAPPED)
        busy.activity = Activity(1, 1, node.now)
        call(waker, node)
        await node.turn(later=10)
        await node.turn(later=1)
        assert node.keeper.wait("waker").reason is Reason.TURN
        assert busy.residency.prepared == 1

    play(scenario)


def test_who_waits_is_told_of_every_second_and_every_change(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        busy, waker = node.kernel("busy", 600), node.kernel("waker", 600, KernelState.SWAPPED)
        busy.activity = Activity(1, 1, node.now)
        call(waker, node)
        await node.turn(later=10)
        node.told.clear()
        await node.turn(later=0.5)
        assert node.told == []
        await node.turn(later=0.6)
        assert node.told == ["waker"]
        node.told.clear()
        await node.turn(later=30)
        await node.turn()  # as when the move that began reports it
        node.keeper.remove("busy")
        # the last report: its end
        assert (set(node.told), node.told[-1]) == ({"busy", "waker"}, "busy")

    play(scenario)


def test_the_keeper_tells_how_long_a_kernel_that_is_out_would_wait(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        away = node.kernel("away", 600, KernelState.SWAPPED)
        await node.turn()
        alone = node.keeper.restore_seconds("away")
        assert alone is not None
        node.kernel("idle", 600)
        node.look()
        await node.turn()
        beside = node.keeper.restore_seconds("away")
        assert beside is not None
        assert beside > alone
        assert node.keeper.restore_seconds("idle") is None
        call(away, node)
        await node.turn(later=10)
        assert node.keeper.wait("away") is not None

    play(scenario)


def test_the_keeper_learns_when_a_kernels_next_cell_comes(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        kernel = node.kernel("regular", 100)
        for pause in (50, 50, 50, 50, 20):
            kernel.activity = Activity(1, 1, node.now)
            await node.turn()
            await node.turn(later=10)
            kernel.activity = Activity(0, 0, node.now)
            await node.turn()
            await node.turn(later=pause)
        rest = node.keeper.record("regular").view(node.moment()).expected_rest_seconds
        assert rest is not None
        assert 12 <= rest <= 44  # of pauses between 32 and 64 s, one that has lasted 20 s

    play(scenario)


def test_kernels_come_and_go_without_a_pass_where_none_waits(play: Any) -> None:
    """A pass looks at all kernels, and a gateway of many users starts and ends some each second."""

    async def scenario(node: ANode) -> None:
        node.kernel("a", 100)
        assert not node.keeper.is_pass_due
        assert node.told == ["a"], "its state was told at once"
        node.keeper.remove("a")
        assert not node.keeper.is_pass_due

    play(scenario)


def test_a_kernel_that_ends_leaves_its_room_to_one_that_waits(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        big, out = node.kernel("big", 900), node.kernel("out", 500, KernelState.SWAPPED)
        assert node.keeper.is_pass_due, "one that is out may be wanted"
        big.activity = Activity(1, 1, node.now)
        big.residency.telemetry = Telemetry(last_call=node.now, calls_inside=1)
        call(out, node)
        await node.turn()
        assert out.residency.state is KernelState.SWAPPED
        assert not node.keeper.is_pass_due
        node.kernels.remove(big)
        node.keeper.remove("big")
        assert node.keeper.is_pass_due
        await node.turn()
        assert out.residency.state is KernelState.SWAPPING_IN

    play(scenario)
