"""An agent's moves of a process's memory, scripted.

There is one swap at a time, or one at each step of a program.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import (
    MessageType,
    Moved,
    MoveOutcome,
    Residency,
    Role,
    Segment,
    Swap,
    Wake,
)

DRAIN_MILLISECONDS = 2000
SEGMENT_BYTES = 64 << 20
_sequences = itertools.count(1000)


def make_segments(connection: Any, total: int) -> int:
    """Send segments for so many bytes; they take memory when they are written. Returns how many."""
    count = -(-total // SEGMENT_BYTES)
    for number in range(count):
        segment = os.memfd_create("segment", os.MFD_CLOEXEC)
        os.ftruncate(segment, SEGMENT_BYTES)
        message = protocol.pack(Segment(number, SEGMENT_BYTES))
        socket.send_fds(connection.socket, [message], [segment])
        os.close(segment)
    return count


def order(agent: Any, connection: Any, kind: MessageType, segments: int = 0, seconds: float = 30.0) -> Moved:
    """Send an order, and return the process's answer."""
    sequence = next(_sequences)
    swap = Swap(kind, sequence, DRAIN_MILLISECONDS if kind is MessageType.SWAP_OUT else 0, segments)
    connection.socket.send(protocol.pack(swap))
    found: list[Moved] = []

    def is_answered() -> bool:
        found[:] = [one for one in connection.heard if isinstance(one, Moved) and one.sequence == sequence]
        return bool(found) or connection not in agent.connections

    agent.wait_for(is_answered, seconds)
    if not found:
        raise ConnectionError("the process ended")
    return found[0]


def swap_out(agent: Any, connection: Any, total: int = 1 << 30) -> Moved:
    return order(agent, connection, MessageType.SWAP_OUT, make_segments(connection, total))


def swap_in(agent: Any, connection: Any) -> Moved:
    return order(agent, connection, MessageType.SWAP_IN)


def wakes(connection: Any) -> int:
    return sum(isinstance(one, Wake) for one in connection.heard)


class Steps:
    """Swaps a program out when it asks by a byte on the socket ``path``, and in when it wakes."""

    def __init__(self, agent: Any, path: Path, total: int = 1 << 30) -> None:
        self.agent, self.path, self.total = agent, path, total
        self.outcomes: list[MoveOutcome] = []
        self.failure: Exception | str | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._clients: list[socket.socket] = []
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._accept, self._bring_in)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        for client in self._clients:
            client.close()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._clients.append(client)
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            while asked := client.recv(4):
                pid = int.from_bytes(asked, sys.byteorder)
                for connection in [one for one in self.agent.connections if one.hello and one.hello.pid == pid]:
                    self._step(connection)
                client.sendall(b"x")

    def _step(self, connection: Any) -> None:
        if connection.hello.role is not Role.PROCESS or not connection.has_its_pages or is_out(connection):
            return
        try:
            out = swap_out(self.agent, connection, self.total)
            self.outcomes.append(out.outcome)
            if out.outcome in (MoveOutcome.FAILED, MoveOutcome.NO_SPACE):
                self.failure = f"swap-out: {out}"
        except OSError:
            return  # the program ended

    def _bring_in(self) -> None:
        handled: dict[int, int] = {}
        while not self._ends.is_set():
            self.agent.wait_for_news()
            for connection in list(self.agent.connections):
                seen = wakes(connection)
                if handled.get(id(connection), 0) < seen and is_out(connection):
                    handled[id(connection)] = seen
                    self._wake(connection)

    def _wake(self, connection: Any) -> None:
        with contextlib.suppress(OSError):
            back = swap_in(self.agent, connection)
            if back.outcome is not MoveOutcome.DONE:
                self.failure = f"swap-in: {back}"


def is_out(connection: Any) -> bool:
    moved = [one for one in connection.heard if isinstance(one, Moved)]
    return bool(moved) and moved[-1].residency is Residency.SWAPPED
