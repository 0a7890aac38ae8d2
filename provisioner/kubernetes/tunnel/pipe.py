"""The gateway's part of a connection in asyncio: the passing on of its bytes. The sidecar imports none of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Collection
from pathlib import Path

_PIECE_BYTES = 1 << 16

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def has_sockets(folder: Path, channels: Collection[str]) -> bool:
    """Return whether all of these sockets of a kernel are in a folder."""
    return all(os.path.lexists(folder / f"s-{channel}") for channel in channels)


async def pipe(one: Stream, other: Stream) -> None:
    """Pass bytes on both ways until one side is over. Then both are closed."""
    ways = [asyncio.ensure_future(_pass_on(one[0], other[1])), asyncio.ensure_future(_pass_on(other[0], one[1]))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        one[1].close()
        other[1].close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, OSError):
        while piece := await reader.read(_PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
