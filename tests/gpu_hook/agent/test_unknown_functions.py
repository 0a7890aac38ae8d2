"""A kernel whose process called a function that its hook does not know stays on its GPU."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jupyter_aliquot.gpu_hook.agent.swap.facts import MoveResult

if TYPE_CHECKING:
    from tests.gpu_hook.agent.residency_node import SETTINGS, ANodeHere, until
else:
    from residency_node import SETTINGS, ANodeHere, until

Scenario = Callable[[ANodeHere], Coroutine[Any, Any, None]]


@pytest.fixture
def play(a_folder: Path) -> Callable[..., None]:
    def play(scenario: Scenario, **settings: Any) -> None:
        async def run() -> None:
            budget = settings.pop("budget", 256 << 20)
            node = ANodeHere(a_folder, replace(SETTINGS, **settings), budget)
            try:
                await asyncio.wait_for(scenario(node), 60)
                node.ledger.check()
            finally:
                node.close()

        asyncio.run(run())

    return play


def test_a_kernel_with_an_unknown_driver_function_stays_until_that_process_ends(play: Any) -> None:
    async def scenario(node: ANodeHere) -> None:
        hooks = [await node.a_hook(4, seed=number) for number in range(2)]
        assert node.residency.facts().mode_reason == ""
        hooks[1].call_unknown(b"cuMysteryCreate")
        facts = node.residency.facts()
        assert (facts.is_swappable, facts.mode_reason) == (False, "unknown driver function cuMysteryCreate")
        move = await node.residency.swap_out("test")
        assert (move.result, move.text) == (MoveResult.REFUSED, facts.mode_reason)
        assert [len(hook.orders) for hook in hooks] == [0, 0]
        hooks[1].die()
        await until(lambda: node.residency.facts().is_swappable)
        assert (await node.residency.swap_out("test")).is_done

    play(scenario)


@pytest.mark.parametrize("said", [b"", b"no name!", b"\xff\x00\n", b"x" * 63])
@pytest.mark.parametrize("length", [1, 63, 64, 0xFFFFFFFF])
def test_whatever_a_hook_writes_for_a_name_is_bounded(play: Any, said: bytes, length: int) -> None:
    async def scenario(node: ANodeHere) -> None:
        hook = await node.a_hook(1)
        hook.call_unknown(said, length)
        told = node.residency.facts().mode_reason
        assert told.startswith("unknown driver function ")
        assert told.isprintable()
        assert len(told) < 100

    play(scenario)
