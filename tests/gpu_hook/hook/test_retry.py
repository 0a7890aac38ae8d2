"""Credit that the agent lent, and a driver that refuses it.

The call waits for bytes that are about to be free.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage, ResidencyMode

MIB = 1 << 20
OUT_OF_MEMORY = 2
# The wait for the driver takes two seconds, in which a busy machine may not deliver the interrupt.
_TRIES = 5
CALLS = (
    "alloc(100 * MIB)",
    "alloc_pitch(MIB, 100)",
    "create(100 * MIB)",
    "alloc_async(100 * MIB)",
    "alloc_async(100 * MIB, '_ptsz')",
    "new_array(5120, 5120)",
    "new_flat_array(5120, 5120)",
    "new_mipmapped(5120, 5120, 1)",
)


def a_kernel(node: Any, mode: ResidencyMode) -> tuple[Any, Any, Any]:
    """Make a kernel with a quota of 128 MiB, and an outsider with 200 MiB.

    The device has 256 MiB.
    """
    node.agent.residency_mode = mode
    outsider = node.outsider()
    assert outsider("begin()") == 0
    agent = node.grant((outsider("uuid(0)"), 128 * MIB))
    program = node.program()
    assert program("begin()") == 0
    assert outsider(f"alloc({200 * MIB})")[0] == 0
    return agent, program, outsider


def call(program: Any, text: str) -> tuple[int, float]:
    start = time.monotonic()
    code = program(text.replace("MIB", str(MIB)))[0]
    return code, time.monotonic() - start


@pytest.mark.parametrize("text", CALLS)
@pytest.mark.parametrize("mode", [ResidencyMode.OFF, ResidencyMode.VMM])
def test_a_call_waits_for_the_bytes_of_a_process_that_died(
    make_node: Callable[..., Any], text: str, mode: ResidencyMode
) -> None:
    node = make_node(memory="256MiB", teardown_ms=400)
    _, program, outsider = a_kernel(node, mode)
    outsider.kill()
    code, seconds = call(program, text)
    assert (code, seconds > 0.3) == (0, True)
    assert "event=driver_refused device=0 bytes=104857600 waits=yes" in node.log.read_text()


def test_a_device_that_stays_full_is_waited_for_once_and_the_charge_comes_back(make_node: Callable[..., Any]) -> None:
    node = make_node(memory="256MiB")
    agent, program, outsider = a_kernel(node, ResidencyMode.OFF)
    first, second = call(program, CALLS[0]), call(program, CALLS[0])
    assert (first[0], second[0]) == (OUT_OF_MEMORY, OUT_OF_MEMORY)
    assert first[1] >= 2.0
    assert node.log.read_text().count("event=driver_refused") == 1
    assert agent.process().word(0, HookPage.CHARGED) == 0
    outsider.kill()
    assert call(program, CALLS[0])[0] == 0


def an_interrupted_wait(node: Any, mode: ResidencyMode, text: str) -> tuple[Any, Any, Any]:
    """Send an interrupt to a call that waits for the driver, and wait for its end."""
    agent, program, outsider = a_kernel(node, mode)
    program("signal.signal(signal.SIGINT, lambda *_: None) and None")
    program.ask(text.replace("MIB", str(MIB)))
    agent.wait_for(lambda: "event=driver_refused" in node.log.read_text() and program.is_asleep())
    os.kill(program.pid, signal.SIGINT)
    assert program.answer()[0] == OUT_OF_MEMORY
    return agent, program, outsider


@pytest.mark.parametrize("text", CALLS)
@pytest.mark.parametrize("mode", [ResidencyMode.OFF, ResidencyMode.VMM])
def test_an_interrupt_ends_the_wait_for_the_driver(
    make_node: Callable[..., Any], text: str, mode: ResidencyMode
) -> None:
    for _ in range(_TRIES):
        node = make_node(memory="256MiB")
        agent, program, outsider = an_interrupted_wait(node, mode, text)
        if "event=wait_ended reason=interrupt" in node.log.read_text():
            break
    else:
        pytest.fail(f"no interrupt ended the wait: {node.log.read_text()}")
    assert agent.process().word(0, HookPage.CHARGED) == 0
    outsider.kill()
    agent.wait_for(lambda: call(program, text)[0] == 0)


def test_a_driver_that_refuses_though_it_has_room_is_not_waited_for(make_node: Callable[..., Any]) -> None:
    node = make_node(memory="256MiB", faults="cuMemAlloc_v2=2")
    node.agent.residency_mode = ResidencyMode.OFF
    outsider = node.outsider()
    agent = node.grant((outsider("begin()") == 0 and outsider("uuid(0)"), 128 * MIB))
    program = node.program()
    assert program("begin()") == 0
    assert call(program, CALLS[0])[0] == OUT_OF_MEMORY
    assert "event=driver_refused" not in node.log.read_text()
    assert agent.process().word(0, HookPage.CHARGED) == 0
