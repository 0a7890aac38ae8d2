"""Messages that a user's own server holds for a gateway that does not read.

Their size is bounded, and the gateway gets all of them once it reads.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application
from tornado.websocket import WebSocketHandler, websocket_connect

from jupyter_aliquot.gateway.channels.browser_socket import WriteBuffer
from jupyter_aliquot.gateway.remote.channels import RemoteWebsocketConnection
from jupyter_aliquot.gateway.remote.jupyter import GatewayChannelsHandler

SIZE = 1 << 20
MOST = 8 << 20


class Gateway(WebSocketHandler):
    """A gateway that reads nothing after its first message until a test lets it."""

    async def on_message(self, message: str | bytes) -> None:
        self.settings["heard"].put_nowait(message[:8])
        await self.settings["reads"].wait()


class Connection(RemoteWebsocketConnection):
    """A browser's connection to a gateway that is there; the tests hand in its messages."""

    def __init__(self) -> None:
        self.ended: list[int] = []

    log = logging.getLogger(__name__)  # type: ignore[assignment]
    kernel_id = "k"
    disconnected = False  # type: ignore[assignment]
    ws: Any = None

    def _end(self, code: int, reason: str) -> None:
        self.ended.append(code)

    @cached_property
    def _unsent(self) -> WriteBuffer:
        return WriteBuffer(MOST)


def a_socket(connection: RemoteWebsocketConnection) -> Any:
    """Return the browser's socket, which tornado calls; it passes messages on unparsed."""

    class Handler(GatewayChannelsHandler):
        def _handle(self, message: Any) -> None:
            self.connection.handle_incoming_message(message)

    handler: Any = Handler.__new__(Handler)
    handler.connection, handler.ws_connection = connection, object()
    return handler


@asynccontextmanager
async def a_stuck_gateway() -> AsyncIterator[tuple[Connection, asyncio.Queue[str], asyncio.Event]]:
    heard, reads = asyncio.Queue[str](), asyncio.Event()
    listening, port = bind_unused_port()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    server = HTTPServer(Application([("/", Gateway)], heard=heard, reads=reads, websocket_max_message_size=2 * SIZE))
    server.add_socket(listening)
    connection = Connection()
    connection.ws = await websocket_connect(f"ws://127.0.0.1:{port}/")
    try:
        yield connection, heard, reads
    finally:
        reads.set()
        connection.ws.close()
        server.stop()
        await server.close_all_connections()


async def flood(handler: Any) -> tuple[int, asyncio.Future[None]]:
    """Send messages, as tornado does, until one waits.

    Returns their number, and the future that tornado awaits.
    """
    for number in range(64):
        if (waiting := handler.on_message(f"{number:8}".ljust(SIZE))) is not None:
            return number + 1, asyncio.ensure_future(waiting)
        await asyncio.sleep(0)
    raise AssertionError("nothing held the flood up")


async def test_a_gateway_that_does_not_read_holds_up_its_browser_and_has_all_of_it_later() -> None:
    async with a_stuck_gateway() as (connection, heard, reads):
        sent, waiting = await flood(a_socket(connection))
        assert MOST <= connection._unsent.bytes <= MOST + SIZE, "else it grows with what the browser sends"
        assert not waiting.done()
        reads.set()
        await asyncio.wait_for(waiting, 60)
        found = [await asyncio.wait_for(heard.get(), 60) for _ in range(sent)]
        assert found == [f"{number:8}" for number in range(sent)]
        assert connection.until_room() is None


async def test_a_gateway_that_goes_away_lets_go_of_a_browser_that_waits() -> None:
    async with a_stuck_gateway() as (connection, _heard, _reads):
        _, waiting = await flood(a_socket(connection))
        connection.ws.protocol.stream.close()
        await asyncio.wait_for(waiting, 60)
        assert connection._unsent.bytes == 0
