"""In mode `managed` one cell uses more memory than its device has, and every byte is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import MoveOutcome, ResidencyMode

MIB = 1 << 20
DEVICE, BLOCK, COUNT = 128 * MIB, 32 * MIB, 10
READ = "(lambda word: [call('cuMemcpyDtoH_v2', ctypes.byref(word), U64({}), SIZE(4)), word.value & 0xffffffff])(U64())"


@pytest.fixture
def a_program(make_node: Callable[..., Any]) -> tuple[Any, Any, Any]:
    """Return the node's outsider, its agent, and a program whose limit is above its device's memory."""
    node = make_node(devices=1, memory=f"{DEVICE}")
    node.agent.residency_mode, node.agent.host_quota = ResidencyMode.MANAGED, 1 << 40
    outsider, program = node.outsider(), node.program()
    assert outsider("begin()") == 0
    program("init()")
    agent = node.grant((program("uuid()"), COUNT * BLOCK))
    assert program("use()") == 0
    return outsider, agent, program


def fill(program: Any, pointer: int, value: int) -> None:
    assert program(f"call('cuMemsetD32_v2', U64({pointer}), {value}, SIZE({BLOCK // 4}))") == 0


def ends(program: Any, pointer: int) -> list[int]:
    found = [program(READ.format(at)) for at in (pointer, pointer + BLOCK // 2, pointer + BLOCK - 4)]
    assert [code for code, _ in found] == [0, 0, 0]
    return [value for _, value in found]


def test_a_cell_larger_than_its_device_keeps_every_byte(
    a_program: tuple[Any, Any, Any], make_orders: Callable[..., Any]
) -> None:
    outsider, agent, program = a_program
    answers = [program(f"alloc({BLOCK})") for _ in range(COUNT)]
    assert [code for code, _ in answers] == [0] * COUNT
    pointers = [pointer for _, pointer in answers]
    for turn in range(3):
        for number, pointer in enumerate(pointers):
            fill(program, pointer, turn * 100 + number)
        assert 0 <= outsider("info()")[1] < BLOCK, "the device is used as far as it goes"
    want = [[200 + number] * 3 for number in range(COUNT)]
    assert [ends(program, pointer) for pointer in pointers] == want
    with make_orders(agent, agent.process(program.pid), []) as orders:
        assert orders.swap_out().outcome is MoveOutcome.DONE
        assert outsider("info()")[1] > DEVICE - BLOCK
        assert orders.swap_in().outcome is MoveOutcome.DONE
    assert [ends(program, pointer) for pointer in pointers] == want
    assert program(f"alloc({BLOCK})")[0] == 2, "its limit holds"
