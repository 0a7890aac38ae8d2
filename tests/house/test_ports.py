"""Two tests that run in parallel never get the same port."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import ports
import pytest

TESTS = Path(__file__).resolve().parents[1]
COUNT = 200
_ASK = "import ports; ports._COUNT = {count}; print(*(ports.free_port() for _ in range({asked})), flush=True); input()"


@pytest.fixture
def ask_for_ports() -> Iterator[Callable[[int], list[int]]]:
    """Reserve so many ports of a few, for a process that keeps them as long as this test."""
    started: list[subprocess.Popen[str]] = []

    def ask(asked: int) -> list[int]:
        command = [sys.executable, "-c", _ASK.format(count=COUNT, asked=asked)]
        process = subprocess.Popen(command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return [int(word) for word in process.stdout.readline().split()]

    yield ask
    for process in started:
        process.kill()
        process.communicate()


def test_a_port_is_given_once_as_long_as_its_process_lives(ask_for_ports: Callable[[int], list[int]]) -> None:
    first, second = ask_for_ports(60), ask_for_ports(60)
    assert len({*first, *second}) == 120


def test_a_port_that_somebody_listens_at_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    port = ports.free_port()
    monkeypatch.setattr(ports, "_reserve", lambda port: None)
    monkeypatch.setattr(ports, "_below", lambda: range(port, port + 1))
    assert ports.free_port() == port
    with socket.create_server(("127.0.0.1", port)), pytest.raises(OSError, match="found none that is free"):
        ports.free_port()
