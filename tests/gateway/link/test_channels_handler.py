"""When a websocket's message is handed on: played, for a relay that takes nothing is met too seldom."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_aliquot.gateway.api.jupyter import ChannelsHandler
from jupyter_aliquot.gateway.channels.relay_connection import KernelWebsocketConnection
from jupyter_aliquot.gateway.channels.zmq_connection import StockWebsocketConnection
from jupyter_aliquot.gateway.remote.channels import RemoteWebsocketConnection
from jupyter_aliquot.gateway.remote.jupyter import GatewayChannelsHandler


class FullLink:
    """A kernel's link, whose relay has much to take yet."""

    def __init__(self) -> None:
        self.is_full = True
        self.moved = asyncio.Event()

    async def until_room(self, port: Any) -> None:
        await self.moved.wait()


def a_socket(
    link: Any, handled: list[Any], monkeypatch: pytest.MonkeyPatch, kind: type[ChannelsHandler] = ChannelsHandler
) -> Any:
    """One that has just come, and whose messages are noted instead of read."""
    handler: Any = kind.__new__(kind)
    handler.connection = KernelWebsocketConnection.__new__(KernelWebsocketConnection)
    handler.connection._link, handler.ws_connection = link, object()
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


@pytest.mark.parametrize("waits", [False, True], ids=["after its closing", "read before, and waiting"])
async def test_what_comes_when_a_users_server_closed_the_socket_is_kept_for_the_next_one(
    waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = a_socket(None, [], monkeypatch, GatewayChannelsHandler)
    kept = list[str]()
    handler.connection = RemoteWebsocketConnection.__new__(RemoteWebsocketConnection)
    monkeypatch.setattr(RemoteWebsocketConnection, "keep", lambda self, message: kept.append(message))
    if waits:
        room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(RemoteWebsocketConnection, "until_room", lambda self: room)
        waiting = asyncio.ensure_future(handler.on_message("late"))
        await asyncio.sleep(0)
        handler.ws_connection = handler.connection = None
        room.set_result(None)
        await waiting
    else:
        handler.ws_connection = None
        assert handler.on_message("late") is None
    assert kept == ["late"]


@pytest.mark.parametrize("link", [None, SimpleNamespace(takes_again=False)], ids=["no relay", "an older relay"])
def test_what_comes_again_for_a_kernel_that_cannot_tell_is_answered_and_not_passed_on(
    link: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed, told = list[Any](), list[Any]()
    connection: Any = KernelWebsocketConnection.__new__(KernelWebsocketConnection)
    connection._link, connection._opened_at = link, 0.0
    monkeypatch.setattr(StockWebsocketConnection, "handle_incoming_message", lambda self, said: passed.append(said))
    monkeypatch.setattr(StockWebsocketConnection, "tell", lambda self, *answer: told.append(answer))
    header = {"msg_id": "m", "msg_type": "execute_request"}
    message = {"channel": "shell", "header": header, "metadata": {}, "content": {"code": "1"}}
    connection.handle_incoming_message(json.dumps({**message, "metadata": {"aliquot_again": {"age": 1, "runs": True}}}))
    assert passed == []
    assert [answer.msg_type for answer, _ in told] == ["status", "error", "execute_reply", "status"]
    reply, parent = told[2]
    assert (reply.content["ename"], parent) == ("NotRun", header)
    assert "nobody knows whether it ran" in reply.content["evalue"]
    connection.handle_incoming_message(json.dumps(message))
    assert len(passed) == 1
