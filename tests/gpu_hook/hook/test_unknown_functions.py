"""Functions of a newer driver: their calls pass the gate, and a process that called one is not swapped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook import paths
from jupyter_aliquot.gpu_hook.protocol.codec import HookPage, MoveOutcome, ResidencyMode

MIB = 1 << 20
ILLEGAL_STATE = 401
SPARES = 64
SHIM = str(paths.shim_dir() / "libcuda.so.1")
REFUSED = (MoveOutcome.REFUSED, "unknown driver function cuMysteryCreate")
# As a program calls it: ints, floats and doubles, in registers and on the stack.
ADD = ", ".join(
    f"ctypes.c_{kind}({number})"
    for number, kind in enumerate(["int", "double", "long", "float", "int", "int", "int", "int"] + ["double"] * 7, 1)
)
ADD += ", 16, 17, 18, ctypes.c_long(19), ctypes.c_double(20)"


@pytest.fixture
def a_kernel(a_null_node: Any) -> tuple[Any, Any]:
    a_null_node.agent.residency_mode = ResidencyMode.VMM
    agent = a_null_node.grant(("10" * 16, 64 * MIB))
    program = a_null_node.program()
    program("init()")
    return agent, program


def called(process: Any) -> str:
    """Return the name on the process's page."""
    length = process.page_word(HookPage.UNKNOWN_FUNCTION_LENGTH) & 0xFFFFFFFF
    start = HookPage.UNKNOWN_FUNCTION
    return bytes(process.hook_page[start : start + length]).decode()


def test_an_unknown_function_is_counted_when_asked_for_and_named_when_called(
    a_kernel: tuple[Any, Any], make_orders: Callable[..., Any]
) -> None:
    agent, program = a_kernel
    process = agent.process()
    assert program("query('cuMysteryCreate')") == [0, SHIM]
    assert program("query('cuMysteryCreate')") == [0, SHIM]
    assert (process.page_word(HookPage.UNKNOWN_SYMBOLS), called(process)) == (2, "")
    with make_orders(agent, process, []) as orders:
        assert orders.swap_out().outcome is MoveOutcome.DONE
        assert orders.swap_in().outcome is MoveOutcome.DONE
        assert program("call_queried('cuMysteryCreate')") == ILLEGAL_STATE
        assert called(process) == "cuMysteryCreate"
        moved = orders.swap_out()
        assert (moved.outcome, moved.text) == REFUSED


def test_an_unknown_function_waits_for_the_gate(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    process = agent.process()
    agent.set_gate(1)
    program.ask("call_queried('cuMysteryCreate')")
    agent.wait_for(lambda: process.page_word(HookPage.WAITING_CALLS) & 0xFFFFFFFF == 1)
    assert called(process) == ""
    agent.set_gate(0)
    assert program.answer() == ILLEGAL_STATE
    assert called(process) == "cuMysteryCreate"


def test_a_swapped_kernel_comes_back_before_an_unknown_function_runs(
    a_kernel: tuple[Any, Any], make_orders: Callable[..., Any]
) -> None:
    agent, program = a_kernel
    process = agent.process()
    with make_orders(agent, process, []) as orders:
        assert orders.swap_out().outcome is MoveOutcome.DONE
        program.ask("call_queried('cuMysteryCreate')")
        orders.await_wake()
        assert called(process) == ""
        assert orders.swap_in().outcome is MoveOutcome.DONE
        assert program.answer() == ILLEGAL_STATE
        assert orders.swap_out().outcome is MoveOutcome.REFUSED


def test_a_spare_forwarder_keeps_every_argument(a_kernel: tuple[Any, Any]) -> None:
    _, program = a_kernel
    assert program(f"[call_queried('cuMysteryAdd', {ADD}) for _ in range(3)]") == [sum(range(1, 21))] * 3


def test_a_call_before_the_agent_is_there_is_told_later(a_null_node: Any) -> None:
    program = a_null_node.program()
    assert program("call_queried('cuMysteryCreate')") == ILLEGAL_STATE
    agent = a_null_node.grant(("10" * 16, 64 * MIB))
    program("begin()")
    process = agent.process(program.pid)
    agent.wait_for(lambda: called(process) == "cuMysteryCreate")
    assert process.page_word(HookPage.UNKNOWN_SYMBOLS) == 1


def test_functions_beyond_the_spare_forwarders_pass_and_the_first_is_named_at_once(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    process = agent.process()
    files = program(f"[query(f'cuMystery{{n}}')[1] for n in range(10, {10 + SPARES})]")
    assert files == [SHIM] * SPARES
    assert called(process) == ""
    assert program(f"query('cuMystery{10 + SPARES}')")[1] != SHIM
    assert called(process) == f"cuMystery{10 + SPARES}"
    assert program("[call_queried(f'cuMystery{n}') for n in range(10, 80)]") == list(range(10, 80))


def test_the_kill_switch_hands_out_the_driver_s_own(a_null_node: Any) -> None:
    program = a_null_node.program(ALIQUOT_HOOK="off")
    assert program("init()") == 0
    assert program("query('cuMysteryCreate')")[1] == a_null_node.hooked_env["ALIQUOT_REAL_CUDA"]


def test_the_fallback_gates_unknown_exports_and_leaves_data_alone(a_null_node: Any) -> None:
    driver = a_null_node.hooked_env["ALIQUOT_REAL_CUDA"]
    agent = a_null_node.grant(("10" * 16, 64 * MIB))
    preload = f"{SHIM}:{paths.shim_dir() / 'libaliquot-preload.so'}"
    program = a_null_node.program(LD_PRELOAD=preload, LD_LIBRARY_PATH=str(paths.shim_dir()))
    program("begin()")
    process = agent.process(program.pid)
    found = f"[holder(find({driver!r}, name)) for name in ('cuMysteryExport', 'cudbgMystery', 'cuMemAlloc_v2')]"
    assert program(found) == [SHIM, driver, SHIM]
    assert called(process) == ""
    assert program(f"ctypes.CFUNCTYPE(ctypes.c_int)(find({driver!r}, 'cuMysteryExport'))()") == ILLEGAL_STATE
    assert called(process) == "cuMysteryExport"
