"""Lines of an agent that cannot be used: they end the connection, and each waiter is told."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from jupyter_aliquot.gpu_hook.client.client import AgentClient, AgentUnreachable

PATIENCE_SECONDS = 30.0


@pytest.mark.parametrize(
    "line",
    [
        b'{"id": []}',
        b'{"id": {}, "ok": true}',
        b'{"ok": true, "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"[" * 300_000 + b"]" * 300_000,
        b'{"event": "lease", "kernel_id": []}',
        b"\xff",
    ],
    ids=["a list", "an object", "nested deeply", "nested deeply and long", "an event of no kernel", "no text"],
)
def test_a_line_that_cannot_be_used_fails_the_waiters(line: bytes) -> None:
    asyncio.run(ask_and_answer(line))


async def ask_and_answer(line: bytes) -> None:
    ours, theirs = socket.socketpair()
    client = AgentClient(*await asyncio.open_unix_connection(sock=ours, limit=1 << 22), Path("the test"))
    _, writer = await asyncio.open_unix_connection(sock=theirs)
    try:
        waiter = asyncio.create_task(client.ask("status"))
        writer.write(line + b"\n")
        if b"event" in line:  # a watcher gets the next event within a second, so that this one is only dropped
            writer.write(b"7\n")
        with pytest.raises(AgentUnreachable):
            await asyncio.wait_for(waiter, PATIENCE_SECONDS)
    finally:
        await client.close()
        writer.close()
