"""Websockets that never open: their browser left, or the kernel did not come.

The server keeps nothing of them. It counts each kernel's open pages right, and idle culling relies
on that count.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from tornado.httpclient import HTTPClientError

from jupyter_aliquot.gateway.api.base import SETTING
from jupyter_aliquot.gateway.api.events import EventsHandler
from jupyter_aliquot.gateway.api.jupyter import ChannelsHandler
from jupyter_aliquot.gateway.relays.link import KernelLink

from .conftest import House

RELAYED = {"ZMQChannelsWebsocketConnection": {"limit_rate": False}}
PLAIN = {**RELAYED, "AliquotProvisioner": {"relay": False}}
HASTY = "channels?session_id=hasty"
PATIENCE_SECONDS = 60.0


@pytest.fixture
def more_config(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(getattr(request, "param", RELAYED))


each_kind = pytest.mark.parametrize("more_config", [RELAYED, PLAIN], indirect=True, ids=["with a relay", "without one"])


class Door:
    """A door: each handshake waits in it until the test opens it."""

    def __init__(self) -> None:
        self.came, self.may_enter = asyncio.Event(), asyncio.Event()

    async def wait(self) -> None:
        self.came.set()
        await self.may_enter.wait()


class Handshake:
    """A handshake of a browser that leaves while the handshake waits in a door."""

    def __init__(self, handler: type[Any], monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Awaitable[Any]]) -> None:
        self.handlers: list[Any] = []
        self._gone, self._ended = asyncio.Event(), asyncio.Event()
        self._ask = ask
        on_close, execute, handshake = handler.on_close, handler._execute, self

        def closed(self: Any) -> None:
            if self in handshake.handlers:
                handshake._gone.set()
            on_close(self)

        async def executed(self: Any, *args: Any, **kwargs: Any) -> None:
            if handshake.handlers:  # the next handshake passes
                await execute(self, *args, **kwargs)
                return
            handshake.handlers.append(self)
            try:
                await execute(self, *args, **kwargs)
            finally:
                handshake._ended.set()

        monkeypatch.setattr(handler, "on_close", closed)
        monkeypatch.setattr(handler, "_execute", executed)

    async def leave(self, door: Door) -> None:
        """Leave while the handshake waits in the door."""
        writer = await self._ask()
        await asyncio.wait_for(door.came.wait(), PATIENCE_SECONDS)
        writer.close()
        await asyncio.wait_for(self._gone.wait(), PATIENCE_SECONDS)

    async def end(self, door: Door) -> Any:
        """Open the door, wait for the handshake's end, and return its handler."""
        door.may_enter.set()
        await asyncio.wait_for(self._ended.wait(), PATIENCE_SECONDS)
        return self.handlers[0]


