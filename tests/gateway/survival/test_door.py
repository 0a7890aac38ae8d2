"""Requests that come too early wait at the door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import tornado.httpserver
import tornado.testing
import tornado.web
from tornado.httpclient import AsyncHTTPClient

from jupyter_aliquot.gateway.recovery.door import Door


class Echo(tornado.web.RequestHandler):
    async def get(self) -> None:
        self.write("here")

    async def post(self) -> None:
        self.write(self.request.body)


class Server:
    """As much of a Jupyter server as the door sees."""

    def __init__(self) -> None:
        self.http_server = tornado.httpserver.HTTPServer(tornado.web.Application([("/", Echo)]))
        self.started = 0

    def start_ioloop(self) -> None:
        self.started += 1


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Server, str]]:
    server = Server()
    socket, port = tornado.testing.bind_unused_port()
    server.http_server.add_sockets([socket])
    try:
        yield server, f"http://127.0.0.1:{port}/"
    finally:
        server.http_server.stop()


def test_requests_wait_until_the_door_opens() -> None:
    async def scene() -> None:
        async with serving() as (server, url):
            door = Door()
            door.watch(server)  # type: ignore[arg-type]  # a part of one
            server.start_ioloop()
            assert (server.started, door.is_closed) == (1, True)
            client = AsyncHTTPClient(force_instance=True)
            early = [client.fetch(url), client.fetch(url, method="POST", body="x" * 100_000)]
            await settle()
            assert not any(answer.done() for answer in early)
            door.open()
            door.open()
            got, posted = await asyncio.gather(*early)
            assert (got.body, len(posted.body)) == (b"here", 100_000)
            assert (await client.fetch(url)).body == b"here"
            assert isinstance(server.http_server.request_callback, tornado.web.Application)
            client.close()

    asyncio.run(scene())


def test_who_leaves_while_waiting_disturbs_nobody() -> None:
    async def scene() -> None:
        async with serving() as (server, url):
            door = Door()
            door.close(server)  # type: ignore[arg-type]  # a part of one
            _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2].strip("/")))
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await writer.drain()
            await settle()
            writer.close()
            client = AsyncHTTPClient(force_instance=True)
            waiting = client.fetch(url)
            await settle()
            door.open()
            assert (await waiting).body == b"here"
            client.close()

    asyncio.run(scene())


def test_a_server_without_an_http_server_has_no_door() -> None:
    door = Door()
    door.close(object())  # type: ignore[arg-type]  # what matters is what it has not
    assert not door.is_closed
    asyncio.run(door.opened())


async def settle() -> None:
    """Let everybody run until all wait for something."""
    for _ in range(200):
        await asyncio.sleep(0)
