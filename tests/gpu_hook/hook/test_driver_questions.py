"""The hook's own calls to the driver: none makes a real driver wait, or crash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage, MoveOutcome, Pace, ResidencyMode

MIB = 1 << 20
CAPTURE_FORBIDS = 900
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
STREAM = "globals().update(stream=U64()) or call('cuStreamCreate', ctypes.byref(stream), 1)"
BEGIN = "call('cuStreamBeginCapture_v2', stream, {mode})"
END = "call('cuStreamEndCapture', stream, ctypes.byref(ctypes.c_void_p()))"
IN_MODE = (
    "(lambda mode: [call('cuThreadExchangeStreamCaptureMode', ctypes.byref(mode)), {work}, "
    "call('cuThreadExchangeStreamCaptureMode', ctypes.byref(mode))][1])(ctypes.c_int({mode}))"
)


def calls(log: Path, pid: int, function: str) -> int:
    """Return how often the process called a function of the software GPU."""
    ends = f" function={function}"
    return sum(f"pid={pid} " in line and line.endswith(ends) for line in log.read_text().splitlines())


def test_swappable_memory_comes_and_goes_without_a_free_of_nothing(
    make_kernel: Callable[..., Any], tmp_path: Path
) -> None:
    """A driver may wait for all its work at any cuMemFree, whatever the address."""
    log = tmp_path / "softgpu.log"
    kernel = make_kernel(held=0, log=log)
    program = kernel.program
    pointers = [program(f"alloc({4 * MIB})") for _ in range(3)]
    assert [code for code, _ in pointers] == [0, 0, 0]
    assert [program(f"free({pointer})") for _, pointer in pointers] == [0, 0, 0]
    assert calls(log, program.pid, "cuMemCreate") == 3
    assert calls(log, program.pid, "cuMemFree_v2") == 0


@pytest.mark.parametrize("mode", [ResidencyMode.VMM, ResidencyMode.OFF])
@pytest.mark.parametrize(
    ("begun", "own", "elsewhere", "want"),
    [
        (GLOBAL, GLOBAL, False, CAPTURE_FORBIDS),
        (GLOBAL, GLOBAL, True, CAPTURE_FORBIDS),
        (GLOBAL, THREAD_LOCAL, True, 0),
        (GLOBAL, RELAXED, False, 0),
        (THREAD_LOCAL, GLOBAL, False, CAPTURE_FORBIDS),
        (THREAD_LOCAL, GLOBAL, True, 0),
        (RELAXED, GLOBAL, False, 0),
    ],
)
def test_a_capture_forbids_swappable_memory_as_it_forbids_plain_memory(
    mode: ResidencyMode, begun: int, own: int, elsewhere: bool, want: int, make_kernel: Callable[..., Any]
) -> None:
    program = make_kernel(held=0, mode=mode).program
    assert program(STREAM) == 0
    assert program(BEGIN.format(mode=begun)) == 0
    work = IN_MODE.format(mode=own, work=f"use() or alloc({4 * MIB})[0]")
    assert program(f"in_background(lambda: {work})()" if elsewhere else work) == want
    assert program(END) == (901 if want else 0)  # the forbidden call made the capture invalid


def charged(kernel: Any) -> int:
    return int(kernel.process.word(0, HookPage.CHARGED))


def test_a_context_with_several_uses_ends_with_the_last_one(make_kernel: Callable[..., Any]) -> None:
    kernel = make_kernel(held=0)
    code, context = kernel.program("new_context()")
    assert code == 0
    assert kernel.program(f"alloc({4 * MIB})")[0] == 0
    assert kernel.program("attach() or attach()") == 0
    for _ in range(2):
        assert kernel.program(f"detach({context})") == 0
        assert charged(kernel) == 4 * MIB
    assert kernel.program(f"detach({context})") == 0
    assert charged(kernel) == 0
    kernel.swap_out()  # the hook waits for every live context
    kernel.swap_in()


def test_a_context_that_is_destroyed_ends_whatever_its_uses(make_kernel: Callable[..., Any]) -> None:
    kernel = make_kernel(held=4 * MIB)
    _, context = kernel.program("new_context()")
    assert kernel.program(f"attach() or alloc({4 * MIB})[0]") == 0
    assert kernel.program(f"end_context({context}) or use()") == 0
    assert charged(kernel) == 4 * MIB
    kernel.swap_out()
    kernel.swap_in()


def test_memory_of_a_green_context_is_its_primary_ones(make_kernel: Callable[..., Any]) -> None:
    kernel = make_kernel(held=0)
    code, green, context = kernel.program("new_green()")
    assert code == 0
    assert kernel.program(f"set_current({context})") == 0
    pointers = [kernel.program(f"alloc({4 * MIB})") for _ in range(2)]
    assert [code for code, _ in pointers] == [0, 0]
    assert kernel.program(f"use() or end_green({green})") == 0
    assert charged(kernel) == 8 * MIB
    assert kernel.program(f"free({pointers[0][1]})") == 0
    assert charged(kernel) == 4 * MIB
    assert kernel.program("call('cuDevicePrimaryCtxReset_v2', 0)") == 0
    assert charged(kernel) == 0


def test_a_green_context_ends_under_measurement(a_paced_kernel: Any) -> None:
    kernel = a_paced_kernel
    kernel.order(Pace.MEASURE)
    for _ in range(3):
        code, green, context = kernel.program("new_green()")
        assert code == 0
        assert kernel.program(f"set_current({context}) or spins('kernel', 3, 500) or wait()") == 0
        assert kernel.program(f"use() or end_green({green}) or spins('kernel', 3, 500) or wait()") == 0
    kernel.occupied()


def test_a_pool_that_keeps_its_memory_is_not_asked_about_at_each_synchronization(
    make_kernel: Callable[..., Any], tmp_path: Path
) -> None:
    """RMM and PyTorch's cudaMallocAsync set a threshold without end.

    The hook refunds at once the memory that a pool may release.
    """
    log = tmp_path / "softgpu.log"
    kernel = make_kernel(held=0, log=log)
    program = kernel.program
    assert program("keep(default_pool(0), (1 << 64) - 1)") == 0
    code, pointer = program(f"alloc_async({8 * MIB})")
    assert code == 0
    assert program(f"free_async({pointer})") == 0
    asked = calls(log, program.pid, "cuMemPoolGetAttribute")
    assert program("[synchronize('cuStreamSynchronize') for _ in range(20)]") == [0] * 20
    assert calls(log, program.pid, "cuMemPoolGetAttribute") == asked
    assert charged(kernel) == 8 * MIB
    assert program("keep(default_pool(0), 0) or synchronize('cuStreamSynchronize')") == 0
    assert charged(kernel) == 0


ACCESS = (
    "(lambda found: [ctypes.CDLL(os.environ['ALIQUOT_REAL_CUDA']).cuMemGetAccess(ctypes.byref(found), "
    "(ctypes.c_int * 2)(1, {device}), U64({pointer})), found.value])(ctypes.c_ulonglong())"
)


def test_memory_is_opened_to_a_device_when_the_program_uses_that(make_node: Callable[..., Any]) -> None:
    """On a machine with eight devices every mapping would cost eight times as much."""
    node = make_node(devices=3, memory="64MiB")
    outsider = node.outsider()
    outsider("init()")
    node.agent.residency_mode = ResidencyMode.VMM
    node.grant(*((outsider(f"uuid({device})"), 64 * MIB) for device in range(3)))
    program = node.program()
    assert program("begin()") == 0
    code, pointer = program(f"alloc({4 * MIB})")
    assert code == 0
    reaches = [ACCESS.format(device=device, pointer=pointer) for device in range(3)]
    assert [program(one)[1] for one in reaches] == [3, 0, 0]
    assert program("use(1)") == 0
    assert [program(one)[1] for one in reaches] == [3, 3, 0]
    assert program("new_context(2)")[0] == 0
    assert [program(one)[1] for one in reaches] == [3, 3, 3]


def test_a_wait_for_a_device_that_outlasts_its_order_is_written_down_once(make_kernel: Callable[..., Any]) -> None:
    kernel = make_kernel(held=4 * MIB)
    orders = kernel.new_orders(drain_milliseconds=10)
    assert kernel.program("spin(1000, waits=False)") == 0
    assert orders.swap_out().outcome is MoveOutcome.BUSY
    assert orders.swap_out().outcome is MoveOutcome.BUSY  # the same wait, still
    assert kernel.program("call('cuCtxSynchronize')") == 0
    assert kernel.node.log.read_text().count("event=drain_outlasts contexts=1") == 1