@pytest.fixture
def handshake(
    jp_http_port: int, jp_base_url: str, jp_auth_header: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Handshake]:
    """Return a function that makes a handshake for this handler at this path."""

    def make(handler: type[Any], path: str) -> Handshake:
        async def ask() -> asyncio.StreamWriter:
            _, writer = await asyncio.open_connection("127.0.0.1", jp_http_port)
            head = {"Host": f"127.0.0.1:{jp_http_port}", "Upgrade": "websocket", "Connection": "Upgrade"}
            head |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13", **jp_auth_header}
            lines = [f"GET {jp_base_url}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
            writer.write("\r\n".join([*lines, "", ""]).encode())
            return writer

        return Handshake(handler, monkeypatch, ask)

    return make


def registered(house: House) -> list[str]:
    return [key for key in ZMQChannelsWebsocketConnection._open_sessions if house.kernel_id in key]


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the logged errors, without asyncio's about the garbage of earlier tests."""
    found = [record for record in caplog.records if record.levelno >= logging.ERROR and record.name != "asyncio"]
    return [record.getMessage() for record in found]


async def nothing_is_left(house: House, until: Any) -> None:
    """Check that the server holds nothing, and counts the next websocket as one."""
    assert registered(house) == []
    assert house.server.kernel_manager._kernel_connections[house.kernel_id] == 0
    browser = await house.browser().open()
    assert (await house.model())["connections"] == 1
    assert await browser.execute("print(6 * 7)")
    await browser.close()
    await until(lambda: registered(house) == [])


def slow_authorizer(house: House, monkeypatch: pytest.MonkeyPatch) -> Door:
    door, is_authorized = Door(), house.server.authorizer.is_authorized

    async def slow(*args: Any) -> bool:
        await door.wait()
        return bool(await is_authorized(*args))

    monkeypatch.setattr(house.server.authorizer, "is_authorized", slow)
    return door


@each_kind
async def test_who_leaves_while_the_kernel_is_waited_for_leaves_nothing(
    a_house: House, handshake: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, until: Any
) -> None:
    door, kernel = Door(), a_house.server.kernel_manager.get_kernel(a_house.kernel_id)
    is_alive = kernel.is_alive

    async def slow() -> bool:
        await door.wait()
        return bool(await is_alive())

    monkeypatch.setattr(kernel, "is_alive", slow)
    leaving = handshake(ChannelsHandler, f"api/kernels/{a_house.kernel_id}/{HASTY}")
    await leaving.leave(door)
    asked, ask = list[str](), ZMQChannelsWebsocketConnection.request_kernel_info

    def noted(self: Any) -> Any:
        asked.append(self.session.session)
        return ask(self)

    monkeypatch.setattr(ZMQChannelsWebsocketConnection, "request_kernel_info", noted)
    await leaving.end(door)
    assert asked == [], "the kernel is asked for nobody"
    assert errors(caplog) == []
    await nothing_is_left(a_house, until)


@each_kind
async def test_who_leaves_while_the_kernel_waits_for_a_gpu_is_not_kept_until_it_comes(
    a_house: House, caplog: pytest.LogCaptureFixture, until: Any
) -> None:
    kernel = a_house.server.kernel_manager.get_kernel(a_house.kernel_id)
    is_ready, kernel._ready = kernel._ready, asyncio.get_running_loop().create_future()
    leaving = await a_house.browser(session="hasty").open()
    await until(lambda: registered(a_house))
    await leaving.close()
    await until(lambda: registered(a_house) == [])
    assert not kernel._ready.done(), "the start is everybody's"
    kernel._ready.set_result(None)
    kernel._ready = is_ready
    assert errors(caplog) == []
    await nothing_is_left(a_house, until)


@each_kind
async def test_who_leaves_when_the_kernel_has_been_asked_leaves_nothing(
    a_house: House, handshake: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, until: Any
) -> None:
    door, prepare = Door(), ZMQChannelsWebsocketConnection.prepare

    async def slow(self: Any) -> None:
        await prepare(self)
        await door.wait()

    monkeypatch.setattr(ZMQChannelsWebsocketConnection, "prepare", slow)
    leaving = handshake(ChannelsHandler, f"api/kernels/{a_house.kernel_id}/{HASTY}")
    await leaving.leave(door)
    await leaving.end(door)
    assert errors(caplog) == []
    await nothing_is_left(a_house, until)


async def test_who_leaves_while_it_is_asked_who_he_is_leaves_nothing(
    a_house: House, handshake: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, until: Any
) -> None:
    door = slow_authorizer(a_house, monkeypatch)
    leaving = handshake(ChannelsHandler, f"api/kernels/{a_house.kernel_id}/{HASTY}")
    await leaving.leave(door)
    await leaving.end(door)
    assert errors(caplog) == []
    await nothing_is_left(a_house, until)


@each_kind
async def test_who_left_does_not_close_the_socket_with_which_he_came_back(
    a_house: House, handshake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_authorized = a_house.server.authorizer.is_authorized
    door = slow_authorizer(a_house, monkeypatch)
    leaving = handshake(ChannelsHandler, f"api/kernels/{a_house.kernel_id}/{HASTY}")
    await leaving.leave(door)
    monkeypatch.setattr(a_house.server.authorizer, "is_authorized", is_authorized)
    browser = await a_house.browser(session="hasty").open()
    await leaving.end(door)
    assert len(registered(a_house)) == 1
    assert await browser.execute("print(6 * 7)"), "its socket is open"
    await browser.close()


@each_kind
@pytest.mark.parametrize("way", ["prepare", "connect"])
async def test_a_socket_that_cannot_be_opened_leaves_nothing(
    a_house: House, until: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    failed, prepare = list[str](), ZMQChannelsWebsocketConnection.prepare

    def fails(*_: Any) -> None:
        failed.append(way)
        raise RuntimeError("nothing comes of it")

    async def fails_later(self: Any, *_: Any) -> None:
        if isinstance(self, ZMQChannelsWebsocketConnection):
            await prepare(self)
        fails()

    with monkeypatch.context() as patched:
        if way == "connect":  # the server calls one of the two, after it has counted the socket
            patched.setattr(KernelLink, "open", fails_later)
            patched.setattr(ZMQChannelsWebsocketConnection, "nudge", fails)
        else:
            patched.setattr(ZMQChannelsWebsocketConnection, "prepare", fails_later)
        with contextlib.suppress(HTTPClientError):
            await a_house.browser().open()
        await until(lambda: failed)
    await until(lambda: registered(a_house) == [])
    await until(lambda: a_house.server.kernel_manager._kernel_connections[a_house.kernel_id] == 0)
    traces = {type(record.exc_info[1]).__name__ for record in caplog.records if record.exc_info and record.exc_info[1]}
    assert traces <= {"RuntimeError", "HTTPError"}, "it failed once"


async def test_what_is_no_handshake_leaves_nothing(a_house: House) -> None:
    for number in range(3):
        with pytest.raises(HTTPClientError, match="400"):
            await a_house.fetch("api", "kernels", a_house.kernel_id, "channels", params={"session_id": f"s{number}"})
    assert registered(a_house) == []


async def test_who_leaves_before_his_stream_of_events_is_open_is_told_of_nothing(
    a_house: House, handshake: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    door, identity = Door(), a_house.server.identity_provider
    get_user = type(identity).get_user

    async def slow(self: Any, handler: Any) -> Any:
        await door.wait()
        found = get_user(self, handler)
        return await found if asyncio.iscoroutine(found) else found

    monkeypatch.setattr(type(identity), "get_user", slow)
    leaving = handshake(EventsHandler, "aliquot/api/v1/events")
    await leaving.leave(door)
    handler = await leaving.end(door)
    assert (handler._sender, handler.ping_callback) == (None, None)
    assert not a_house.server.web_app.settings[SETTING].events._listeners
    assert errors(caplog) == []
