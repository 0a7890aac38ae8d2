"""Generated forwarders: device calls wait for the gate and show activity; denied calls fail."""

from __future__ import annotations

import os
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import HookPage

MIB = 1 << 20
COPY = "call('cuMemcpyDtoDAsync_v2{}', U64(1), U64(2), SIZE(3), U64(4))"
STATE = "call('cuCheckpointProcessGetState', 1, ctypes.byref(ctypes.c_int()))"
NOT_PERMITTED = 800


@pytest.fixture
def a_kernel(a_null_node: Any) -> tuple[Any, Any]:
    agent = a_null_node.grant(("10" * 16, 64 * MIB))
    program = a_null_node.program()
    program("begin()")
    agent.process()
    return agent, program


def is_held(pid: int) -> bool:
    """Return whether a thread of the process sleeps in the hook.

    Otherwise the program would have answered, or read.
    """
    with open(f"/proc/{pid}/syscall") as file:
        number = file.read().split()[0]
    return number in _SLEEPS[os.uname().machine]


_SLEEPS = {"x86_64": ("202",), "aarch64": ("98",)}  # futex


@pytest.mark.parametrize("suffix", ["", "_ptsz"])
def test_a_copy_keeps_its_arguments_on_the_fast_and_the_slow_way(suffix: str, a_kernel: tuple[Any, Any]) -> None:
    _, program = a_kernel
    copies = f"[{COPY.format(suffix)} for _ in range(1000)]"
    assert program(f"set({copies}).__len__(), set({copies}).pop()") == [1, 0]


@pytest.mark.parametrize(
    "call",
    [
        COPY.format(""),
        COPY.format("_ptsz"),
        "launch(1)",
        "call('cuMemsetD8_v2', 0, 0, 0)",
        "call('cuDevicePrimaryCtxRetain', ctypes.byref(ctypes.c_void_p()), 0)",
        "call('cuCtxCreate_v2', ctypes.byref(ctypes.c_void_p()), 0, 0)",
        "call('cuStreamCreate', ctypes.byref(U64()), 0)",
        "call('cuFuncGetAttribute', ctypes.byref(ctypes.c_int()), 0, None)",
        "call('cuOccupancyMaxActiveBlocksPerMultiprocessor', ctypes.byref(ctypes.c_int()), None, 32, SIZE(0))",
    ],
)
def test_a_closed_gate_holds_what_touches_the_device(call: str, a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    want = program(call)
    agent.set_gate(1)
    program.ask(call)
    agent.wait_for(lambda: is_held(program.pid))
    agent.set_gate(0)
    assert program.answer() == want


def test_a_closed_gate_does_not_hold_questions(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    agent.set_gate(1)
    assert program("call('cuDeviceGetCount', ctypes.byref(ctypes.c_int()))") == 0
    assert program("call('cuParamSetf', None, 7, ctypes.c_float(2.5))") == 0


def test_production_does_not_wait_for_a_dead_agents_gate(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    agent.set_gate(1)
    program.ask(COPY.format(""))
    agent.wait_for(lambda: is_held(program.pid))
    agent.stop()
    assert program.answer() == 0
    assert program("launch(1)") == 0


def test_opportunistic_work_waits_for_the_next_agent(a_kernel: tuple[Any, Any], a_null_node: Any) -> None:
    agent, program = a_kernel
    agent.set_workload_class(protocol.WorkloadClass.OPPORTUNISTIC)
    agent.set_gate(1)
    program.ask(COPY.format(""))
    agent.wait_for(lambda: is_held(program.pid))
    agent.stop()
    agent.wait_for(lambda: "event=not_registered" in a_null_node.log.read_text())
    agent.wait_for(lambda: is_held(program.pid))
    agent.start()
    assert program.answer() == 0


def test_a_copy_shows_activity(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    process = agent.process()
    for _ in range(3):
        before = process.page_word(HookPage.LAST_CALL)
        assert program(COPY.format("")) == 0
        agent.wait_for(lambda before=before: process.page_word(HookPage.LAST_CALL) > before)


def test_a_symbol_that_is_handed_out_but_not_exported_gets_its_gate(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    assert program("query('cuSubgridCreate')")[1].endswith("shim/libcuda.so.1")
    assert program("call('cuSubgridCreate')") == 401
    agent.set_gate(1)
    program.ask("call('cuSubgridCreate')")
    agent.wait_for(lambda: is_held(program.pid))
    agent.set_gate(0)
    assert program.answer() == 401
    assert agent.process().page_word(HookPage.UNKNOWN_SYMBOLS) == 0


def test_checkpoints_are_the_agents_alone(a_kernel: tuple[Any, Any]) -> None:
    _, program = a_kernel
    assert program(STATE) == NOT_PERMITTED


def test_the_kill_switch_opens_every_way(a_null_node: Any) -> None:
    program = a_null_node.program(ALIQUOT_HOOK="off")
    assert program("init()") == 0
    assert program(STATE) == 0
    assert program(f"[{COPY.format('')}, {COPY.format('')}]") == [0, 0]
