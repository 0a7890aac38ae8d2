"""Forwarders that call: arguments, frames and marks are right, whatever happens within the call."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import MoveOutcome, ResidencyMode

MIB = 1 << 20
SOURCE = Path(__file__).parent / "clients" / "forwarded.c"


class Client:
    """The program, on one of its routes, in a kernel whose agent can swap it."""

    def __init__(self, process: subprocess.Popen[str], agent: Any, orders: Callable[..., Any]) -> None:
        self._process, self._agent, self._orders = process, agent, orders

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go on\n")
        self._process.stdin.flush()

    def swap_out(self, drain_milliseconds: int = 10_000) -> Any:
        return self._order(drain_milliseconds).swap_out()

    def _order(self, drain_milliseconds: int) -> Any:
        return self._orders(self._agent, self._agent.process(self._process.pid), [], drain_milliseconds)


@pytest.fixture
def start(
    a_null_node: Any, a_folder: Path, include_dir: Path, make_orders: Callable[..., Any]
) -> Iterator[Callable[[str], Client]]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed: install gcc"
    driver, program = Path(a_null_node.hooked_env["ALIQUOT_REAL_CUDA"]).parent, a_folder / "forwarded"
    command = [compiler, "-w", "-O1", "-g", "-pthread", f"-I{include_dir}", str(SOURCE), "-o", str(program)]
    subprocess.run([*command, f"-L{driver}", "-l:libcuda.so.1"], check=True)
    with ExitStack() as stack:

        def run(route: str) -> Client:
            a_null_node.agent.residency_mode = ResidencyMode.VMM
            agent = a_null_node.grant(("10" * 16, 64 * MIB))
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            process = stack.enter_context(subprocess.Popen([str(program), route], env=a_null_node.hooked_env, **pipes))
            stack.callback(process.kill)
            return Client(process, agent, lambda *asked: stack.enter_context(make_orders(*asked)))

        yield run


@pytest.mark.parametrize("route", ["arguments", "unwound"])
def test_a_call_keeps_its_arguments_and_its_frames(route: str, start: Callable[[str], Client]) -> None:
    assert start(route).line() == "0"


@pytest.mark.parametrize("route", ["cancelled", "ended", "signalled"])
def test_whoever_left_a_call_is_not_waited_for(route: str, start: Callable[[str], Client]) -> None:
    client = start(route)
    assert client.line() == "0"
    moved = client.swap_out()
    assert moved.outcome is MoveOutcome.DONE, moved


def test_nothing_moves_while_a_call_is_inside(start: Callable[[str], Client]) -> None:
    client = start("inside")
    assert client.line() == "inside"
    moved = client.swap_out(drain_milliseconds=30)
    assert moved.outcome is MoveOutcome.BUSY
    assert "1 calls have not returned" in moved.text
    client.go_on()
    assert client.line() == "0"
    assert client.swap_out().outcome is MoveOutcome.DONE
