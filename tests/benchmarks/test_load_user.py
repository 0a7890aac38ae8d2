"""A user of the load benchmark leaves nothing open, even if connections and departures overlap."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application
from tornado.websocket import WebSocketHandler

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from load.user import Seen, User

COMINGS = 20
SLOW_SECONDS = 0.01


class Socket(WebSocketHandler):
    """The events' stream and a kernel's channels.

    The test counts open sockets, and one opens slowly.
    """

    # typed as Any: tornado's handlers carry no types for what an application hands them
    def initialize(self, is_open: set[Any]) -> None:
        self.is_open = is_open

    async def get(self, *args: Any, **kwargs: Any) -> None:
        await asyncio.sleep(SLOW_SECONDS)
        await super().get(*args, **kwargs)

    def open(self, *_: str, **__: str) -> None:
        self.is_open.add(self)

    def on_close(self) -> None:
        self.is_open.discard(self)


@asynccontextmanager
async def a_gateway() -> AsyncIterator[tuple[int, set[Any]]]:
    """Yield the port of a gateway, and its open sockets."""
    is_open: set[Any] = set()
    paths = ("/aliquot/api/v1/events", "/api/kernels/one/channels")
    server = HTTPServer(Application([(path, Socket, {"is_open": is_open}) for path in paths]))
    socket, port = bind_unused_port()
    server.add_socket(socket)
    try:
        yield port, is_open
    finally:
        server.stop()
        await server.close_all_connections()


async def until(claim: Callable[[], bool]) -> None:
    """Wait for a claim. Raises TimeoutError."""
    deadline = time.monotonic() + 30
    while not claim():
        if time.monotonic() > deadline:
            raise TimeoutError
        await asyncio.sleep(SLOW_SECONDS)


def test_who_comes_and_goes_at_once_leaves_no_stream_behind() -> None:
    async def run() -> None:
        async with a_gateway() as (port, is_open):
            seen = Seen()
            user = User("ann", "token", port, False, lambda: seen)
            user.kernels.append("one")

            async def come_again() -> None:
                await user.leave()
                await user.listen()

            await user.listen()
            await asyncio.gather(
                *(come_again() for _ in range(COMINGS)), *(user.open_channels("one") for _ in range(COMINGS))
            )
            await until(lambda: len(is_open) == 2)
            await user.leave()
            await until(lambda: len(is_open) == 0)
            assert seen.failures == []

    asyncio.run(run())


def test_a_stream_that_the_gateway_ends_is_a_failure_that_says_why() -> None:
    async def run() -> None:
        async with a_gateway() as (port, is_open):
            seen = Seen()
            user = User("ann", "token", port, False, lambda: seen)
            await user.listen()
            await until(lambda: len(is_open) == 1)
            next(iter(is_open)).close(1013, "read the status")
            await until(lambda: len(is_open) == 0)
            await until(lambda: bool(seen.failures))
            assert seen.failures == ["events: the stream ended (1013 read the status)"]
            await user.leave()

    asyncio.run(run())
