"""Stream-ordered memory leaves its device as other memory does, and its pools keep their rules."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage, Moved, MoveOutcome, PinReason, ResidencyMode

MIB = 1 << 20
QUOTA = 128 * MIB
KEEP_ALL = (1 << 64) - 1
OUT_OF_MEMORY, INVALID_VALUE = 2, 1
USED, RESERVED_HIGH, USED_HIGH = 7, 6, 8
READ = "(lambda word: [call('cuMemcpyDtoH_v2', ctypes.byref(word), U64({}), SIZE(4)), word.value & 0xffffffff])(U64())"


class Kernel:
    """One process in mode `vmm`, its swapping agent, and an outsider on the device."""

    def __init__(self, node: Any, make_orders: Callable[..., Any], stack: ExitStack) -> None:
        node.agent.residency_mode, node.agent.host_quota = ResidencyMode.VMM, 1 << 40
        self.outsider, self.program = node.outsider(), node.program()
        assert self.outsider("begin()") == 0
        self.program("init()")
        self.agent = node.grant((self.program("uuid()"), QUOTA))
        assert self.program("use()") == 0
        self.process = self.agent.process(self.program.pid)
        self.orders = stack.enter_context(make_orders(self.agent, self.process, [128 * MIB]))

    def swap_out(self) -> Moved:
        moved: Moved = self.orders.swap_out()
        assert moved.outcome is MoveOutcome.DONE, moved
        return moved

    def swap_in(self) -> None:
        assert self.orders.swap_in().outcome is MoveOutcome.DONE

    def word(self, offset: int) -> int:
        return int(self.process.word(0, offset))

    def charged(self) -> int:
        return self.word(HookPage.CHARGED)

    def really_free(self) -> int:
        return int(self.outsider("info()")[1])

    def alloc(self, amount: int) -> int:
        code, pointer = self.program(f"alloc_async({amount})")
        assert code == 0
        return int(pointer)

    def fill(self, pointer: int, value: int, amount: int) -> None:
        assert self.program(f"call('cuMemsetD32_v2', U64({pointer}), {value}, SIZE({amount // 4}))") == 0

    def ends(self, pointer: int, amount: int) -> tuple[int, int]:
        """Return the first word and the last one of an allocation."""
        first, last = self.program(READ.format(pointer)), self.program(READ.format(pointer + amount - 4))
        assert (first[0], last[0]) == (0, 0)
        return int(first[1]), int(last[1])


@pytest.fixture
def a_kernel(make_node: Callable[..., Any], make_orders: Callable[..., Any]) -> Iterator[Kernel]:
    with ExitStack() as stack:
        yield Kernel(make_node(devices=1, memory="256MiB"), make_orders, stack)


def test_a_pool_leaves_with_its_contents_and_comes_back_at_the_same_addresses(a_kernel: Kernel) -> None:
    before = a_kernel.really_free()
    sizes = {a_kernel.alloc(amount): amount for amount in (512, MIB + 12, 9 * MIB)}
    for pointer, amount in sizes.items():
        a_kernel.fill(pointer, pointer & 0xFFFFFFFF, amount)
    charged = a_kernel.charged()
    moved = a_kernel.swap_out()
    assert (moved.pin_reasons, moved.devices[0].unswappable_bytes) == (0, 0)
    assert moved.devices[0].swapped_bytes == charged > 10 * MIB
    assert a_kernel.really_free() >= before
    a_kernel.swap_in()
    for pointer, amount in sizes.items():
        assert a_kernel.ends(pointer, amount) == (pointer & 0xFFFFFFFF,) * 2
        assert a_kernel.program(f"free_async({pointer})") == 0
    assert (a_kernel.charged(), a_kernel.word(HookPage.ALLOCATIONS)) == (0, 0)


def test_random_cycles_keep_what_the_pools_hold(a_kernel: Kernel) -> None:
    chance, held = random.Random(11), dict[int, tuple[int, int]]()
    for _ in range(60):
        if held and (chance.random() < 0.4 or len(held) > 12):
            pointer = chance.choice(list(held))
            amount, value = held.pop(pointer)
            assert a_kernel.ends(pointer, amount) == (value, value)
            name = chance.choice(["free_later", "free", "free_async"])
            assert a_kernel.program(f"{name}({pointer})") == 0
        else:
            amount = 4 * chance.randrange(1, 3 * MIB // 4)
            pointer, value = a_kernel.alloc(amount), chance.randrange(1 << 32)
            assert not any(pointer < other + held[other][0] and other < pointer + amount for other in held)
            a_kernel.fill(pointer, value, amount)
            held[pointer] = (amount, value)
        if chance.random() < 0.3:
            assert a_kernel.swap_out().pin_reasons == 0
            a_kernel.swap_in()
    assert len(held) > 3
    for pointer, (amount, value) in held.items():
        assert a_kernel.ends(pointer, amount) == (value, value)


def test_what_a_pool_keeps_unused_does_not_leave_but_goes(a_kernel: Kernel) -> None:
    a_kernel.program(f"keep(default_pool(0), {KEEP_ALL})")
    pointer = a_kernel.alloc(40 * MIB)
    assert a_kernel.program(f"free_async({pointer})") == 0
    assert a_kernel.charged() == a_kernel.program("pool_bytes(default_pool(0))") == 40 * MIB
    assert a_kernel.swap_out().devices[0].swapped_bytes == 0
    assert a_kernel.charged() == 0
    a_kernel.swap_in()


def test_a_free_while_swapped_wakes_no_kernel_and_the_memory_goes(a_kernel: Kernel) -> None:
    kept, freed = a_kernel.alloc(4 * MIB), a_kernel.alloc(36 * MIB)
    charged = a_kernel.charged()
    a_kernel.swap_out()
    assert a_kernel.program(f"free_later({freed})") == 0
    assert a_kernel.program(f"free_later({freed})") == INVALID_VALUE
    assert a_kernel.program("synchronize()") == 0
    assert a_kernel.charged() < charged - 30 * MIB
    assert a_kernel.program(f"pool_bytes(default_pool(0), {USED})") == 4 * MIB
    assert a_kernel.program(f"free_async({kept})") == 0
    assert a_kernel.charged() == 0


def test_a_pools_books_tell_what_the_hook_serves(a_kernel: Kernel) -> None:
    pool = a_kernel.program("new_pool(0)")
    code, pointer = a_kernel.program(f"alloc_from_pool({5 * MIB}, {pool})")
    assert code == 0
    asked = [a_kernel.program(f"pool_bytes({pool}, {attribute})") for attribute in (USED, USED_HIGH, RESERVED_HIGH)]
    assert asked == [5 * MIB, 5 * MIB, a_kernel.charged()]
    owner = "(lambda pool: [call('cuPointerGetAttribute', ctypes.byref(pool), 17, U64({})), pool.value])(U64())"
    assert a_kernel.program(owner.format(pointer + MIB)) == [0, pool]
    assert a_kernel.program(f"end_pool({pool})") == 0
    assert a_kernel.charged() > 0
    assert a_kernel.program(f"free_async({pointer})") == 0
    assert a_kernel.charged() == 0


def test_over_quota_a_pool_first_gives_back_what_other_pools_hold_unused(a_kernel: Kernel) -> None:
    pool = a_kernel.program("new_pool(0)")
    a_kernel.program(f"keep({pool}, {KEEP_ALL})")
    code, pointer = a_kernel.program(f"alloc_from_pool({90 * MIB}, {pool})")
    assert code == 0
    assert a_kernel.program(f"alloc_async({60 * MIB})")[0] == OUT_OF_MEMORY
    assert a_kernel.word(HookPage.REFUSALS) == 1
    assert a_kernel.program(f"free_later({pointer})") == 0
    a_kernel.alloc(60 * MIB)
    assert a_kernel.word(HookPage.REFUSALS) == 1


def test_memory_freed_in_one_stream_serves_another_that_waits_for_it(a_kernel: Kernel) -> None:
    """There is no room for more, so the second allocation takes what the first stream will free."""
    a_kernel.program("globals().update(one=U64(), two=U64())")
    assert a_kernel.program("call('cuStreamCreate', ctypes.byref(one), 1)") == 0
    assert a_kernel.program("call('cuStreamCreate', ctypes.byref(two), 1)") == 0
    take = "(lambda at: [call('cuMemAllocAsync', ctypes.byref(at), SIZE({}), {}), at.value])(U64())"
    code, first = a_kernel.program(take.format(100 * MIB, "one"))
    assert code == 0
    assert a_kernel.program(f"call('cuMemsetD32Async', U64({first}), 5, SIZE({25 * MIB}), one)") == 0
    assert a_kernel.program(f"call('cuMemFreeAsync', U64({first}), one)") == 0
    code, second = a_kernel.program(take.format(100 * MIB, "two"))
    assert code == 0
    assert a_kernel.program(f"call('cuMemsetD32Async', U64({second}), 6, SIZE({25 * MIB}), two)") == 0
    assert a_kernel.program("call('cuStreamSynchronize', two)") == 0
    assert a_kernel.ends(second, 100 * MIB) == (6, 6)
    assert a_kernel.charged() <= QUOTA


LEGACY, PER_THREAD = 0, 2
# The legacy stream and a blocking one keep the order of calls although nothing is queued for it.
in_implicit_order = pytest.mark.parametrize(
    ("works", "frees"),
    [
        pytest.param(f"{LEGACY}", "make_stream(0)", id="legacy-blocking"),
        pytest.param("make_stream(0)", f"{LEGACY}", id="blocking-legacy"),
        pytest.param(f"{LEGACY}", f"{PER_THREAD}", id="legacy-per-thread"),
        pytest.param(f"{PER_THREAD}", f"{LEGACY}", id="per-thread-legacy"),
    ],
)


def free_behind_held_work(a_kernel: Kernel, works: str, frees: str) -> int:
    """Free memory in one stream while work of another stream, which comes first, still has to fill it."""
    pointer = a_kernel.alloc(4 * MIB)
    a_kernel.program(f"globals().update(works={works}, frees={frees}, other=make_stream(1))")
    a_kernel.program("held.append(HeldStream(works))")
    assert a_kernel.program(f"call('cuMemsetD32Async', U64({pointer}), 5, SIZE({MIB}), U64(works))") == 0
    assert a_kernel.program(f"call('cuMemFreeAsync', U64({pointer}), U64(frees))") == 0
    return pointer


@in_implicit_order
def test_freed_memory_stays_mapped_under_work_of_a_stream_that_comes_first(
    a_kernel: Kernel, works: str, frees: str
) -> None:
    free_behind_held_work(a_kernel, works, frees)
    assert a_kernel.program("call('cuStreamSynchronize', U64(other))") == 0
    assert a_kernel.charged() == 4 * MIB
    assert a_kernel.program("held[-1].release()")
    assert a_kernel.program("synchronize('cuCtxSynchronize')") == 0
    assert a_kernel.charged() == 0


@in_implicit_order
def test_freed_memory_serves_no_other_stream_before_work_that_comes_first(
    a_kernel: Kernel, works: str, frees: str
) -> None:
    a_kernel.program(f"keep(default_pool(0), {KEEP_ALL})")
    pointer = free_behind_held_work(a_kernel, works, frees)
    take = f"(lambda at: [call('cuMemAllocAsync', ctypes.byref(at), SIZE({4 * MIB}), U64(other)), at.value])(U64())"
    code, early = a_kernel.program(take)
    assert (code, early == pointer) == (0, False)
    assert a_kernel.program("held[-1].release()")
    assert a_kernel.program("synchronize('cuCtxSynchronize')") == 0
    assert a_kernel.program(take) == [0, pointer]


def test_memory_that_was_freed_in_a_stream_that_ended_is_used_again(a_kernel: Kernel) -> None:
    a_kernel.program(f"keep(default_pool(0), {KEEP_ALL})")
    a_kernel.program("globals().update(one=U64())")
    for _ in range(3):
        assert a_kernel.program("call('cuStreamCreate', ctypes.byref(one), 1)") == 0
        pointer = a_kernel.alloc(70 * MIB)
        assert a_kernel.program(f"call('cuMemFreeAsync', U64({pointer}), one)") == 0
        assert a_kernel.program("call('cuStreamDestroy_v2', one)") == 0
    assert a_kernel.charged() == 70 * MIB


def test_a_pool_that_others_may_open_stays_and_is_told(a_kernel: Kernel) -> None:
    assert a_kernel.program(f"alloc_from_shareable_pool({2 * MIB})")[0] == 0
    moved = a_kernel.swap_out()
    assert moved.pin_reasons == PinReason.POOL
    assert moved.devices[0].unswappable_bytes == a_kernel.charged()
    a_kernel.swap_in()


def test_memory_that_a_capture_allocates_is_the_graphs(a_kernel: Kernel) -> None:
    pointer = a_kernel.alloc(MIB)
    a_kernel.program("globals().update(one=U64(), graph=U64())")
    assert a_kernel.program("call('cuStreamCreate', ctypes.byref(one), 1)") == 0
    used = a_kernel.program(f"pool_bytes(default_pool(0), {USED})")
    assert a_kernel.program("call('cuStreamBeginCapture_v2', one, 0)") == 0
    taken = "(lambda at: [call('cuMemAllocAsync', ctypes.byref(at), SIZE(1 << 20), one), at.value])(U64())"
    assert a_kernel.program(taken)[0] == 0
    assert a_kernel.program("call('cuStreamEndCapture', one, ctypes.byref(graph))") == 0
    assert a_kernel.program(f"pool_bytes(default_pool(0), {USED})") == used
    assert a_kernel.program(f"free_async({pointer})") == 0


def test_threads_share_our_pool_and_leave_nothing_charged(a_kernel: Kernel) -> None:
    a_kernel.program("in_threads(4, lambda: allocate_and_free_in_order(0, 300))")
    assert a_kernel.program("synchronize('cuCtxSynchronize')") == 0
    assert (a_kernel.charged(), a_kernel.word(HookPage.ALLOCATIONS)) == (0, 0)
    assert a_kernel.word(HookPage.PEAK) <= QUOTA


def test_threads_that_ended_leave_no_events_of_their_default_streams(
    make_node: Callable[..., Any], make_orders: Callable[..., Any]
) -> None:
    """Each event takes memory of the device."""
    in_turn = (
        "[in_threads(1, lambda: [use(), free_async(alloc_async(1 << 20, '_ptsz')[1], '_ptsz')]) for _ in range({})]"
    )
    with ExitStack() as stack:
        kernel = Kernel(make_node(devices=1, memory="256MiB", resource="64KiB"), make_orders, stack)
        assert kernel.program(in_turn.format(1)) == [[[0, 0]]]
        after_one = kernel.really_free()
        assert kernel.program(in_turn.format(16)) == [[[0, 0]]] * 16
        assert kernel.really_free() == after_one


def test_a_reset_device_takes_its_pools_along(a_kernel: Kernel) -> None:
    a_kernel.alloc(4 * MIB)
    assert a_kernel.program('call("cuDevicePrimaryCtxReset_v2", 0)') == 0
    assert (a_kernel.charged(), a_kernel.word(HookPage.ALLOCATIONS)) == (0, 0)
