"""A device that is full to its last byte: its memory can still leave.

Streams, events and registrations take memory, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import MoveOutcome

MIB = 1 << 20
OUT_OF_MEMORY = 2
NO_STREAMS = "cuStreamCreate:1=999,cuStreamCreate:2=999"  # for the first allocation and the first copy
EVENT = "call('cuEventCreate', ctypes.byref(ctypes.c_void_p()), 0)"
FREE = "info()[1]"
SUM = (
    "(lambda copy: [call('cuMemcpyDtoH_v2', copy, U64({at}), SIZE({bytes})), set(copy.raw)])"
    "(ctypes.create_string_buffer({bytes}))"
)


def fill(outsider: Any) -> None:
    """Leave no byte of the device, and show that not even an event has room."""
    for size in (2 * MIB, 64 << 10, 512, 1):
        while outsider(f"alloc({size})")[0] == 0:
            pass
    assert outsider(EVENT) == OUT_OF_MEMORY


@pytest.mark.parametrize("held_mib", [4, 40])
def test_memory_leaves_a_full_device_and_comes_back(held_mib: int, make_kernel: Callable[..., Any]) -> None:
    kernel = make_kernel(held=held_mib * MIB, memory="64MiB", resource="64KiB")
    kernel.orders.add_segment(held_mib * MIB)
    outsider = kernel.node.outsider()
    assert outsider("begin()") == 0
    fill(outsider)
    for _ in range(3):
        kernel.swap_out()
        kernel.swap_in()
    at = kernel.program("kept[0]")
    assert kernel.program(f"{SUM.format(at=at, bytes=held_mib * MIB)}[1] == {{7}}") is True
    assert "few_lane_resources" not in kernel.node.log.read_text()


def test_the_first_swappable_allocation_fails_where_what_its_copy_needs_has_no_room(
    make_kernel: Callable[..., Any],
) -> None:
    kernel = make_kernel(held=0, memory="64MiB", resource="64KiB")
    outsider = kernel.node.outsider()
    assert outsider("begin()") == 0
    assert outsider(f"alloc({58 * MIB})")[0] == 0
    assert outsider(FREE) == 6 * MIB
    assert kernel.program(f"alloc({6 * MIB})")[0] == OUT_OF_MEMORY
    assert kernel.program(f"alloc({4 * MIB})")[0] == 0
    fill(outsider)
    assert kernel.orders.swap_out().outcome is MoveOutcome.DONE


def test_what_copies_need_goes_with_its_context_and_is_made_again(make_kernel: Callable[..., Any]) -> None:
    kernel = make_kernel(held=4 * MIB, memory="64MiB", resource="64KiB")
    outsider = kernel.node.outsider()
    assert outsider("begin()") == 0
    left = set()
    for _ in range(3):
        assert kernel.program("call('cuDevicePrimaryCtxReset_v2', 0)") == 0
        assert kernel.program(f"use() or alloc({4 * MIB})[0]") == 0
        left.add(outsider(FREE))
        kernel.swap_out()
        kernel.swap_in()
    assert len(left) == 1


def test_what_copies_need_is_made_again_where_memory_outlives_the_context_that_had_it(
    make_kernel: Callable[..., Any],
) -> None:
    """The streams are the primary context's; memory of another one stays when that is reset."""
    kernel = make_kernel(held=4 * MIB, memory="64MiB", resource="64KiB")
    assert kernel.program("new_context()")[0] == 0
    assert kernel.program(f"alloc({4 * MIB})")[0] == 0
    outsider = kernel.node.outsider()
    assert outsider("begin()") == 0
    assert kernel.program("call('cuDevicePrimaryCtxReset_v2', 0)") == 0
    fill(outsider)
    kernel.swap_out()
    kernel.swap_in()
    assert "few_lane_resources" not in kernel.node.log.read_text()


def test_what_a_failed_copy_could_not_make_is_made_when_there_is_room(make_kernel: Callable[..., Any]) -> None:
    kernel = make_kernel(held=4 * MIB, memory="64MiB", resource="64KiB", faults=NO_STREAMS)
    assert kernel.orders.swap_out().outcome is MoveOutcome.FAILED
    outsider = kernel.node.outsider()
    assert outsider("begin()") == 0
    assert kernel.program(f"alloc({4 * MIB})")[0] == 0
    fill(outsider)
    kernel.orders.add_segment(8 * MIB)
    kernel.swap_out()
    kernel.swap_in()
