"""The gateway's event stream, left by the page or the gateway at a bad moment.

The tests use one process and a scripted gateway.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from jupyter_server.auth import AllowAllAuthorizer
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application

from jupyter_aliquot.gateway.api.base import SETTING
from jupyter_aliquot.gateway.auth.identity import AliquotUser
from jupyter_aliquot.gateway.remote import events as event_handlers

HANDSHAKE = (
    b"GET /events HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Handler(event_handlers.RemoteEventsHandler):
    """A handler of an administrator's request."""

    gone: asyncio.Event

    def prepare(self) -> None:
        self._jupyter_current_user = AliquotUser(username="ada", role="admin")

    def check_origin(self, origin_to_satisfy_tornado: str = "") -> bool:
        return True

    def set_default_headers(self) -> None:
        pass

    def on_close(self) -> None:
        try:
            super().on_close()
        finally:
            self.gone.set()


class Gateway:
    """A gateway that answers the handshake when the test lets it."""

    close_code = close_reason = None

    def __init__(self) -> None:
        self.asked, self.answers, self.left = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def open(self) -> Gateway:
        self.asked.set()
        await self.answers.wait()
        return self

    async def read_message(self) -> None:
        await self.left.wait()

    def close(self) -> None:
        self.left.set()


async def leave_while_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway, Handler.gone = Gateway(), asyncio.Event()
    monkeypatch.setattr(event_handlers, "open_events", gateway.open)
    settings: dict[str, Any] = {"authorizer": AllowAllAuthorizer(), "base_url": "/"}
    server = HTTPServer(Application([("/events", Handler)], **settings, **{SETTING: None}))
    socket, port = bind_unused_port()
    server.add_sockets([socket])
    _, page = await asyncio.open_connection("127.0.0.1", port)
    try:
        page.write(HANDSHAKE)
        await asyncio.wait_for(gateway.asked.wait(), 60)
        page.transport.abort()
        await asyncio.wait_for(Handler.gone.wait(), 60)
        gateway.answers.set()
        await asyncio.wait_for(gateway.left.wait(), 60)
    finally:
        server.stop()
        await server.close_all_connections()


def test_a_page_that_leaves_while_the_gateway_is_asked_leaves_no_stream_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        asyncio.run(leave_while_it_is_asked(monkeypatch))
    assert caplog.messages == []


@pytest.mark.parametrize("message", ['{"schema_id": 1}', b'{"schema_id": 1}', b"\xff", "[" * 100_000])
def test_what_is_no_event_is_not_passed_on(message: str | bytes) -> None:
    assert event_handlers._readable(message) is None


@pytest.mark.parametrize("message", ['{"schema_id": "a", "kernel_id": "b"}', b'{"schema_id": "a", "kernel_id": "b"}'])
def test_an_event_is_passed_on_as_it_came(message: str | bytes) -> None:
    assert event_handlers._readable(message) == '{"schema_id": "a", "kernel_id": "b"}'
