"""Claims for every family of memory.

Without a grant there is no memory; the driver's errors stay its own; a free makes room.
"""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage

MIB = 1 << 20
OUT_OF_MEMORY, INVALID_VALUE = 2, 1

# An expression for memory on a device, the way to free it, and its size.
FAMILIES = {
    "linear": ("alloc({bytes})", "free({it})"),
    "pitched": ("alloc_pitch(4096, {bytes} // 4096)", "free({it})"),
    "managed": ("alloc_managed({bytes})", "free({it})"),
    "default pool": ("alloc_async({bytes})", "free_async({it})"),
    "explicit pool": ("alloc_from_pool({bytes}, pool_of({device}))", "free_async({it})"),
    "array": ("new_array(1024, {bytes} // 4096)", "end_array({it})"),
    "mipmapped array": ("new_mipmapped(1024, {bytes} // 4096, 1)", "end_mipmapped({it})"),
    "handle": ("create({bytes}, device={device})", "release({it})"),
    "graph": ("launched_graph({bytes}, {device})", "end_exec({it}) or synchronize() or trim_graphs({device})"),
}
WRONG = {
    "no place for the pointer": "call('cuMemAlloc_v2', None, SIZE(4096))",
    "no bytes": "alloc(0)[0]",
    "managed memory without a flag": "call('cuMemAllocManaged', ctypes.byref(U64()), SIZE(4096), 0)",
    "rows of odd elements": "alloc_pitch(1, 1, 3)[0]",
    "no pool": "alloc_from_pool(4096, 4096)[0]",
    "three channels": "new_array(64, 64, channels=3)[0]",
    "a handle of part of a page": "create(4096)[0]",
    "host memory with an unknown flag": "alloc_host(4096, 'cuMemHostAlloc', 64)[0]",
    "nothing to register": "register(0, 4096)",
}


@pytest.fixture
def a_kernel(a_node: Any) -> tuple[Any, Any]:
    """Grant 64 MiB of device 0 and nothing of device 1."""
    outsider = a_node.outsider()
    outsider("begin()")
    agent = a_node.grant((outsider("uuid()"), 64 * MIB))
    program = a_node.program()
    assert program("begin()") == 0
    return agent, program


def charged(agent: Any) -> int:
    return int(agent.process().word(0, HookPage.CHARGED))


@pytest.mark.parametrize("family", FAMILIES)
def test_over_quota_is_out_of_memory_and_a_free_makes_room(a_kernel: tuple[Any, Any], family: str) -> None:
    agent, program = a_kernel
    allocate, free = FAMILIES[family]
    code, it = program(allocate.format(bytes=48 * MIB, device=0))[:2]
    assert (code, charged(agent)) == (0, 48 * MIB)
    assert program(allocate.format(bytes=24 * MIB, device=0))[0] == OUT_OF_MEMORY
    assert charged(agent) == 48 * MIB
    assert program(free.format(it=it, device=0)) == 0
    assert charged(agent) == 0
    assert program(allocate.format(bytes=24 * MIB, device=0))[0] == 0
    assert charged(agent) == 24 * MIB


@pytest.mark.parametrize("family", FAMILIES)
def test_a_device_that_is_not_granted_gives_nothing(a_kernel: tuple[Any, Any], family: str) -> None:
    _, program = a_kernel
    assert program("use(1)") == 0
    assert program(FAMILIES[family][0].format(bytes=2 * MIB, device=1))[0] == OUT_OF_MEMORY


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_call_gets_the_drivers_error_with_the_quota_used_up(a_kernel: tuple[Any, Any], wrong: str) -> None:
    agent, program = a_kernel
    assert program(f"alloc({64 * MIB})")[0] == 0
    assert program(WRONG[wrong]) == INVALID_VALUE
    assert (charged(agent), agent.process().word(0, HookPage.REFUSALS)) == (64 * MIB, 0)


@pytest.mark.parametrize("end", ["cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRelease_v2"])
def test_the_end_of_the_primary_context_refunds_what_it_took_along(a_node: Any, end: str) -> None:
    outsider = a_node.outsider()
    outsider("begin()")
    _, before, _ = outsider("info()")
    agent = a_node.grant((outsider("uuid()"), 200 * MIB))
    program = a_node.program()
    program("begin()")
    for allocate, _ in FAMILIES.values():
        assert program(allocate.format(bytes=4 * MIB, device=0))[0] == 0
    assert program(f"alloc_host({MIB})")[0] == program(f"register(pages({MIB}), {MIB})") == 0
    assert charged(agent) == len(FAMILIES) * 4 * MIB
    assert program(f"call({end!r}, 0)") == 0
    _, after, _ = outsider("info()")
    assert charged(agent) == before - after
    assert agent.process().page_word(HookPage.HOST_CHARGED) == 0
