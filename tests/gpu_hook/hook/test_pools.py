"""A memory pool is charged the device memory that it holds, however much it gave out."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage

MIB = 1 << 20
KEEP_ALL = (1 << 64) - 1
OUT_OF_MEMORY, INVALID_VALUE, INVALID_HANDLE = 2, 1, 400
UUID = "10" * 16


@pytest.fixture
def a_kernel(a_null_node: Any) -> tuple[Any, Any]:
    """Make a kernel on the null driver, whose pools grow by 32 MiB."""
    agent = a_null_node.grant((UUID, 96 * MIB))
    program = a_null_node.program()
    assert program("begin()") == 0
    return agent, program


def charged(agent: Any) -> int:
    return int(agent.process().word(0, HookPage.CHARGED))


def test_a_pool_is_charged_for_the_whole_chunk_that_it_took(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    pointers = []
    for amount, want in ((1, 32), (10 * MIB, 32), (30 * MIB, 64)):
        code, pointer = program(f"alloc_async({amount})")
        assert (code, charged(agent)) == (0, want * MIB)
        pointers.append(pointer)
    for pointer in pointers:
        assert program(f"free_later({pointer})") == 0
    assert charged(agent) == 64 * MIB
    assert program("synchronize()") == 0
    assert charged(agent) == 0


@pytest.mark.parametrize("name", ["cuStreamSynchronize", "cuCtxSynchronize"])
def test_what_a_pool_was_told_to_keep_stays_charged_until_it_is_trimmed(a_kernel: tuple[Any, Any], name: str) -> None:
    agent, program = a_kernel
    pool = program("default_pool(0)")
    program(f"keep({pool}, {KEEP_ALL})")
    _, pointer = program(f"alloc_async({60 * MIB})")
    program(f"free_later({pointer})")
    assert program(f"synchronize({name!r})") == 0
    assert charged(agent) == 64 * MIB
    code, pointer = program(f"alloc_async({60 * MIB})")
    assert (code, charged(agent)) == (0, 64 * MIB)
    program(f"free_later({pointer})")
    assert program(f"trim({pool}, {40 * MIB})") == 0
    assert charged(agent) == program(f"pool_bytes({pool})") == 32 * MIB
    assert program(f"trim({pool})") == 0
    assert charged(agent) == 0


def test_what_a_pool_keeps_unused_makes_room_for_others(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    program(f"keep(default_pool(0), {KEEP_ALL})")
    _, pointer = program(f"alloc_async({90 * MIB})")
    program(f"free_later({pointer})")
    assert charged(agent) == 96 * MIB
    assert program(f"alloc({80 * MIB})")[0] == 0
    assert charged(agent) == 80 * MIB
    assert agent.process().word(0, HookPage.REFUSALS) == 0


def test_a_chunk_that_does_not_fit_is_given_back(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    _, pointer = program(f"alloc({70 * MIB})")
    assert program(f"alloc_async({MIB})")[0] == OUT_OF_MEMORY
    assert charged(agent) == 70 * MIB
    assert program("pool_bytes(default_pool(0))") == 0
    program(f"free({pointer})")
    assert program(f"alloc_async({MIB})")[0] == 0


def test_a_pool_that_grows_gives_its_own_unused_chunks_back_first(make_node: Any) -> None:
    node = make_node(devices=1, memory="256MiB", pool_chunk="32MiB")
    outsider = node.outsider()
    outsider("begin()")
    agent = node.grant((outsider("uuid()"), 64 * MIB))
    program = node.program()
    program("begin()")
    _, pointer = program("alloc_async(1)")
    program(f"free_later({pointer})")
    assert program(f"alloc_async({60 * MIB})")[0] == 0
    assert charged(agent) == program("pool_bytes(default_pool(0))") == 64 * MIB


def test_a_wrong_call_gets_the_drivers_own_error_over_quota_too(a_kernel: tuple[Any, Any]) -> None:
    _, program = a_kernel
    program(f"alloc({96 * MIB})")
    assert program("alloc_async(1)")[0] == OUT_OF_MEMORY
    assert program("alloc_from_pool(1, 12345)")[0] == INVALID_VALUE
    assert program("call('cuMemAllocAsync', ctypes.byref(U64()), SIZE(1), U64(77))") == INVALID_HANDLE


def test_threads_share_a_pool_and_leave_nothing_charged(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    program("in_threads(4, lambda: allocate_and_free_in_order(0, 300))")
    program("synchronize()")
    assert (charged(agent), agent.process().word(0, HookPage.ALLOCATIONS)) == (0, 0)
    assert agent.process().word(0, HookPage.PEAK) <= 96 * MIB


def test_a_crowd_at_the_edge_is_charged_all_that_its_pool_holds(
    a_null_node: Any, null_driver: Path, include_dir: Path, a_folder: Path
) -> None:
    a_null_node.grant((UUID, 96 * MIB))
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed: install gcc"
    program = a_folder / "pool_crowd"
    source = Path(__file__).with_name("pool_crowd.c")
    command = [compiler, "-O2", f"-I{include_dir}", str(source), str(null_driver), "-pthread", "-o", str(program)]
    subprocess.run(command, check=True)
    run = subprocess.run(
        [str(program), "3000"], env=a_null_node.hooked_env, capture_output=True, text=True, timeout=60, check=True
    )
    differing, succeeded, refused = map(int, run.stdout.split())
    assert differing == 0
    assert min(succeeded, refused) > 3000


def test_memory_that_went_with_a_reset_device_is_refunded_in_the_next_context(a_node: Any) -> None:
    """After the reset the thread has no context to ask the driver in."""
    outsider = a_node.outsider()
    assert outsider("begin()") == 0
    agent = a_node.grant((outsider("uuid()"), 96 * MIB))
    program = a_node.program()
    assert program("begin()") == 0
    code, context = program("new_context()")
    assert code == 0
    assert program(f"alloc_async({4 * MIB})")[0] == 0
    assert program(f"end_context({context})") == 0
    assert charged(agent) == 4 * MIB
    assert program('call("cuDevicePrimaryCtxReset_v2", 0)') == 0
    assert program("use()") == 0
    assert (charged(agent), agent.process().word(0, HookPage.ALLOCATIONS)) == (0, 0)
