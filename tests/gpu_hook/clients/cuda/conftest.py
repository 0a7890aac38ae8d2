"""Unmodified CUDA clients, each in a process of its own that a test drives by expressions.

They live in build/clients, which tools/setup.py makes: numba and PyCUDA would not share the
project's own headers.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage

PROGRAMS = Path(__file__).parent / "programs"
CLIENTS = Path(__file__).parents[4] / "build" / "clients"


class ClientError(Exception):
    """The exception of the client: its name and its text."""

    @property
    def name(self) -> str:
        return str(self.args[0])


@dataclass
class Client:
    """A running program; ``client("memory()")`` is the value of that expression in its module."""

    process: subprocess.Popen[str]
    place: Any

    def __call__(self, expression: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the client ended with {self.process.wait()}"
        answer = json.loads(line)
        if "error" in answer:
            raise ClientError(*answer["error"])
        return answer["value"]

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def begin_alone(self) -> None:
        """Hold nothing, and wait until no process does.

        The agent samples the memory of the kernel's other processes.
        """
        self("let_go()")
        total = self.place.total_bytes
        self.place.until(lambda: self("memory()") == [total, total])

    def escapes(self) -> Any:
        """Return symbols unknown to the hook, and calls that it could not charge.

        Without a hook there are neither.
        """
        assert self("__import__('serve').WORDS") == [HookPage.UNKNOWN_SYMBOLS // 8, HookPage.UNACCOUNTED_CALLS // 8]
        found = self("escapes()")
        assert (found is not None) == self.place.is_hooked, "a page of the hook is in the process, and only behind it"
        return found or [0, 0]


@pytest.fixture(scope="module")
def start_client(a_lasting_place: Any) -> Iterator[Callable[..., Client]]:
    """Start a module of programs/, once for all tests of a file.

    ``part`` is what tools/cuda_clients.py installs: "newest", "pycuda", or a folder of older
    packages, which then stand before the newest.
    """
    clients: dict[tuple[str, str], Client] = {}

    def start(module: str, part: str = "newest") -> Client:
        client = clients.get((module, part))
        if client is None or not client.is_alive:
            if not (CLIENTS / f"{part}.stamp").exists():
                pytest.skip(f"{part} is not in build/clients: tools/setup.py test installs it, and says why it did not")
            command = [str(CLIENTS / "bin" / "python"), str(PROGRAMS / "serve.py"), module]
            process = a_lasting_place.start(command, stdin=subprocess.PIPE, env={"PYTHONPATH": str(CLIENTS / part)})
            clients[module, part] = client = Client(process, a_lasting_place)
        return client

    yield start
    for client in clients.values():
        client.process.kill()
