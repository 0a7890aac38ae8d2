"""Closed websockets and links of ended kernels: freed at once, without a garbage collection."""

from __future__ import annotations

import asyncio
import heapq
import json
import weakref
from typing import Any

import pytest
from jupyter_server import CallContext
from tornado.httpclient import HTTPClientError
from tornado.web import RequestHandler

from jupyter_aliquot.gateway.api.events import EventsHandler

from .conftest import House


@pytest.fixture
def more_config() -> dict[str, Any]:
    """Shorten Jupyter's timer for its kernel info request: the timer holds the socket."""
    return {"MappingKernelManager": {"kernel_info_timeout": 2}}


def forget_cancelled_timers() -> None:
    """Remove canceled timers, which asyncio keeps, with their callbacks, until they are due."""
    loop: Any = asyncio.get_running_loop()
    loop._scheduled[:] = [timer for timer in loop._scheduled if not timer.cancelled()]
    heapq.heapify(loop._scheduled)
    loop._timer_cancelled_count = 0


def is_gone(*those: weakref.ref[Any]) -> bool:
    forget_cancelled_timers()
    return all(one() is None for one in those)


async def test_a_notebooks_socket_is_freed_when_it_closed_and_its_link_with_the_kernel(
    a_house: House, until: Any, no_collector: None
) -> None:
    browser = await a_house.browser().open()
    assert await browser.execute("print(6 * 7)")
    [port] = a_house.link._subscribers.values()
    handler, request = weakref.ref(port.websocket_handler), weakref.ref(port.websocket_handler.request)
    del port
    await browser.close()
    await until(lambda: is_gone(handler, request))
    relay: Any = a_house.link._link
    link, connection = weakref.ref(a_house.link), weakref.ref(relay._stream._transport)
    del relay
    await a_house.fetch("api", "kernels", a_house.kernel_id, method="DELETE")
    await until(lambda: is_gone(link, connection))


async def test_a_stream_of_events_is_freed_when_it_closed(
    a_house: House, jp_ws_fetch: Any, until: Any, monkeypatch: pytest.MonkeyPatch, no_collector: None
) -> None:
    opened: list[weakref.ref[EventsHandler]] = []
    is_there = EventsHandler.open

    def open_noted(handler: EventsHandler, *args: Any, **kwargs: Any) -> None:
        opened.append(weakref.ref(handler))
        is_there(handler, *args, **kwargs)

    monkeypatch.setattr(EventsHandler, "open", open_noted)
    stream = await jp_ws_fetch("aliquot/api/v1/events")
    [handler] = opened
    assert handler() is not None
    stream.close()
    await until(lambda: is_gone(handler))


async def test_a_socket_that_the_server_closed_is_freed(a_house: House, until: Any, no_collector: None) -> None:
    browser = await a_house.browser().open()
    [port] = a_house.link._subscribers.values()
    protocol = weakref.ref(port.websocket_handler.ws_connection)
    port.websocket_handler.close(1000, "we are done")
    del port
    await browser.close()
    await until(lambda: is_gone(protocol))


async def test_the_pings_of_an_open_socket_do_not_keep_its_request(a_house: House) -> None:
    browser = await a_house.browser().open()
    [port] = a_house.link._subscribers.values()
    handler: Any = port.websocket_handler
    assert handler.ping_callback.is_running()
    assert handler.ping_callback._timeout._context.get(CallContext._name_value_map) is None
    assert handler.ws_connection.params.ping_interval is None, "tornado's own are each 30,000 seconds"
    await browser.close()


async def test_the_request_that_started_a_kernel_is_freed_while_the_kernel_runs(
    a_house: House, until: Any, monkeypatch: pytest.MonkeyPatch, no_collector: None
) -> None:
    asked: list[weakref.ref[Any]] = []
    manager = a_house.server.kernel_manager
    is_there = manager.introduce

    def introduced(*args: Any) -> None:
        asked.append(weakref.ref(CallContext.get(CallContext.JUPYTER_HANDLER)))
        is_there(*args)

    monkeypatch.setattr(manager, "introduce", introduced)
    answer = await a_house.fetch("api", "kernels", method="POST", body=json.dumps({"name": "python3"}))
    kernel_id = json.loads(answer.body)["id"]
    await until(lambda: is_gone(*asked))
    assert len(asked) == 1
    assert kernel_id in manager
    await a_house.fetch("api", "kernels", kernel_id, method="DELETE")


async def test_a_request_that_was_refused_is_freed(
    a_house: House, until: Any, monkeypatch: pytest.MonkeyPatch, no_collector: None
) -> None:
    asked: list[weakref.ref[Any]] = []
    is_there = RequestHandler.__init__

    def made(handler: RequestHandler, *args: Any, **kwargs: Any) -> None:
        asked.append(weakref.ref(handler))
        is_there(handler, *args, **kwargs)

    monkeypatch.setattr(RequestHandler, "__init__", made)
    with pytest.raises(HTTPClientError, match="404"):
        await a_house.fetch("api", "kernels", "00000000-0000-0000-0000-000000000000")
    await until(lambda: is_gone(*asked))
    assert len(asked) == 1


async def test_a_start_that_fails_at_its_very_end_is_told(a_house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(kernel_id: str) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(a_house.server.kernel_manager, "start_watching_activity", broken)
    with pytest.raises(HTTPClientError, match="500"):
        await a_house.fetch("api", "kernels", method="POST", body=json.dumps({"name": "python3"}))
