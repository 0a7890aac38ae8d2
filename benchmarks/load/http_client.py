"""HTTP/1.1 over one connection that stays open, as a browser keeps it.

It has no more than the load test needs. It is hand-made, for a client's own work must be little
next to the gateway's on a machine of two cores.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any


class HttpError(Exception):
    """The answer is not a success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message[:200]}")
        self.status = status


class HttpClient:
    """One connection of one user; one question at a time."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._token = token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()

    async def ask(self, method: str, path: str, body: Any = None) -> bytes:
        """Return the answer's body. Raises HttpError, OSError."""
        async with self._turn:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
            try:
                return await self._converse(*self._streams, method, path, body)
            except BaseException as error:
                if not isinstance(error, HttpError):
                    self.close()
                raise

    async def json(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer's body as JSON."""
        answer = await self.ask(method, path, body)
        return json.loads(answer) if answer else None

    async def leave(self) -> None:
        """Close the connection once the pending question has its answer."""
        async with self._turn:
            self.close()

    def close(self) -> None:
        """Close the connection. Idempotent; the next question opens another one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str, path: str, body: Any
    ) -> bytes:
        data = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nAuthorization: token {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        writer.write(head.encode() + data)
        status, length = await _read_head(reader)
        answer = await reader.readexactly(length) if length else b""
        if status >= 300:
            raise HttpError(status, answer.decode(errors="replace"))
        return answer


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, int]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    length = 0
    for line in lines[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            length = int(value)
    return int(lines[0].split()[1]), length
