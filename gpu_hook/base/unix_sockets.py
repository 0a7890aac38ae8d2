"""Connections to Unix sockets of this machine, also while many others connect.

Where the queue of a listening socket is full, the system answers EAGAIN, which asyncio takes for
progress: its connection would never be one.
"""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

from jupyter_aliquot.gpu_hook.waiting import within

_RETRY_SECONDS = 0.01


async def connect(connection: socket.socket, path: Path) -> None:
    """Connect, and wait while the listener's queue is full. Raises OSError.

    The socket must not block.
    """
    while True:
        try:
            connection.connect(os.fspath(path))
            return
        except BlockingIOError:
            await asyncio.sleep(_RETRY_SECONDS)


async def open_connection(
    path: Path, *, limit: int, seconds: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the streams of a new connection, as asyncio.open_unix_connection does.

    Raises OSError, and asyncio.TimeoutError where the listener takes none for so long.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        await within(connect(connection, path), seconds)
        return await asyncio.open_unix_connection(sock=connection, limit=limit)
    except BaseException:
        connection.close()
        raise
