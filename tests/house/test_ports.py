"""Two tests beside each other are never given the same port."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import ports
import pytest

TESTS = Path(__file__).resolve().parents[1]
_ASK = "import ports; ports._COUNT = {count}; print(*(ports.free_port() for _ in range({asked})), flush=True); input()"


@pytest.fixture
def ask_for_ports() -> Iterator[Callable[[int], list[int]]]:
    """Of a few ports, so many, for a process that keeps them as long as this test."""
    started: list[subprocess.Popen[str]] = []

    def ask(asked: int) -> list[int]:
        command = [sys.executable, "-c", _ASK.format(count=40, asked=asked)]
        process = subprocess.Popen(command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return [int(word) for word in process.stdout.readline().split()]

    yield ask
    for process in started:
        process.communicate("\n", timeout=60)
        assert process.returncode == 0


def test_a_port_is_given_once_as_long_as_its_process_lives(ask_for_ports: Callable[[int], list[int]]) -> None:
    first, second = ask_for_ports(12), ask_for_ports(12)
    assert len({*first, *second}) == 24


def test_a_port_that_somebody_listens_at_is_not_given() -> None:
    port = ports.free_port()
    with pytest.raises(OSError, match="in use"):
        ports._reserve(port)
