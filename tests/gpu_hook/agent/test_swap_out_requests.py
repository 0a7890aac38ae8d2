"""A user's request to swap a kernel out: what it waits for, and what ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from keeper_node import MIB, ANode

from jupyter_aliquot.gpu_hook.agent.activity.idleness import Activity, Telemetry
from jupyter_aliquot.gpu_hook.agent.swap.facts import MoveRefusal, MoveResult
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


def test_what_was_asked_out_leaves_and_stays_if_it_became_busy(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        asked, busy = node.kernel("asked", 300), node.kernel("busy", 300)
        for kernel in (asked, busy):
            node.keeper.record(kernel.kernel_id).asked_out_at = node.now
        busy.activity = Activity(1, 1, node.now)
        await node.turn()
        assert asked.residency.state is KernelState.SWAPPING_OUT
        assert busy.residency.state is KernelState.RESIDENT
        await node.finish(asked)
        busy.activity = Activity(0, 0, node.now)
        await node.turn(later=5)
        assert busy.residency.state is KernelState.SWAPPING_OUT

    play(scenario)


@pytest.mark.parametrize("used", [True, False], ids=["used once, by a short cell", "two minutes later"])
def test_a_request_to_swap_out_lapses(play: Any, used: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scenario(node: ANode) -> None:
        kernel, node.host_room = node.kernel("asked", 300), 100 * MIB
        kernel.activity = Activity(0, 0, node.now)
        node.keeper.record("asked").asked_out_at = node.now
        await node.turn(later=60)
        if used:
            kernel.residency.telemetry = Telemetry(last_call=node.now)
        await node.turn(later=1 if used else 61)
        node.host_room = 300 * MIB
        await node.turn(later=10)
        assert kernel.residency.state is KernelState.RESIDENT
        assert node.keeper.why_asked_out_waits("asked") is None

    play(scenario)
    [lapse] = [one.getMessage() for one in caplog.records if "event=swap_out_lapsed" in one.getMessage()]
    assert f"kernel=asked is_used={used} waited_for=" in lapse
    assert used or "'host memory for its copy'" in lapse


def test_a_late_report_of_calls_before_a_request_to_swap_out_does_not_end_it(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        kernel = node.kernel("asked", 300)
        kernel.activity = Activity(0, 0, node.now)
        await node.turn(later=1)
        node.keeper.record("asked").asked_out_at = node.now
        kernel.residency.telemetry = Telemetry(last_call=node.now + 0.5)  # the hook's thread ran late
        await node.turn(later=1)
        assert kernel.residency.state is KernelState.RESIDENT
        assert node.keeper.why_asked_out_waits("asked") == "the end of its work (it used its devices just now)"
        await node.turn(later=2)
        assert kernel.residency.state is KernelState.SWAPPING_OUT
        assert node.keeper.why_asked_out_waits("asked") is None

    play(scenario)


def test_a_request_to_swap_out_says_that_it_waits_for_host_memory(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        kernel, node.host_room = node.kernel("asked", 300), 100 * MIB
        kernel.activity = Activity(0, 0, node.now)
        node.keeper.record("asked").asked_out_at = node.now
        await node.turn()
        assert kernel.residency.state is KernelState.RESIDENT
        assert node.keeper.why_asked_out_waits("asked") == "host memory for its copy"
        node.host_room = 300 * MIB
        await node.turn(later=1)
        assert kernel.residency.state is KernelState.SWAPPING_OUT

    play(scenario)


def test_a_request_to_swap_out_says_why_the_last_try_failed(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        kernel = node.kernel("asked", 300)
        kernel.activity = Activity(0, 0, node.now)
        refused = MoveRefusal(MoveResult.BUSY, "the device was still at work", node.now + 8)
        kernel.residency.refusal = refused
        node.keeper.record("asked").asked_out_at = node.now
        await node.turn()
        assert node.keeper.why_asked_out_waits("asked") == "another try (the device was still at work)"
        await node.turn(later=8)
        assert kernel.residency.state is KernelState.SWAPPING_OUT

    play(scenario)


def test_a_request_to_swap_out_outlives_a_move_that_failed(play: Any) -> None:
    async def scenario(node: ANode) -> None:
        kernel = node.kernel("asked", 300)
        node.keeper.record("asked").asked_out_at = node.now
        await node.turn()
        await node.finish(kernel, MoveResult.SILENT)
        assert kernel.residency.state is KernelState.RESIDENT
        await node.turn(later=2)
        assert kernel.residency.state is KernelState.SWAPPING_OUT
        await node.finish(kernel)
        assert node.keeper.record("asked").asked_out_at is None

    play(scenario)
