"""A kernel with an NCCL communicator, or with memory shared by CUDA IPC, stays on its GPU and counts in full."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jupyter_aliquot.gpu_hook.agent.swap.facts import MoveResult
from jupyter_aliquot.gpu_hook.protocol.codec import PinReason

if TYPE_CHECKING:
    from tests.gpu_hook.agent.residency_node import PART, RESERVATION, ANodeHere
    from tests.gpu_hook.agent.scripted_hook import MIB
else:
    from residency_node import PART, RESERVATION, ANodeHere
    from scripted_hook import MIB

Scenario = Callable[[ANodeHere], Coroutine[Any, Any, None]]
BURSTABLE = replace(PART, guarantee_bytes=64 * MIB)


@pytest.fixture
def play(a_folder: Path) -> Callable[[Scenario], None]:
    def play(scenario: Scenario) -> None:
        async def run() -> None:
            node = ANodeHere(a_folder)
            try:
                await asyncio.wait_for(scenario(node), 60)
                node.ledger.check()
            finally:
                node.close()

        asyncio.run(run())

    return play


@pytest.mark.parametrize(
    ("reason", "told"), [(PinReason.NCCL, "stays on GPU: NCCL"), (PinReason.IPC, "stays on GPU: CUDA IPC")]
)
def test_its_limit_is_reserved_while_it_stays(reason: PinReason, told: str, play: Callable[[Scenario], None]) -> None:
    async def scenario(node: ANodeHere) -> None:
        node.ledger.resize("k", (BURSTABLE,), None, is_production=True)
        node.kernel.resize(replace(RESERVATION, parts=(BURSTABLE,)), None)
        hook = await node.a_hook(4)
        node.kernel.sample()
        free = node.ledger.device_states("production")[0].free_bytes
        hook.pin(reason)
        node.kernel.sample()
        assert node.residency.facts().mode_reason == told
        assert (await node.residency.swap_out("test")).result is MoveResult.REFUSED
        assert hook.orders == []
        assert node.kernel.accounts[0].part.reserved_bytes == 256 * MIB
        assert node.kernel.accounts[0].part.is_kept, "the room beside it is not overcommitted"
        assert node.ledger.device_states("production")[0].free_bytes == free - 192 * MIB
        hook.pin(PinReason(0))
        node.kernel.sample()
        assert node.residency.facts().mode_reason == ""
        assert node.ledger.device_states("production")[0].free_bytes == free
        assert (await node.residency.swap_out("test")).is_done

    play(scenario)


def test_other_memory_that_stays_does_not_hold_the_kernel(play: Callable[[Scenario], None]) -> None:
    async def scenario(node: ANodeHere) -> None:
        hook = await node.a_hook(4)
        hook.pin(PinReason.POOL | PinReason.EXPORTED)
        assert node.residency.facts().mode_reason == ""

    play(scenario)
