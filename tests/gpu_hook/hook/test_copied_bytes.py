"""The progress of a copy, as the hook's page shows it to waiting users."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage, MoveOutcome, ResidencyMode

MIB = 1 << 20
HELD = 64 * MIB


@pytest.fixture
def hold(make_node: Callable[..., Any], make_orders: Callable[..., Any]) -> Iterator[Callable[..., tuple[Any, Any]]]:
    """Start a process that holds memory; yield its connection, and orders to it."""
    with ExitStack() as stack:

        def made(**softgpu: object) -> tuple[Any, Any]:
            node = make_node(devices=1, memory="256MiB", **softgpu)
            node.agent.residency_mode, node.agent.host_quota = ResidencyMode.VMM, 1 << 40
            program = node.program()
            program("init()")
            agent = node.grant((program("uuid()"), 128 * MIB))
            assert (program("use()"), program(f"alloc({HELD})")[0]) == (0, 0)
            process = agent.process(program.pid)
            return process, stack.enter_context(make_orders(agent, process, [HELD]))

        yield made


def test_a_copy_is_counted_both_ways(hold: Callable[..., tuple[Any, Any]]) -> None:
    process, orders = hold()
    assert process.page_word(HookPage.COPIED_BYTES) == 0
    assert orders.swap_out().outcome is MoveOutcome.DONE
    assert process.page_word(HookPage.COPIED_BYTES) == HELD
    assert orders.swap_in().outcome is MoveOutcome.DONE
    assert process.page_word(HookPage.COPIED_BYTES) == 2 * HELD


def test_a_copy_is_counted_as_it_goes(hold: Callable[..., tuple[Any, Any]]) -> None:
    """A copy that fails on its way keeps its count."""
    process, orders = hold(faults="cuEventSynchronize:3=999")
    assert orders.swap_out().outcome is MoveOutcome.FAILED
    assert 0 < process.page_word(HookPage.COPIED_BYTES) < HELD
