"""A stand-in for the node agent that sends the events that a test chooses."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from pathlib import Path
from typing import Any


class Agent:
    """The agent, on a thread of its own.

    ``heard``: all lines; ``refuses``: ops that it does not know, like an older agent.
    """

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self.heard: list[dict[str, Any]] = []
        self.refuses: set[str] = set()
        self._connections: list[socket.socket] = []
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(path))
        self._listening.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def work(self) -> int:
        told = [line for line in self.heard if line["op"] == "activity"]
        return int(told[-1]["work"]) if told else -1

    def told(self, field: str) -> Any:
        """Return a field of the last activity; None without one."""
        told = [line for line in self.heard if line["op"] == "activity"]
        return told[-1][field] if told else None

    def _serve(self) -> None:
        try:
            while True:
                connection, _ = self._listening.accept()
                self._connections.append(connection)
                for line in connection.makefile():
                    heard = json.loads(line)
                    if "id" in heard:
                        answer = {"id": heard["id"], "ok": heard["op"] not in self.refuses, "code": "bad_request"}
                        connection.sendall(json.dumps(answer).encode() + b"\n")
                    self.heard.append(heard)
        except OSError:
            pass

    def tell(self, event: str, kernel_id: str, **fields: Any) -> None:
        """Send an event to all connected relays."""
        line = json.dumps({"event": event, "kernel_id": kernel_id, **fields}).encode() + b"\n"
        for connection in tuple(self._connections):
            with contextlib.suppress(OSError):  # a relay that has hung up
                connection.sendall(line)

    def asked(self, op: str) -> list[dict[str, Any]]:
        return [line for line in self.heard if line["op"] == op]

    def close(self) -> None:
        for connection in (self._listening, *self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._thread.join(10)
