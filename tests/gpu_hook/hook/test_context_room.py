"""A context that the driver refuses, because its device is full.

The call asks the agent for room, and calls the driver again.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage, MessageType, Request

MIB = 1 << 20
OUT_OF_MEMORY = 2
CONTEXT = 60 * MIB
MADE = "ctypes.byref(ctypes.c_void_p())"
MAKERS = (
    "begin()",
    f"init() or call('cuCtxCreate', {MADE}, 0, 0)",
    f"init() or call('cuCtxCreate_v2', {MADE}, 0, 0)",
    f"init() or call('cuCtxCreate_v3', {MADE}, None, 0, 0, 0)",
    f"init() or call('cuCtxCreate_v4', {MADE}, None, 0, 0)",
)


@pytest.fixture
def a_full_device(make_node: Callable[..., Any]) -> Any:
    """Make a kernel on a device of 256 MiB, of which an outsider leaves less than a context takes."""
    node = make_node(memory="256MiB")
    node.hooked_env["ALIQUOT_SOFTGPU_CONTEXT"] = "60MiB"
    node.outsider_program = node.outsider()
    assert node.outsider_program("begin()") == 0
    assert node.outsider_program(f"alloc({200 * MIB})")[0] == 0
    node.grant((node.outsider_program("uuid(0)"), 128 * MIB))
    return node


def requests(node: Any) -> list[int]:
    """Return the bytes that each request for a context's room named."""
    asked = node.agent.of(MessageType.CREDIT_REQUEST)
    return [one.bytes for one in asked if one.deadline_milliseconds == Request.CONTEXT]


@pytest.mark.parametrize("maker", MAKERS)
def test_a_context_is_made_when_the_agent_made_room(a_full_device: Any, maker: str) -> None:
    node = a_full_device

    def make_room(least: int) -> int:
        node.outsider_program.kill()
        return CONTEXT

    node.agent.make_room = make_room
    program = node.program()
    assert program(maker) == 0
    assert requests(node) == [0]
    assert node.agent.process().word(0, HookPage.CHARGED) == node.agent.lent() == 0, "room is no loan"
    assert program(f"alloc({100 * MIB})")[0] == 0


@pytest.mark.parametrize("maker", MAKERS)
def test_without_room_the_call_is_out_of_memory_and_the_next_one_may_succeed(a_full_device: Any, maker: str) -> None:
    node = a_full_device
    program = node.program()
    assert program(maker) == OUT_OF_MEMORY
    assert requests(node) == [0]
    node.outsider_program.kill()
    node.agent.wait_for(lambda: program(maker) == 0)


def test_room_that_was_too_small_is_asked_for_once_more_and_for_twice_as_much(a_full_device: Any) -> None:
    node = a_full_device
    node.agent.make_room = lambda least: max(least, 7 * MIB)
    program = node.program()
    assert program(MAKERS[0]) == OUT_OF_MEMORY
    assert requests(node) == [0, 14 * MIB]


def test_an_interrupt_ends_the_wait_for_room(a_full_device: Any) -> None:
    node = a_full_device
    node.agent.is_silent = True
    program = node.program()
    program("signal.signal(signal.SIGINT, lambda *_: None) and None")
    program.ask(MAKERS[0])
    node.agent.wait_for(lambda: bool(requests(node)) and program.is_asleep())
    os.kill(program.pid, signal.SIGINT)
    assert program.answer() == OUT_OF_MEMORY
    node.agent.wait_for(lambda: bool(node.agent.of(MessageType.CREDIT_RETURN)))
    (withdrawn,) = node.agent.of(MessageType.CREDIT_RETURN)
    asked = node.agent.of(MessageType.CREDIT_REQUEST)[-1]
    assert (withdrawn.sequence, withdrawn.bytes, withdrawn.deadline_milliseconds) == (asked.sequence, 0, 1)


def test_without_an_agent_the_driver_decides(make_node: Callable[..., Any]) -> None:
    node = make_node(memory="256MiB")
    outsider = node.outsider()
    assert outsider("begin()") == 0
    assert outsider(f"alloc({200 * MIB})")[0] == 0
    program = node.program(ALIQUOT_SOFTGPU_CONTEXT="60MiB")
    assert program(MAKERS[0]) == OUT_OF_MEMORY
