"""The control socket: connections, lines in, lines out, events.

``operations`` interprets the lines. The server turns away peers that are not ours, and drops a peer
that does not read its answers, so that it costs no memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from jupyter_aliquot.gpu_hook.agent.base.slices import Slices, encode_line
from jupyter_aliquot.gpu_hook.base.pacing import Throttle
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, is_shared
from jupyter_aliquot.gpu_hook.waiting import within

log = logging.getLogger(__name__)

LONGEST_REQUEST = 1 << 20
_MOST_UNREAD = 8 << 20
_MOST_UNACCEPTED = 1024
_UNREAD_SECONDS = 5.0
_TOLD_AGAIN_SECONDS = 60.0  # of an account that is turned away: it must not fill the log
_FILE_SECONDS = 1.0  # between two checks of the socket file
_CHANGED = b'{"event":"changed"}\n'
_PEER = struct.Struct("iII")

Answer = Callable[[object, int], Awaitable[dict[str, Any] | None]]


class ControlServer:
    """The socket file, and one task for each connection."""

    def __init__(
        self, answer: Answer, closed: Callable[[int], None], admit: Callable[[int, int], bool] = lambda *_: False
    ) -> None:
        """``admit``: whether a connection, by its number, may stay that is of another account."""
        self._answer = answer
        self._closed = closed
        self._admit = admit
        self._turned_away = Throttle(_TOLD_AGAIN_SECONDS)  # by account
        self._numbers = itertools.count(1)
        self._server: asyncio.Server | None = None
        self._file: tuple[int, int] | None = None  # device and inode of the socket file
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscribers: set[int] = set()
        self._is_change_due = False

    @property
    def connections(self) -> int:
        return len(self._writers)

    async def listen(self, path: Path) -> None:
        """Listen at this path, in a shared folder for all accounts. Raises OSError.

        The caller holds agent.lock, so an existing socket is stale.
        """
        self._server = await asyncio.start_unix_server(
            self._accept, sock=_bind(path), limit=LONGEST_REQUEST, backlog=_MOST_UNACCEPTED
        )
        self._file = _file_at(path)

    async def keep_file(self, path: Path, period_seconds: float = _FILE_SECONDS) -> None:
        """Make the socket file again where it was removed or replaced.

        Connections stay. Runs until cancelled.
        """
        while True:
            await asyncio.sleep(period_seconds)
            if _file_at(path) == self._file:
                continue
            before = self._server
            try:
                await self.listen(path)
            except OSError as error:
                log.error("event=socket_lost socket=%s error=%r; trying again", path, str(error))
                continue
            log.warning("event=socket_made_again socket=%s reason='it was removed'", path)
            if before is not None:
                before.close()

    async def close(self) -> None:
        """Stop listening, end all connections, and wait for their tasks."""
        if self._server is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._server.sockets[0].getsockname())
            self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def subscribe(self, connection: int) -> None:
        self._subscribers.add(connection)

    def send(self, connection: int, event: dict[str, Any]) -> None:
        """Send an event to one connection; drop it if the connection is gone."""
        writer = self._writers.get(connection)
        if writer is not None:
            writer.write(_encode(event))
            self._drop_if_slow(connection, writer)

    def tell_change(self) -> None:
        """Notify subscribers, once for all changes of this turn of the loop."""
        if not self._is_change_due:
            self._is_change_due = True
            asyncio.get_running_loop().call_soon(self._send_change)

    def _send_change(self) -> None:
        self._is_change_due = False
        for connection in tuple(self._subscribers):
            writer = self._writers.get(connection)
            if writer is not None:
                writer.write(_CHANGED)
                self._drop_if_slow(connection, writer)

    def _drop_if_slow(self, connection: int, writer: asyncio.StreamWriter) -> None:
        if writer.transport.get_write_buffer_size() > _MOST_UNREAD:
            log.warning("event=dropped connection=%d reason='does not read its answers'", connection)
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Start a task for a connection. Called by asyncio."""
        peer: socket.socket = writer.get_extra_info("socket")
        pid, uid, _ = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        connection = next(self._numbers)
        if uid not in (0, os.geteuid()) and not self._admit(connection, uid):
            if self._turned_away.passes(uid, time.monotonic()):
                log.warning("event=turned_away pid=%d uid=%d; told once in %g s", pid, uid, _TOLD_AGAIN_SECONDS)
            writer.transport.abort()
            return
        self._writers[connection] = writer
        task = asyncio.get_running_loop().create_task(self._serve(connection, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                answer = await self._answer(_decode(line), connection)
                if answer is not None:
                    writer.write(await encode_line(answer, Slices()))
                    self._drop_if_slow(connection, writer)
                if writer.transport.get_write_buffer_size():
                    await within(writer.drain(), _UNREAD_SECONDS)
                await asyncio.sleep(0)  # a client that sends many lines at once leaves others their turns
        except ValueError:
            log.warning(
                "event=dropped connection=%d reason='a line has more than %d bytes'", connection, LONGEST_REQUEST
            )
        except asyncio.TimeoutError:
            log.warning("event=dropped connection=%d reason='does not read its answers'", connection)
            writer.transport.abort()
        except ConnectionError:
            pass
        except asyncio.CancelledError:
            pass  # the agent ends; no task awaits this one's result
        except Exception:
            log.exception("event=connection_failed connection=%d", connection)
        finally:
            self._subscribers.discard(connection)
            del self._writers[connection]
            writer.close()
            self._closed(connection)


def _file_at(path: Path) -> tuple[int, int] | None:
    """Return device and inode; None where there is no file, or none is visible."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _bind(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        listening.bind(os.fspath(path))
        path.chmod(0o666 if is_shared(RuntimeDir(path.parent)) else 0o600)
    except OSError:
        listening.close()
        raise
    return listening


def _decode(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
