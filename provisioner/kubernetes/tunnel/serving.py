"""The service of a pod's sidecar: it leads the gateway's connections to the kernel's sockets, over TLS.

It reads no message, and keeps none.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import signal
import socket
import ssl
from pathlib import Path

from .stream import CHANNELS, LIFE, LONGEST_LINE, OK, has_sockets, pipe

_GREETING_SECONDS = 10.0
_LOOK_SECONDS = 0.005  # a look takes some microseconds


class Sidecar:
    """The connections of one kernel, whose sockets are ``s-1`` to ``s-5`` in *folder*."""

    def __init__(self, folder: Path, token: str) -> None:
        self._folder = folder
        self._token = token.encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, from its first line to its end."""
        try:
            channel = await self._channel(reader)
            if channel == LIFE:
                await self._until_kernel()
                writer.write(OK)
                await writer.drain()
                await reader.read()
            elif channel in CHANNELS:
                await self._until_kernel()  # the gateway connects ahead
                theirs = await asyncio.open_unix_connection(os.fspath(self._folder / f"s-{channel}"))
                writer.write(OK)
                await pipe((reader, writer), theirs)
        except (OSError, asyncio.TimeoutError, ValueError):
            pass  # the gateway sees that the connection is over, and asks again
        finally:
            writer.close()

    async def _channel(self, reader: asyncio.StreamReader) -> str:
        """Return the channel that a connection asks for; empty for one without the token."""
        line = await asyncio.wait_for(reader.readline(), _GREETING_SECONDS)
        token, _, channel = line.strip().partition(b" ")
        return channel.decode("ascii") if hmac.compare_digest(token, self._token) else ""

    async def _until_kernel(self) -> None:
        while not has_sockets(self._folder):  # noqa: ASYNC110  # another process makes them
            await asyncio.sleep(_LOOK_SECONDS)


async def run(folder: Path, keys: Path, listening: socket.socket) -> None:
    """Serve until SIGTERM. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(keys / "tls.crt", keys / "tls.key")
    sidecar = Sidecar(folder, (keys / "token").read_text().strip())
    ended = asyncio.Event()
    # The first process of a container gets no signal that it does not handle.
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    server = await asyncio.start_server(sidecar.serve, sock=listening, ssl=context, limit=LONGEST_LINE)
    await ended.wait()
    server.close()
