"""Requests that come before the kernels of the gateway's last life were found again wait for that, and see no gap.

A session whose kernel is unknown is deleted when somebody looks at it: nobody may look too early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from jupyter_server.serverapp import ServerApp
from tornado.httputil import (
    HTTPHeaders,
    HTTPMessageDelegate,
    HTTPServerConnectionDelegate,
    RequestStartLine,
    ResponseStartLine,
)


class Door:
    """Closed from the moment at which the server's loop is about to run, until ``open``."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []
        self._is_closed = False
        self._http_server: Any = None
        self._application: Any = None

    def watch(self, server: ServerApp) -> None:
        """Close when the server starts its loop. One that runs in a loop of somebody else's never closes."""
        start_ioloop = server.start_ioloop

        def start() -> None:
            self.close(server)
            start_ioloop()

        server.start_ioloop = start  # type: ignore[method-assign]  # a request may be served before any hook runs

    def close(self, server: ServerApp) -> None:
        """Let requests wait, unless the server has no HTTP server of its own."""
        self._http_server = getattr(server, "http_server", None)
        if self._http_server is not None:
            self._is_closed = True
            self._application = self._http_server.request_callback
            self._http_server.request_callback = _Entrance(self._application, self)

    def open(self) -> None:
        """Let in who waits. Idempotent."""
        if not self._is_closed:
            return
        self._is_closed = False
        self._http_server.request_callback = self._application
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def opened(self) -> None:
        """Return when the door is open."""
        if self._is_closed:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter


class _Entrance(HTTPServerConnectionDelegate):
    """Called by the HTTP server with each request, in the application's place."""

    def __init__(self, inner: Any, door: Door) -> None:
        self._inner = inner
        self._door = door

    def start_request(self, server_conn: object, request_conn: Any) -> HTTPMessageDelegate:
        def enter() -> HTTPMessageDelegate:
            delegate: HTTPMessageDelegate = self._inner.start_request(server_conn, request_conn)
            return delegate

        return _Visitor(self._door, enter) if self._door.is_closed else enter()

    def on_close(self, server_conn: object) -> None:
        self._inner.on_close(server_conn)


class _Visitor(HTTPMessageDelegate):
    """One request, which the application hears of when the door is open."""

    def __init__(self, door: Door, enter: Callable[[], HTTPMessageDelegate]) -> None:
        self._door = door
        self._enter = enter
        self._inner: HTTPMessageDelegate | None = None

    async def headers_received(self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders) -> None:
        await self._door.opened()
        self._inner = self._enter()
        waits = self._inner.headers_received(start_line, headers)
        if waits is not None:
            await waits

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        return None if self._inner is None else self._inner.data_received(chunk)

    def finish(self) -> None:
        if self._inner is not None:
            self._inner.finish()

    def on_connection_close(self) -> None:
        if self._inner is not None:
            self._inner.on_connection_close()
