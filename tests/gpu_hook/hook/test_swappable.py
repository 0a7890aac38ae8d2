"""The memory that leaves the device, the memory that stays, the reasons, and the books of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage, Moved, MoveOutcome, PinReason, ResidencyMode, Wake

MIB = 1 << 20
QUOTA = 128 * MIB
INVALID_VALUE, INVALID_CONTEXT = 1, 201


class Kernel:
    """One process on a device of 256 MiB, its swapping agent, and an outsider on the device."""

    def __init__(self, node: Any, make_orders: Callable[..., Any], stack: ExitStack, mode: ResidencyMode) -> None:
        node.agent.residency_mode = mode
        self.node, self.outsider, self.program = node, node.outsider(), node.program()
        assert self.outsider("begin()") == 0
        self.program("init()")
        self.agent = node.grant((self.program("uuid()"), QUOTA))
        self.agent.host_quota = 1 << 40
        assert self.program("use()") == 0
        self.process = self.agent.process(self.program.pid)
        self.orders = stack.enter_context(make_orders(self.agent, self.process, [64 * MIB, 64 * MIB]))

    def swap_out(self) -> Moved:
        moved: Moved = self.orders.swap_out()
        assert moved.outcome is MoveOutcome.DONE, moved
        return moved

    def swap_in(self) -> Moved:
        moved: Moved = self.orders.swap_in()
        assert moved.outcome is MoveOutcome.DONE, moved
        return moved

    def word(self, offset: int) -> int:
        return int(self.process.word(0, offset))

    def alloc(self, amount: int) -> int:
        code, pointer = self.program(f"alloc({amount})")
        assert code == 0
        return int(pointer)

    def really_free(self) -> int:
        code, free, _ = self.outsider("info()")
        assert code == 0
        return int(free)

    def wakes(self) -> int:
        return sum(isinstance(one, Wake) for one in self.agent.heard)


@pytest.fixture
def make_kernel(make_node: Callable[..., Any], make_orders: Callable[..., Any]) -> Iterator[Callable[..., Kernel]]:
    with ExitStack() as stack:

        def make(mode: ResidencyMode = ResidencyMode.VMM, **softgpu: object) -> Kernel:
            return Kernel(make_node(devices=1, memory="256MiB", **softgpu), make_orders, stack, mode)

        yield make


@pytest.fixture
def a_kernel(make_kernel: Callable[..., Kernel]) -> Kernel:
    return make_kernel()


def test_the_device_is_free_while_memory_is_out_and_the_books_stay_as_they_were(a_kernel: Kernel) -> None:
    before = a_kernel.really_free()
    a_kernel.alloc(33 * MIB)
    a_kernel.alloc(2 * MIB + 1)
    charged = a_kernel.word(HookPage.CHARGED)
    assert (charged, a_kernel.word(HookPage.SWAPPABLE), a_kernel.word(HookPage.SWAPPED)) == (38 * MIB, 38 * MIB, 0)
    shown = a_kernel.program("info()")
    moved = a_kernel.swap_out()
    assert a_kernel.really_free() >= before
    assert [one.swapped_bytes for one in moved.devices][:1] == [38 * MIB]
    assert (a_kernel.word(HookPage.CHARGED), a_kernel.word(HookPage.SWAPPED)) == (charged, 38 * MIB)
    assert a_kernel.program("info()") == shown
    assert a_kernel.wakes() == 0
    a_kernel.swap_in()
    assert (a_kernel.word(HookPage.CHARGED), a_kernel.word(HookPage.SWAPPED)) == (charged, 0)
    assert a_kernel.really_free() <= before - 38 * MIB


STAYERS = {
    PinReason.SMALL: "alloc(4096)",
    PinReason.ARRAY: "new_flat_array(512, 512)",
    PinReason.MANAGED: "alloc_managed(2 << 20)",
    PinReason.POOL: "alloc_from_shareable_pool(2 << 20)",
}


@pytest.mark.parametrize("reason", STAYERS, ids=lambda one: str(one.name).lower())
def test_what_stays_is_told_with_its_reason(reason: PinReason, a_kernel: Kernel) -> None:
    a_kernel.alloc(4 * MIB)
    made = a_kernel.program(STAYERS[reason])
    assert made[0] == 0
    moved = a_kernel.swap_out()
    assert moved.pin_reasons == reason
    assert moved.devices[0].swapped_bytes == 4 * MIB
    assert moved.devices[0].unswappable_bytes == a_kernel.word(HookPage.CHARGED) - 4 * MIB > 0
    a_kernel.swap_in()


def test_an_exported_handle_stays_and_others_of_its_make_leave(a_kernel: Kernel) -> None:
    code, kept = a_kernel.program("create(4 << 20, exported=True)")
    assert code == 0
    code, leaving = a_kernel.program("create(6 << 20, exported=True)")
    assert code == 0
    assert a_kernel.program(f"import_own({kept})")[0] == 0
    moved = a_kernel.swap_out()
    assert moved.pin_reasons == PinReason.EXPORTED
    assert moved.devices[0].swapped_bytes == 6 * MIB
    assert moved.devices[0].unswappable_bytes == 4 * MIB
    assert a_kernel.program(f"release({leaving})") == 0
    assert a_kernel.word(HookPage.SWAPPED) == 0
    assert a_kernel.wakes() == 0
    a_kernel.swap_in()
    assert a_kernel.word(HookPage.CHARGED) == 4 * MIB


def test_a_free_while_swapped_drops_the_copy_and_wakes_nobody(a_kernel: Kernel) -> None:
    kept, freed = a_kernel.alloc(4 * MIB), a_kernel.alloc(8 * MIB)
    fill = "call('cuMemsetD32_v2', U64({}), {}, SIZE(1 << 20))"
    assert a_kernel.program(fill.format(kept, 77)) == 0
    before = a_kernel.really_free()
    a_kernel.swap_out()
    assert a_kernel.program(f"free({freed})") == 0
    assert a_kernel.program(f"free({freed})") == INVALID_VALUE
    assert a_kernel.word(HookPage.CHARGED) == a_kernel.word(HookPage.SWAPPED) == 4 * MIB
    assert a_kernel.wakes() == 0
    a_kernel.swap_in()
    assert a_kernel.really_free() == before + 8 * MIB
    read = (
        f"(lambda word: [call('cuMemcpyDtoH_v2', ctypes.byref(word), U64({kept + 4 * MIB - 8}), SIZE(8)), word.value])"
    )
    assert a_kernel.program(f"{read}(U64())") == [0, 77 << 32 | 77]


def test_swappable_memory_is_not_shared_by_ipc_and_what_comes_after_is(a_kernel: Kernel) -> None:
    swappable = a_kernel.alloc(4 * MIB)
    assert a_kernel.program(f"ipc_handle({swappable})")[0] == INVALID_VALUE
    assert "memory_stays" in a_kernel.node.log.read_text()
    plain = a_kernel.alloc(4 * MIB)
    assert a_kernel.program(f"ipc_handle({plain})")[0] == 0
    moved = a_kernel.swap_out()
    assert moved.pin_reasons == PinReason.IPC
    assert (moved.devices[0].swapped_bytes, moved.devices[0].unswappable_bytes) == (4 * MIB, 4 * MIB)
    a_kernel.swap_in()


def test_memory_of_mode_off_stays(make_kernel: Callable[..., Kernel]) -> None:
    kernel = make_kernel(ResidencyMode.OFF)
    kernel.alloc(4 * MIB)
    assert kernel.word(HookPage.SWAPPABLE) == 0
    assert kernel.orders.swap_out().pin_reasons == PinReason.MODE


def test_quota_holds_for_swappable_memory_and_a_refusal_leaves_nothing(a_kernel: Kernel) -> None:
    before = a_kernel.really_free()
    a_kernel.alloc(100 * MIB)
    assert a_kernel.program(f"alloc({29 * MIB})")[0] == 2
    assert a_kernel.word(HookPage.CHARGED) == 100 * MIB
    assert a_kernel.word(HookPage.REFUSALS) == 1
    assert a_kernel.really_free() == before - 100 * MIB
    assert a_kernel.program("info()")[1:] == [28 * MIB, QUOTA]


@pytest.mark.parametrize(
    "call", ["cuMemCreate:2=2", "cuMemMap:2=1", "cuMemSetAccess:1=999", "cuMemAddressReserve:1=2"], ids=str
)
def test_an_allocation_that_the_driver_breaks_off_leaves_nothing(call: str, make_kernel: Callable[..., Kernel]) -> None:
    kernel = make_kernel(faults=call)
    before = kernel.really_free()
    code, pointer = kernel.program(f"alloc({70 * MIB})")
    if code == 0:  # it was retried, or is plain
        assert kernel.program(f"free({pointer})") == 0
    assert kernel.really_free() == before
    assert kernel.word(HookPage.CHARGED) == kernel.word(HookPage.SWAPPABLE) == 0


def test_unified_memory_looks_like_device_memory_and_leaves(make_kernel: Callable[..., Kernel]) -> None:
    kernel = make_kernel(ResidencyMode.MANAGED)
    pointer = kernel.alloc(8 * MIB)
    assert kernel.program(f"call('cuMemsetD8_v2', U64({pointer}), 3, SIZE({8 * MIB}))") == 0
    used = kernel.really_free()
    moved = kernel.swap_out()
    assert moved.devices[0].swapped_bytes == 8 * MIB
    assert kernel.really_free() == used + 8 * MIB
    kernel.swap_in()
    assert kernel.really_free() == used
    asked = "(lambda flag: [call('cuPointerGetAttribute', ctypes.byref(flag), 8, U64({})), flag.value])(U64())"
    assert kernel.program(asked.format(pointer)) == [0, 0]  # CU_POINTER_ATTRIBUTE_IS_MANAGED
    assert kernel.program(f"free({pointer})") == 0
    assert kernel.word(HookPage.CHARGED) == 0


@pytest.mark.parametrize("mode", [ResidencyMode.VMM, ResidencyMode.MANAGED])
def test_addresses_that_threads_pass_on_are_known_as_the_last_ones(
    mode: ResidencyMode, make_kernel: Callable[..., Kernel]
) -> None:
    """A driver gives an address anew as soon as it has taken it back."""
    program = make_kernel(mode).program
    program("globals().update(lost=[])")
    asked = "call('cuPointerGetAttribute', ctypes.byref(flag), 8, U64(at)) or flag.value"  # IS_MANAGED
    look = f"(lambda code, at, flag: lost.append(code or {asked}) or lost.append(free(at)))(*alloc({2 * MIB}), U64(9))"
    assert program(f"in_threads(6, lambda: [use()] + [{look} for _ in range(1500)]) and sum(lost)") == 0
    assert program("len(lost)") == 6 * 1500 * 2


def test_a_free_in_the_order_of_an_ended_context_lets_others_events_be(make_kernel: Callable[..., Kernel]) -> None:
    kernel = make_kernel()
    pointer, program = kernel.alloc(2 * MIB), kernel.program
    program("globals().update(other=new_context(), events=[U64() for _ in range(64)], stream=U64())")
    assert program("use() or call('cuStreamCreate', ctypes.byref(stream), 1)") == 0
    assert program("call('cuStreamBeginCapture_v2', stream, 2)") == 0  # so that nothing is waited for
    assert program("call('cuCtxSetCurrent', ctypes.c_void_p(other[1]))") == 0
    assert program(f"call('cuMemFreeAsync', U64({pointer}), None)") == 0
    assert program("end_context(other[1]) or use()") == 0
    assert program("sum(call('cuEventCreate', ctypes.byref(one), 0) for one in events)") == 0
    assert program("call('cuStreamEndCapture', stream, ctypes.byref(ctypes.c_void_p()))") == 0
    assert program("[call('cuEventQuery', one) for one in events]") == [0] * 64
    assert kernel.word(HookPage.CHARGED) == 0


def test_a_peer_that_refuses_costs_no_other_peer_its_access(make_node: Callable[..., Any]) -> None:
    """The first call names all devices, the later ones each its own.

    The second peer of three devices refuses.
    """
    node = make_node(devices=3, memory="256MiB", faults="cuMemSetAccess:1=801,cuMemSetAccess:3=801")
    node.agent.residency_mode, node.agent.host_quota = ResidencyMode.VMM, 1 << 40
    program = node.program()
    assert program("init()") == 0
    node.grant(*((program(f"uuid({device})"), QUOTA) for device in range(3)))
    assert program("[use(device) for device in (2, 1, 0)]") == [0] * 3
    code, pointer = program(f"alloc({4 * MIB})")
    assert code == 0
    ask = (
        "(lambda found: [ctypes.CDLL(os.environ['ALIQUOT_REAL_CUDA']).cuMemGetAccess(ctypes.byref(found), "
        "(ctypes.c_int * 2)(1, {device}), U64({pointer})), found.value])(ctypes.c_ulonglong())"
    )
    want = [[0, 3], [0, 0], [0, 3]]
    assert [program(ask.format(device=device, pointer=pointer)) for device in range(3)] == want
