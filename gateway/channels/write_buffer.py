"""What was written to one socket and the operating system has not taken: counted in bytes, for who may write more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial


class Unsent:
    """``most_bytes``: from so many on, whoever writes is to wait until some of it went."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._has_moved = asyncio.Event()
        self.bytes = 0

    def add(self, size: int, written: asyncio.Future[None]) -> None:
        """A message of so many bytes; ``written`` is done when it went, or when its socket closed."""
        self.bytes += size
        written.add_done_callback(partial(self._went, size))

    def until_room(self) -> Awaitable[None] | None:
        """None: there is room."""
        return self._until_room() if self.bytes >= self._most_bytes else None

    async def _until_room(self) -> None:
        while self.bytes >= self._most_bytes:
            self._has_moved.clear()
            await self._has_moved.wait()

    def _went(self, size: int, written: asyncio.Future[None]) -> None:
        self.bytes -= size
        self._has_moved.set()
        if not written.cancelled():
            written.exception()  # that of a socket that closed, which is told of in another way
