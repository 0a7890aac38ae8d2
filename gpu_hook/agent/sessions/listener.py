"""The listening hook socket of one kernel. It accepts connections and hands them to its caller."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

_BACKLOG = 64
_MODE = 0o666  # users of a container have uids of their own; on the host the folders above keep others out
_PAUSE_SECONDS = 1.0  # without descriptors left, accepting again at once would only spin
_HELLO_SECONDS = 5.0
_LONGEST_HELLO = 1 << 16


class HookListener:
    """Owns the socket file at ``path``."""

    def __init__(self, path: Path, accepted: Callable[[socket.socket], None]) -> None:
        self._path = path
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()  # a killed agent left it; the caller holds agent.lock
            self._socket.bind(os.fspath(path))
            path.chmod(_MODE)
            self._socket.listen(_BACKLOG)
        except OSError:
            self._socket.close()
            raise
        self._pause: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Stop listening and remove the socket file. Idempotent."""
        if self._socket.fileno() < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            log.error("event=accept_failed socket=%s error=%r", self._path, str(error))
            self._loop.remove_reader(self._socket.fileno())
            self._pause = self._loop.call_later(_PAUSE_SECONDS, self._listen)
            return
        try:
            self._accepted(connection)
        except OSError as error:
            log.info("event=hook_vanished socket=%s reason=%r", self._path, str(error))
            connection.close()


def send_away(connection: socket.socket, refusal: bytes) -> None:
    """Send a refusal to a connection before its HELLO, then close it.

    A socket that is closed with its HELLO unread would discard the refusal.
    """
    loop = asyncio.get_running_loop()
    connection.send(refusal)

    def close() -> None:
        patience.cancel()
        loop.remove_reader(connection.fileno())
        with contextlib.suppress(OSError):
            connection.recv(_LONGEST_HELLO)
        connection.close()

    connection.setblocking(False)
    patience = loop.call_later(_HELLO_SECONDS, close)
    loop.add_reader(connection.fileno(), close)
