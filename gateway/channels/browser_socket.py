"""The parts that every websocket of a browser needs: pings, a check of frames, a bound on memory.

The check reads only the numbers of a message that say where its parts lie. Jupyter's readers trust
those numbers: eight bytes of them make a server build a list without end, and parts that overlap
become many times the size of the message.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Awaitable
from functools import partial
from typing import Any

from jupyter_aliquot.gateway.base.jupyter_private import V1
from jupyter_aliquot.gpu_hook.waiting import outlasting

_MOST_PARTS = 1 << 16


# ---- pings


def without_tornado_pings(protocol: Any) -> Any:
    """Return tornado's websocket protocol without pings.

    tornado takes Jupyter's milliseconds for seconds.
    """
    if protocol is not None:
        protocol.params.ping_interval = None
    return protocol


def begin_pings(socket: Any) -> None:
    """Restart the pings of Jupyter's WebSocketMixin, so that they do not keep the socket's request.

    A timer holds the context variables that it was made with, and those hold the request.
    """
    if socket.ping_callback is not None:
        socket.ping_callback.stop()
        outlasting(socket.ping_callback.start)


def end_pings(socket: Any) -> None:
    """Stop the pings of a socket that closed: the timer and the socket hold each other. Idempotent."""
    pings, socket.ping_callback = socket.ping_callback, None
    if pings is not None:
        pings.stop()


# ---- frames


def why_unreadable(message: str | bytes, subprotocol: str | None) -> str:
    """Return why a browser's message cannot be taken apart, in a few words; empty if it can.

    JSON is checked where it is read.
    """
    if subprotocol == V1:
        return _why_not(message, count_format="<Q", number="Q", order="<", least=3)
    return "" if isinstance(message, str) else _why_not(message, count_format="!i", number="I", order="!", least=1)


def _why_not(message: str | bytes, *, count_format: str, number: str, order: str, least: int) -> str:
    """Check the number of offsets, and that they ascend and stay within the message."""
    if isinstance(message, str):
        return "text, where this protocol has bytes"
    width = struct.calcsize(count_format)
    if len(message) < width:
        return "no room for the number of its parts"
    (count,) = struct.unpack_from(count_format, message)
    if not least <= count <= _MOST_PARTS:
        return f"{count} parts; a message has {least} to {_MOST_PARTS}"
    if len(message) < width * (count + 1):
        return f"no room for the places of {count} parts"
    places = (0, *struct.unpack_from(f"{order}{count}{number}", message, width), len(message))
    if any(before > after for before, after in itertools.pairwise(places)):
        return "parts that overlap, or lie beyond its end"
    return ""


# ---- written bytes


class WriteBuffer:
    """A count of the bytes written to one socket that the operating system has not taken.

    From *most_bytes* on, writers have to wait.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._has_moved = asyncio.Event()
        self.bytes = 0

    def add(self, size: int, written: asyncio.Future[None]) -> None:
        """Count a message of *size* bytes until *written* is done: written, or its socket closed."""
        self.bytes += size
        written.add_done_callback(partial(self._remove, size))

    def until_room(self) -> Awaitable[None] | None:
        """Return what a writer has to await; None if there is room."""
        return self._until_room() if self.bytes >= self._most_bytes else None

    async def _until_room(self) -> None:
        while self.bytes >= self._most_bytes:
            self._has_moved.clear()
            await self._has_moved.wait()

    def _remove(self, size: int, written: asyncio.Future[None]) -> None:
        self.bytes -= size
        self._has_moved.set()
        if not written.cancelled():
            written.exception()  # of a socket that closed, which its handler learns otherwise
