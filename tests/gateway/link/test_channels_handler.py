"""The moment at which a handler passes on a websocket's message.

The relay is scripted, because a real one is too seldom full.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jupyter_aliquot.gateway.api.jupyter import ChannelsHandler
from jupyter_aliquot.gateway.channels.connection import KernelWebsocketConnection
from jupyter_aliquot.gateway.channels.transports import RelayTransport


class FullLink:
    """A kernel's link whose relay has much to read yet."""

    def __init__(self) -> None:
        self.is_full = True
        self.moved = asyncio.Event()

    async def until_room(self, port: Any) -> None:
        await self.moved.wait()


def a_socket(
    link: Any, handled: list[Any], monkeypatch: pytest.MonkeyPatch, kind: type[ChannelsHandler] = ChannelsHandler
) -> Any:
    """Return a socket that has just opened; it notes its messages instead of handling them."""
    handler: Any = kind.__new__(kind)
    handler.connection = KernelWebsocketConnection.__new__(KernelWebsocketConnection)
    handler.connection._transport, handler.ws_connection = RelayTransport(link), object()
    monkeypatch.setattr(ChannelsHandler, "_handle", lambda self, message: handled.append(message))
    return handler


async def test_the_first_message_of_a_new_socket_waits_for_what_others_left(monkeypatch: pytest.MonkeyPatch) -> None:
    link, handled = FullLink(), list[Any]()
    waiting = asyncio.ensure_future(a_socket(link, handled, monkeypatch).on_message("first"))
    await asyncio.sleep(0)
    assert handled == [], "else each socket that comes and goes leaves one more message"
    link.is_full = False
    link.moved.set()
    await waiting
    assert handled == ["first"]


async def test_what_a_socket_sent_that_closed_while_it_waited_is_kept_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    link, handled = FullLink(), list[Any]()
    handler = a_socket(link, handled, monkeypatch)
    waiting = asyncio.ensure_future(handler.on_message("first"))
    await asyncio.sleep(0)
    handler.ws_connection = None
    link.moved.set()
    await waiting
    assert handled == []
