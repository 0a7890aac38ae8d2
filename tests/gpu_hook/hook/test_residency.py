"""The waiting calls and the reports of a process whose memory or whose kernel's lease is away."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shared_words import load_half, store_half

from jupyter_aliquot.gpu_hook.protocol.codec import (
    AgentPage,
    HookPage,
    Lease,
    MessageType,
    Moved,
    MoveOutcome,
    Residency,
    ResidencyMode,
    WorkloadClass,
)

MIB = 1 << 20
FILL = "call('cuMemsetD8_v2', U64(kept[0]), 7, SIZE(4096))"
STREAM = "call('cuStreamCreate', ctypes.byref(streams.setdefault('one', U64())), 1)"
CAPTURE = f"{STREAM} or call('cuStreamBeginCapture_v2', streams['one'], 0)"
NOT_INITIALIZED = 3


@pytest.fixture
def a_kernel(make_kernel: Callable[..., Any]) -> Any:
    return make_kernel()


def test_calls_of_a_swapped_process_wake_it_once_and_wait(a_kernel: Any) -> None:
    a_kernel.swap_out()
    a_kernel.program.ask(f"in_threads(3, lambda: use() or {FILL})")
    a_kernel.await_waiting(3)
    a_kernel.agent.wait_for(lambda: a_kernel.wakes() == 1)  # the page is ahead of the message
    assert a_kernel.half(HookPage.RESIDENCY) == Residency.SWAPPED
    a_kernel.swap_in()
    assert a_kernel.program.answer() == [0, 0, 0]
    a_kernel.await_waiting(0)
    a_kernel.swap_out()
    a_kernel.program.ask(FILL)
    a_kernel.agent.wait_for(lambda: a_kernel.wakes() == 2)
    a_kernel.swap_in()
    assert a_kernel.program.answer() == 0


WAITING = [
    FILL,
    "call('cuMemcpyHtoD_v2', U64(kept[0]), bytes(4096), SIZE(4096))",
    "alloc(4096)[0]",
    f"alloc({4 * MIB})[0]",
    "alloc_async(4096)[0]",
    "create(1 << 21)[0]",
    "new_context()[0]",
    "spin(1)",
]


@pytest.mark.parametrize("call", WAITING)
def test_what_needs_the_device_waits(call: str, a_kernel: Any) -> None:
    a_kernel.swap_out()
    a_kernel.program.ask(call)
    a_kernel.await_waiting(1)
    a_kernel.swap_in()
    assert a_kernel.program.answer() == 0


@pytest.mark.parametrize(
    "call",
    [
        "info()[0]",
        "total()[0]",
        "call('cuPointerGetAttribute', ctypes.byref(ctypes.c_int()), 2, U64(kept[0]))",
        "call('cuMemGetAddressRange_v2', ctypes.byref(U64()), ctypes.byref(SIZE()), U64(kept[0]))",
        "call('cuCtxGetDevice', ctypes.byref(ctypes.c_int()))",
        "call('cuCtxSynchronize')",
        "call('cuStreamQuery', None)",
        "call('cuMemAllocHost_v2', ctypes.byref(ctypes.c_void_p()), SIZE(4096))",
        "call('cuModuleUnload', modules.pop())",
        "free(kept.pop())",
    ],
)
def test_questions_and_frees_do_not_wait(call: str, a_kernel: Any) -> None:
    a_kernel.swap_out()
    assert a_kernel.program(call) == 0
    assert a_kernel.wakes() == 0
    a_kernel.swap_in()


def test_spare_credit_goes_back_with_the_memory(make_kernel: Callable[..., Any]) -> None:
    a_kernel = make_kernel(held=0)
    assert a_kernel.program("[free(alloc(4096)[1])]") == [0]
    assert a_kernel.process.lent[0] > 0
    a_kernel.swap_out()
    a_kernel.agent.wait_for(lambda: a_kernel.process.lent[0] == 0)


def test_a_process_waits_for_the_lease_though_nothing_was_moved(
    make_kernel: Callable[..., Any], tmp_path: Path
) -> None:
    a_kernel, end = make_kernel(held=0), tmp_path / "end"
    a_kernel.set_lease(Lease.ENDED)
    a_kernel.program.ask(f"{{free(alloc(4096)[1]) for _ in iter(lambda: os.path.exists({str(end)!r}), True)}} == {{0}}")
    a_kernel.await_waiting(1)
    a_kernel.agent.wait_for(lambda: a_kernel.wakes() == 1)
    end.touch()
    a_kernel.set_lease(Lease.HELD)
    assert a_kernel.program.answer() is True


def test_a_kernel_without_the_lease_gets_no_new_context(a_kernel: Any) -> None:
    a_kernel.agent.lease = Lease.ENDED
    second = a_kernel.node.program()
    assert second("init()") == 0
    process = a_kernel.agent.process(second.pid)
    second.ask("use()")
    a_kernel.agent.wait_for(lambda: load_half(process.hook_page, HookPage.WAITING_CALLS) == 1, 30)
    store_half(process.agent_page, AgentPage.LEASE, Lease.HELD)
    assert second.answer() == 0


def test_mode_off_is_refused_and_nothing_stops(make_kernel: Callable[..., Any]) -> None:
    a_kernel = make_kernel(ResidencyMode.OFF)
    moved = a_kernel.orders.swap_out()
    assert (moved.outcome, moved.residency) == (MoveOutcome.REFUSED, Residency.RESIDENT)
    assert "mode" in moved.text
    assert a_kernel.program(FILL) == 0


def test_a_device_that_does_not_come_to_rest_keeps_everything(a_kernel: Any) -> None:
    hurried = a_kernel.new_orders(drain_milliseconds=20)
    assert a_kernel.program("spin(2000, waits=False)") == 0
    moved = hurried.swap_out()
    assert (moved.outcome, moved.residency) == (MoveOutcome.BUSY, Residency.RESIDENT), moved
    assert a_kernel.program(FILL) == 0
    a_kernel.swap_out()  # now it waits long enough
    a_kernel.swap_in()
    assert a_kernel.program(FILL) == 0


def test_a_context_can_end_while_a_late_wait_is_in_it(a_kernel: Any) -> None:
    hurried = a_kernel.new_orders(drain_milliseconds=20)
    made = a_kernel.program("new_context()")
    assert made[0] == 0
    assert a_kernel.program("spin(1300, waits=False)") == 0
    assert hurried.swap_out().outcome is MoveOutcome.BUSY
    assert a_kernel.program(f"end_context({made[1]})") == 0
    assert a_kernel.program(f"use() or {FILL}") == 0
    a_kernel.swap_out()
    a_kernel.swap_in()


def test_a_capture_under_way_is_not_hurt(a_kernel: Any) -> None:
    program = a_kernel.program
    assert program(CAPTURE) == 0
    moved = a_kernel.orders.swap_out()
    assert (moved.outcome, moved.residency) == (MoveOutcome.BUSY, Residency.RESIDENT)
    assert "capture" in moved.text
    assert program("call('cuStreamEndCapture', streams['one'], ctypes.byref(ctypes.c_void_p()))") == 0
    a_kernel.swap_out()
    a_kernel.swap_in()


def test_a_second_order_in_the_same_direction_changes_nothing(a_kernel: Any) -> None:
    assert a_kernel.orders.swap_in().outcome is MoveOutcome.REFUSED
    a_kernel.swap_out()
    moved = a_kernel.orders.swap_out()
    assert (moved.outcome, moved.residency) == (MoveOutcome.REFUSED, Residency.SWAPPED)
    a_kernel.swap_in()
    assert a_kernel.program(FILL) == 0


@pytest.mark.parametrize("workload_class", list(WorkloadClass))
def test_a_swapped_process_waits_for_the_next_agent(workload_class: WorkloadClass, a_kernel: Any) -> None:
    a_kernel.agent.set_workload_class(workload_class)
    a_kernel.swap_out()
    a_kernel.agent.stop()
    a_kernel.program.ask(FILL)
    a_kernel.agent.heard.clear()
    a_kernel.agent.start()
    hello = a_kernel.process.hello
    assert hello.residency is Residency.SWAPPED
    a_kernel.agent.wait_for(lambda: a_kernel.wakes() == 1)
    told = [one for one in a_kernel.agent.heard if isinstance(one, Moved)]
    assert [(one.sequence, one.residency) for one in told] == [(0, Residency.SWAPPED)]
    a_kernel.await_waiting(1)
    moved = a_kernel.new_orders().swap_in()
    assert (moved.outcome, moved.residency) == (MoveOutcome.DONE, Residency.RESIDENT), moved
    assert a_kernel.program.answer() == 0


def test_a_forked_child_neither_waits_nor_moves(a_kernel: Any) -> None:
    a_kernel.swap_out()
    assert a_kernel.program(f"in_fork(lambda: [{FILL}, info()[0]])") == [NOT_INITIALIZED, NOT_INITIALIZED]
    assert a_kernel.wakes() == 0
    a_kernel.swap_in()
    assert a_kernel.program(FILL) == 0


def test_a_move_outlives_the_agent_that_ordered_it(make_kernel: Callable[..., Any]) -> None:
    a_kernel = make_kernel(held=0)
    assert a_kernel.program("spin(1500, waits=False)") == 0
    a_kernel.begin(MessageType.SWAP_OUT)
    a_kernel.await_residency(Residency.SWAPPING_OUT)
    a_kernel.agent.stop()
    a_kernel.agent.heard.clear()
    a_kernel.agent.start()
    assert a_kernel.process.hello.residency in (Residency.SWAPPING_OUT, Residency.SWAPPED)
    a_kernel.agent.wait_for(lambda: any(isinstance(one, Moved) for one in a_kernel.agent.heard), 30)
    told = {(one.sequence, one.residency) for one in a_kernel.agent.heard if isinstance(one, Moved)}
    assert told == {(0, Residency.SWAPPED)}
    a_kernel.program.ask("alloc(4096)[0]")
    a_kernel.await_waiting(1)
    assert a_kernel.new_orders().swap_in().outcome is MoveOutcome.DONE
    assert a_kernel.program.answer() == 0


def test_a_fork_during_a_move_harms_neither(a_kernel: Any) -> None:
    assert a_kernel.program("spin(1300, waits=False)") == 0
    a_kernel.begin(MessageType.SWAP_OUT)
    a_kernel.await_residency(Residency.SWAPPING_OUT)
    assert a_kernel.program("in_fork(lambda: info()[0])") == NOT_INITIALIZED
    a_kernel.await_residency(Residency.RESIDENT)  # there was no segment for it
    a_kernel.swap_out()
    a_kernel.swap_in()
    assert a_kernel.program(FILL) == 0


def let_be(kernel: Any) -> None:
    pass


def move_out(kernel: Any) -> None:
    assert kernel.program("spin(20000, waits=False)") == 0
    kernel.begin(MessageType.SWAP_OUT)
    kernel.await_residency(Residency.SWAPPING_OUT)


def move_in(kernel: Any) -> None:
    kernel.swap_out()
    kernel.begin(MessageType.SWAP_IN)


def swap_out(kernel: Any) -> None:
    kernel.swap_out()


@pytest.mark.parametrize("go_to", [let_be, move_out, swap_out, move_in])
def test_a_killed_process_leaves_nothing_behind(go_to: Callable[[Any], None], a_kernel: Any) -> None:
    outsider = a_kernel.node.outsider()
    assert outsider("begin()") == 0
    go_to(a_kernel)
    pid = a_kernel.program.pid
    a_kernel.program.kill()
    a_kernel.agent.wait_for(lambda: all(one.hello.pid != pid for one in a_kernel.agent.connections))
    a_kernel.agent.wait_for(lambda: outsider(f"[free(alloc({240 * MIB})[1])]") == [0])


def test_credit_that_waits_for_room_is_waited_for_also_when_the_agent_is_slow(
    make_kernel: Callable[..., Any],
) -> None:
    a_kernel = make_kernel(held=0)
    a_kernel.agent.is_silent = True
    a_kernel.program.ask(f"alloc({4 * MIB})[0]")
    a_kernel.agent.keep_waiting(times=1, pause_seconds=7.0)
    assert a_kernel.program.answer() == 0


@pytest.mark.parametrize(
    ("before", "end"),
    [
        ("0", "call('cuStreamDestroy_v2', streams['one'])"),
        ("globals().update(other=new_context()) or other[0]", "end_context(other[1])"),
    ],
)
def test_a_capture_that_ends_with_its_stream_or_context_holds_nothing(before: str, end: str, a_kernel: Any) -> None:
    program = a_kernel.program
    assert program(f"{before} or {CAPTURE}") == 0
    assert program(f"{end} or use()") == 0
    for _ in range(3):
        code, address = program(f"alloc({100 * MIB})")
        assert (code, program(f"free({address})")) == (0, 0)
    a_kernel.swap_out()
    a_kernel.swap_in()
    assert program(FILL) == 0


def test_a_handle_whose_contexts_ended_comes_back_and_lets_a_context_be_made(
    make_kernel: Callable[..., Any],
) -> None:
    a_kernel = make_kernel(held=0)
    program = a_kernel.program
    assert program(f"globals().update(made=create({2 * MIB}), at=reserve({2 * MIB}))") is None
    assert program(f"map_at(at[1], {2 * MIB}, made[1]) or open_to(at[1], {2 * MIB}, 0)") == 0
    assert program(f"call('cuMemsetD8_v2', U64(at[1]), 7, SIZE({2 * MIB}))") == 0
    a_kernel.swap_out()
    assert program("call('cuDevicePrimaryCtxReset_v2', 0)") == 0
    program.ask("use()")
    a_kernel.await_waiting(1)
    a_kernel.swap_in()
    assert program.answer() == 0
    assert program("read_byte(at[1])") == [0, 7]


def test_without_memory_for_the_list_nothing_moves(make_kernel: Callable[..., Any], tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler
    library, flag = tmp_path / "no_memory.so", tmp_path / "flag"
    source = str(Path(__file__).parent / "no_memory.c")
    subprocess.run([compiler, "-shared", "-fPIC", f'-DFLAG="{flag}"', source, "-o", str(library)], check=True)
    a_kernel = make_kernel(preload=str(library))
    flag.touch()
    assert a_kernel.orders.swap_out().outcome is MoveOutcome.FAILED
    flag.unlink()
    a_kernel.swap_out()
    flag.touch()
    assert a_kernel.orders.swap_in().outcome is MoveOutcome.FAILED
    flag.unlink()
    a_kernel.swap_in()
    assert a_kernel.program("read_byte(kept[0])") == [0, 7]


def test_a_child_waits_for_nothing_that_its_parent_left_behind(a_kernel: Any) -> None:
    """The thread that waits in a context is the parent's alone."""
    hurried = a_kernel.new_orders(drain_milliseconds=20)
    code, context = a_kernel.program("new_context()")
    assert code == 0
    assert a_kernel.program("spin(10_000, waits=False)") == 0
    assert hurried.swap_out().outcome is MoveOutcome.BUSY
    a_kernel.program.ask(f"in_fork(lambda: end_context({context}))")
    assert a_kernel.program.has_answer(5)
    assert a_kernel.program.answer() == NOT_INITIALIZED
    a_kernel.program.kill()
