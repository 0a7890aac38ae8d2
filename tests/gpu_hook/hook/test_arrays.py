"""Arrays are charged the size that the driver reports, before it takes it."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage

MIB = 1 << 20
OUT_OF_MEMORY, INVALID_VALUE = 2, 1
UUID = "10" * 16
SPARSE, DEFERRED = 0x40, 0x80


@pytest.fixture
def a_kernel(a_null_node: Any) -> tuple[Any, Any]:
    agent = a_null_node.grant((UUID, 64 * MIB))
    program = a_null_node.program()
    assert program("begin()") == 0
    return agent, program


def charged(agent: Any) -> int:
    return int(agent.process().word(0, HookPage.CHARGED))


def tiled(width: int, height: int, depth: int, element: int) -> int:
    """Return the bytes that the null driver takes."""
    taken = -(-width * element // 64) * 64 * (-(-max(height, 1) // 8) * 8) * max(depth, 1)
    grain = 512 if taken < MIB else 2 * MIB
    return -(-taken // grain) * grain


@pytest.mark.parametrize(("of", "element"), [("u8", 1), ("u16", 2), ("float", 4)])
@pytest.mark.parametrize("channels", [1, 2, 4])
def test_an_array_is_charged_in_the_drivers_tiles(
    a_kernel: tuple[Any, Any], of: str, element: int, channels: int
) -> None:
    agent, program = a_kernel
    for width, height, depth in ((1, 0, 0), (100, 3, 0), (1000, 1000, 0), (50, 20, 30)):
        code, array = program(f"new_array({width}, {height}, {depth}, {of!r}, {channels})")
        assert (code, charged(agent)) == (0, tiled(width, height, depth, element * channels))
        assert program(f"end_array({array})") == 0
        assert charged(agent) == 0
    code, array = program(f"new_flat_array(100, 3, {of!r}, {channels})")
    assert (code, charged(agent)) == (0, tiled(100, 3, 0, element * channels))


def test_a_mipmapped_array_is_charged_with_all_its_levels(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    code, array = program("new_mipmapped(1024, 1024, 3)")
    assert (code, charged(agent)) == (0, 6 * MIB)
    assert program(f"end_mipmapped({array})") == 0
    assert charged(agent) == 0


@pytest.mark.parametrize("flags", [SPARSE | DEFERRED, DEFERRED])
def test_an_array_without_memory_is_not_charged(a_kernel: tuple[Any, Any], flags: int) -> None:
    agent, program = a_kernel
    assert program(f"new_array(100000, 1000, flags={flags})")[0] == 0
    assert charged(agent) == 0


def test_over_quota_is_out_of_memory_and_a_wrong_shape_is_the_drivers_error(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    _, array = program("new_array(4096, 2048)")
    assert charged(agent) == 32 * MIB
    assert program("new_array(4096, 4096)")[0] == OUT_OF_MEMORY
    assert program("new_mipmapped(4096, 4096, 2)")[0] == OUT_OF_MEMORY
    assert program("new_array(4096, 4096, channels=3)")[0] == INVALID_VALUE
    assert program("call('cuArray3DCreate_v2', None, None)") == INVALID_VALUE
    assert agent.process().word(0, HookPage.REFUSALS) == 2
    assert program(f"end_array({array})") == 0
    assert program("new_array(4096, 4096)")[0] == 0


def test_a_driver_that_does_not_tell_is_charged_by_the_shape(a_null_node: Any) -> None:
    agent = a_null_node.grant((UUID, 64 * MIB))
    program = a_null_node.program(NULL_DRIVER_OLD="1")
    program("begin()")
    code, array = program("new_array(100, 3, 2, 'half', 4)")
    assert (code, charged(agent)) == (0, -(-100 * 3 * 2 * 8 // 512) * 512)
    assert program(f"end_array({array})") == 0
    assert program("new_array(8192, 4096)")[0] == OUT_OF_MEMORY


def test_an_ungranted_device_gives_no_array(a_kernel: tuple[Any, Any]) -> None:
    _, program = a_kernel
    program("use(1)")
    assert program("new_array(1)")[0] == OUT_OF_MEMORY
    assert program("new_mipmapped(8, 8, 1)")[0] == OUT_OF_MEMORY


def test_a_handle_is_charged_while_it_is_mapped_into_a_sparse_array(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    _, array = program(f"new_array(4096, 4096, flags={SPARSE | DEFERRED})")
    for start in (0, 128, 256):
        _, handle = program(f"create({2 * MIB})")
        assert program(f"map_tiles({array}, {start}, 128, {handle})") == 0
        assert program(f"release({handle})") == 0
    assert charged(agent) == 6 * MIB
    assert program(f"map_tiles({array}, 100, 50)") == 0
    assert charged(agent) == 6 * MIB
    assert program(f"map_tiles({array}, 100, 200)") == 0
    assert charged(agent) == 4 * MIB
    assert program(f"end_array({array})") == 0
    assert charged(agent) == 0
