"""Tell the node agent when work begins and ends, and take its events.

The notifier never waits for the agent: it sends later what it cannot write now. The hearers decide
what an event means.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from jupyter_aliquot.provisioner.relay.wire.messages import read_object

from .poll_loop import READ, WRITE, Watcher

Hearer = Callable[[Mapping[str, Any] | None], object]

_VERSION = 1
_RETRY_SECONDS = 1.0
# The time that news wait where the agent plans nothing by them: it decides as seldom itself.
_SOON_SECONDS = 0.02
_ANSWERS_BYTES = 1 << 16
_LONGEST_EVENT = 1 << 20


class AgentNotifier:
    """Write the fields of ``state`` to the agent.

    Only the last state matters; others may be left out.
    """

    def __init__(self, loop: Watcher, path: Path, kernel_id: str, state: Callable[[], dict[str, Any]]) -> None:
        self._loop = loop
        self._path = os.fspath(path)
        self._kernel_id = kernel_id
        self._state = state
        self._connection: socket.socket | None = None
        self._unsent = b""
        self._unread = b""
        self._hearers: dict[str, Hearer] = {}
        self._greetings: list[str] = []
        self._introduction: Callable[[], Iterable[Mapping[str, Any]]] = tuple
        self._number = 0
        self._is_due = self._is_blocked = False
        self._soon_at: float | None = None  # when the present state is due
        self._told: dict[str, Any] | None = None  # the last state that this connection got
        self._retry_at = 0.0

    def listen(self, event: str, hearer: Hearer, asking: str) -> None:
        """Begin each connection with the op ``asking``, and pass these events to ``hearer``.

        The hearer gets None when a connection was lost. An agent that does not know the op refuses
        it, and sends none.
        """
        self._hearers[event] = hearer
        self._greetings.append(asking)

    def introduce(self, requests: Callable[[], Iterable[Mapping[str, Any]]]) -> None:
        """Begin each connection with these requests about the kernel, as they are then."""
        self._introduction = requests

    def introduce_now(self, now: float) -> None:
        """Send the introduction over the open connection.

        Without one, connect now: the next connection begins with it.
        """
        for fields in self._introduction() if self._connection is not None else ():
            self.say({**fields, "kernel_id": self._kernel_id})
        self.tell(now)

    def say(self, fields: Mapping[str, Any]) -> None:
        """Send one more line to an agent that is connected; drop it otherwise."""
        if self._connection is not None:
            self._unsent += self._request(fields)
            self._flush()

    def tell(self, now: float) -> None:
        """Write the present state before this returns, if the agent takes it."""
        self._is_due, self._soon_at = True, None
        if self._connection is None and now >= self._retry_at:
            self._connect(now)
        self._flush()

    def tell_work(self, now: float) -> None:
        """Tell of work that the kernel gets next, before this returns: to an agent that takes the kernel to work, soon.

        So cells that follow each other at once cost the agent a line in 20 ms, and not two each.
        """
        if self._told is not None and self._told["work"] and self._told["input"] is None:
            self.tell_soon(now)
        else:
            self.tell(now)

    def tell_soon(self, now: float) -> None:
        """Tell the state that the kernel has in 20 ms, unless the agent knows the present one."""
        if self._soon_at is None and self._state() != self._told:
            self._soon_at = now + _SOON_SECONDS

    def due_in(self, now: float) -> float | None:
        """Return the seconds until `turn` has something to tell; None: nothing waits."""
        return None if self._soon_at is None else max(0.0, self._soon_at - now)

    def turn(self, now: float) -> None:
        """Tell what is due. Called in each turn of the loop."""
        if self._soon_at is not None and now >= self._soon_at:
            self.tell(now)

    def tick(self, now: float) -> None:
        """Connect again to an agent that is back."""
        if self._is_due:
            self.tell(now)

    def rest(self) -> None:
        """Close the connection: the kernel is gone, and the agent may forget it."""
        self._is_due, self._soon_at = self._is_due or self._soon_at is not None, None
        self._flush()
        self._close()
        self._is_due = False

    def _connect(self, now: float) -> None:
        self._retry_at = now + _RETRY_SECONDS
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            connection.connect(self._path)
        except OSError:
            connection.close()
            return
        self._connection = connection
        self._unsent = self._request({"op": "hello", "version": _VERSION, "name": f"relay {self._kernel_id}"})
        for fields in self._introduction():
            self._unsent += self._request({**fields, "kernel_id": self._kernel_id})
        for asking in self._greetings:
            self._unsent += self._request({"op": asking, "kernel_id": self._kernel_id})
        self._is_due = True
        self._loop.watch(connection.fileno(), self._ready)

    def _ready(self, events: int) -> None:
        if self._connection is None:
            return
        if events & ~WRITE:
            try:
                found = self._connection.recv(_ANSWERS_BYTES)
                if not found or not self._read(found):
                    self._lose()
                    return
            except BlockingIOError:
                pass
            except OSError:
                self._lose()
                return
        self._flush()

    def _read(self, found: bytes) -> bool:
        """Read events and skip answers; False for bytes that are no line."""
        *lines, self._unread = (self._unread + found).split(b"\n")
        for line in lines:
            if b'"event"' in line:
                event = read_object(line)
                hearer = self._hearers.get(str(event.get("event")))
                if hearer is not None and event.get("kernel_id") == self._kernel_id:
                    hearer(event)
        return len(self._unread) < _LONGEST_EVENT

    def _lose(self) -> None:
        self._close()
        self._is_due = True  # an agent that comes after it knows nothing

    def _close(self) -> None:
        if self._connection is not None:
            self._loop.forget(self._connection.fileno())
            self._connection.close()
            self._connection = None
            for hearer in self._hearers.values():
                hearer(None)
        self._unsent = self._unread = b""
        self._told, self._is_blocked = None, False

    def _flush(self) -> None:
        while self._connection is not None:
            if not self._unsent and self._is_due:
                self._is_due = False
                if (state := self._state()) != self._told:
                    self._told = state
                    self._unsent = _line({"op": "activity", "kernel_id": self._kernel_id, **state})
            if not self._unsent:
                self._block(False)
                return
            try:
                self._unsent = self._unsent[self._connection.send(self._unsent) :]
            except BlockingIOError:
                with contextlib.suppress(OSError):
                    self._block(True)
                return
            except OSError:
                self._lose()

    def _block(self, is_blocked: bool) -> None:
        """Watch the connection until it takes more, or no more for that."""
        if self._connection is not None and is_blocked != self._is_blocked:
            self._is_blocked = is_blocked
            self._loop.watch(self._connection.fileno(), self._ready, READ | WRITE if is_blocked else READ)

    def _request(self, fields: Mapping[str, Any]) -> bytes:
        """Return a line that the agent answers."""
        self._number += 1
        return _line({"id": self._number, **fields})


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
