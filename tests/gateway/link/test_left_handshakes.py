"""Who leaves before his websocket is open: nothing is left of him, and the kernel counts no one less than there are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from aliquot.gateway.event_handlers import EventsHandler
from aliquot.gateway.handler_base import SETTING
from aliquot.gateway.stock_handlers import ChannelsHandler
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

from .conftest import House

RELAYED = {"ZMQChannelsWebsocketConnection": {"limit_rate": False}}
PLAIN = {**RELAYED, "AliquotProvisioner": {"relay": False}}


@pytest.fixture
def more_config(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(getattr(request, "param", RELAYED))


class Door:
    """Whoever comes waits in it, until the test lets him in."""

    def __init__(self) -> None:
        self.came, self.may_enter = asyncio.Event(), asyncio.Event()

    async def wait(self) -> None:
        self.came.set()
        await self.may_enter.wait()


@pytest.fixture
def leave(
    jp_http_port: int, jp_base_url: str, jp_auth_header: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Begin a handshake, and leave while the door is closed; then it opens. Gives the handler, once it has ended."""

    async def begin_and_leave(path: str, handler: type[Any], door: Door) -> Any:
        gone, ended, handlers = asyncio.Event(), asyncio.Event(), list[Any]()
        on_close, get = handler.on_close, handler._execute

        def closed(self: Any) -> None:
            gone.set()
            on_close(self)

        async def executed(self: Any, *args: Any, **kwargs: Any) -> None:
            handlers.append(self)
            try:
                await get(self, *args, **kwargs)
            finally:
                ended.set()

        monkeypatch.setattr(handler, "on_close", closed)
        monkeypatch.setattr(handler, "_execute", executed)
        _, writer = await asyncio.open_connection("127.0.0.1", jp_http_port)
        head = {"Host": f"127.0.0.1:{jp_http_port}", "Upgrade": "websocket", "Connection": "Upgrade", **jp_auth_header}
        head |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13"}
        lines = [f"GET {jp_base_url}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
        writer.write("\r\n".join(lines).encode())
        async with asyncio.timeout(60):
            await door.came.wait()
            writer.close()
            await gone.wait()
            await asyncio.sleep(0)
            door.may_enter.set()
            await ended.wait()
        monkeypatch.undo()
        return handlers[0]

    return begin_and_leave


async def nothing_is_left(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """And the next one is counted as one."""
    sessions, counts = ZMQChannelsWebsocketConnection._open_sessions, house.server.kernel_manager._kernel_connections
    assert [key for key in sessions if house.kernel_id in key] == []
    assert counts[house.kernel_id] == 0
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []
    browser = await house.browser().open()
    assert (await house.model())["connections"] == 1
    assert await browser.execute("print(6 * 7)")
    await browser.close()


@pytest.mark.parametrize("more_config", [RELAYED, PLAIN], indirect=True, ids=["with a relay", "without one"])
async def test_who_leaves_while_the_kernel_is_waited_for_leaves_nothing(
    a_house: House, leave: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    door, prepare = Door(), ZMQChannelsWebsocketConnection.prepare

    async def slow(self: Any) -> None:
        await prepare(self)
        await door.wait()

    monkeypatch.setattr(ZMQChannelsWebsocketConnection, "prepare", slow)
    await leave(f"api/kernels/{a_house.kernel_id}/channels?session_id=hasty", ChannelsHandler, door)
    await nothing_is_left(a_house, caplog)


async def test_who_leaves_while_it_is_asked_who_he_is_leaves_nothing(
    a_house: House, leave: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    door, authorizer = Door(), a_house.server.authorizer
    is_authorized = authorizer.is_authorized

    async def slow(*args: Any) -> bool:
        await door.wait()
        return bool(await is_authorized(*args))

    monkeypatch.setattr(authorizer, "is_authorized", slow)
    await leave(f"api/kernels/{a_house.kernel_id}/channels?session_id=hasty", ChannelsHandler, door)
    await nothing_is_left(a_house, caplog)


async def test_who_leaves_before_his_stream_of_events_is_open_is_told_of_nothing(
    a_house: House, leave: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    door, identity = Door(), a_house.server.identity_provider
    get_user = type(identity).get_user

    async def slow(self: Any, handler: Any) -> Any:
        await door.wait()
        found = get_user(self, handler)
        return await found if asyncio.iscoroutine(found) else found

    monkeypatch.setattr(type(identity), "get_user", slow)
    handler = await leave("aliquot/api/events", EventsHandler, door)
    assert (handler._sender, handler.ping_callback) == (None, None)
    assert not a_house.server.web_app.settings[SETTING].events._listeners
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []
