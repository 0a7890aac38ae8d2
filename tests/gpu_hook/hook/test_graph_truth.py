"""The hook's charge for graphs equals the driver's own figure, whatever programs do."""

from __future__ import annotations

import random
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage

MIB = 1 << 20
QUOTA = 200 * MIB
OUT_OF_MEMORY = 2


def one_step(program: Any, chance: random.Random, execs: list[int], pointers: list[tuple[int, int]]) -> int:
    """Do one step with graphs or memory; return the bytes of plain memory that it took or gave."""
    kind = chance.choice(["make", "launch", "launch", "upload", "trim", "end", "alloc", "free"])
    if kind == "make":
        amounts = [chance.randint(1, 40 * MIB) for _ in range(chance.randint(1, 3))]
        code, exec_ = program(f"instantiate(graph_of(*{amounts}))")
        assert code == 0
        execs.append(exec_)
    elif kind in ("launch", "upload") and execs:
        name = "cuGraphUpload" if kind == "upload" else "cuGraphLaunch"
        assert program(f"launch_graph({chance.choice(execs)}, {name!r})") in (0, OUT_OF_MEMORY)
    elif kind == "trim":
        assert program("trim_graphs()") == 0
    elif kind == "end" and execs:
        assert program(f"end_exec({execs.pop(chance.randrange(len(execs)))})") == 0
    elif kind == "alloc":
        amount = chance.randint(1, 20) * 2 * MIB
        code, pointer = program(f"alloc({amount})")
        assert code in (0, OUT_OF_MEMORY)
        if code == 0:
            pointers.append((pointer, amount))
            return amount
    elif kind == "free" and pointers:
        pointer, amount = pointers.pop(chance.randrange(len(pointers)))
        assert program(f"free({pointer})") == 0
        return -amount
    return 0


@pytest.mark.parametrize("seed", range(4))
def test_the_charge_is_what_the_driver_has_reserved(a_node: Any, seed: int) -> None:
    outsider = a_node.outsider()
    assert outsider("begin()") == 0
    agent = a_node.grant((outsider("uuid()"), QUOTA))
    program = a_node.program()
    assert program("begin()") == 0
    execs: list[int] = []
    pointers: list[tuple[int, int]] = []
    chance, plain = random.Random(seed), 0
    for step in range(80):
        plain += one_step(program, chance, execs, pointers)
        want = plain + program("graph_bytes()")
        assert agent.process().word(0, HookPage.CHARGED) == want, f"step {step}"
