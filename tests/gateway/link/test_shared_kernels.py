"""Websockets of collaborators on a shared kernel.

The tests check which messages they see, which they may send, and that they take none from the
owner.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from jupyter_server.services.kernels.connection.base import serialize_msg_to_ws_v1
from tornado.httpclient import HTTPClientError

from .browser import Browser, text_of
from .conftest import House
from .test_output_survives import COUNT, numbers

USERS = {name: {"token": f"a-token-of-{name}"} for name in ("alice", "bob", "carol")}
_PATIENCE_SECONDS = 60.0


def as_user(name: str) -> dict[str, str]:
    return {"Authorization": f"token a-token-of-{name}"}


@pytest.fixture
def more_config() -> dict[str, Any]:
    return {
        "ZMQChannelsWebsocketConnection": {"limit_rate": False},
        "AliquotIdentityProvider": {"users": USERS},
    }


class SharedHouse(House):
    """Alice's kernel, and browsers of several people."""

    def __init__(self, server: ServerApp, fetch: Any, connect: Any) -> None:
        super().__init__(server, functools.partial(fetch, headers=as_user("alice")), connect)
        self._anybody = fetch

    def browser_of(self, name: str, protocol: str = "v1", session: str = "tab-1") -> Browser:
        connect = functools.partial(self._connect, headers=as_user(name))
        return Browser(connect, self.kernel_id, protocol, session)

    async def ask(self, name: str, method: str, *path: str, body: Any = None) -> tuple[int, Any]:
        sent = None if body is None else json.dumps(body)
        try:
            answer = await self._anybody(
                *path, method=method, headers=as_user(name), body=sent, allow_nonstandard_methods=True
            )
        except HTTPClientError as error:
            body = error.response.body if error.response is not None else b"{}"
            return error.code, json.loads(body)["message"]
        return answer.code, json.loads(answer.body) if answer.body else None

    async def share(self, name: str, access: str | None) -> None:
        path = ("aliquot", "api", "v1", "kernels", self.kernel_id, "shares", "users", name)
        body = None if access is None else {"access": access}
        status, _ = await self.ask("alice", "PUT" if access else "DELETE", *path, body=body)
        assert status == 200


@pytest.fixture
def a_shared_house(
    kernelspecs: Path, jp_serverapp: ServerApp, jp_fetch: Any, jp_ws_fetch: Any, jp_asyncio_loop: Any
) -> Iterator[SharedHouse]:
    house = SharedHouse(jp_serverapp, jp_fetch, jp_ws_fetch)

    async def begin() -> None:
        await jp_serverapp.extension_manager.start_all_extensions()
        await house.start_kernel()

    async def end() -> None:
        await jp_serverapp.kernel_manager.shutdown_all(now=True)
        await jp_serverapp.extension_manager.stop_all_extensions()

    jp_asyncio_loop.run_until_complete(begin())
    yield house
    jp_asyncio_loop.run_until_complete(end())


def is_idle_of(asked: str) -> Any:
    return lambda message: message.parent == asked and message.content.get("execution_state") == "idle"


async def closed(browser: Browser) -> tuple[int | None, str | None]:
    """Return the code and the reason with which the server closed the websocket."""
    socket = browser.socket
    assert socket is not None
    while await asyncio.wait_for(socket.read_message(), _PATIENCE_SECONDS) is not None:
        pass
    return socket.close_code, socket.close_reason


@pytest.mark.parametrize("protocol", ["v1", "legacy"])
async def test_a_reader_sees_the_output_asks_two_things_and_runs_nothing(
    a_shared_house: SharedHouse, protocol: str
) -> None:
    house = a_shared_house
    assert (await house.ask("bob", "GET", "api", "kernels", house.kernel_id))[0] == 404
    await house.share("bob", "read")
    alice, bob = await house.browser_of("alice").open(), await house.browser_of("bob", protocol, "tab-1").open()
    asked = await alice.run("x = 1\nprint('seen by both')")
    await bob.until(is_idle_of(asked))
    assert text_of(bob.of(asked)) == "seen by both\n"
    assert [m.channel for m in bob.of(asked) if m.channel != "iopub"] == [], "replies are for who asked"
    info = await bob.ask("shell", "kernel_info_request", {})
    assert info.content["status"] == "ok"
    assert (await bob.ask("shell", "comm_info_request", {"target_name": "none"})).content["comms"] == {}
    ran = await bob.execute("x = 2")
    error = next(m.content for m in ran if m.type == "error")
    assert (error["ename"], "read-only by alice" in error["evalue"]) == ("ReadOnlyKernel", True)
    assert [m.content["status"] for m in ran if m.type == "execute_reply"] == ["error"]
    states = [m.content["execution_state"] for m in ran if m.type == "status"]
    assert states == ["busy", "idle"]
    for channel, kind in (("shell", "complete_request"), ("control", "shutdown_request"), ("control", "debug_request")):
        refused = await bob.ask(channel, kind, {"code": "x", "cursor_pos": 1, "command": "debugInfo", "seq": 3})
        assert refused.content["status"] == "error"
    assert text_of(await alice.execute("print(x)")) == "1\n"
    for action in ("interrupt", "restart"):
        status, said = await house.ask("bob", "POST", "api", "kernels", house.kernel_id, action)
        assert (status, "read-only by alice" in said) == (403, True)
    assert (await house.ask("bob", "DELETE", "api", "kernels", house.kernel_id))[0] == 403
    cells = (await house.ask("bob", "GET", "aliquot", "api", "v1", "kernels", house.kernel_id, "outputs"))[1]["cells"]
    assert "seen by both" in json.dumps(cells)


async def test_a_reader_takes_no_message_id_that_its_owner_will_use(a_shared_house: SharedHouse) -> None:
    """Some clients count their message ids up, and every reader sees them."""
    house = a_shared_house
    await house.share("bob", "read")
    alice, bob = await house.browser_of("alice").open(), await house.browser_of("bob", session="tab-2").open()
    code = {"code": "print('ran')", "silent": False, "allow_stdin": False}
    cell, asked = alice.make("execute_request", code), bob.make("kernel_info_request", {})
    asked["header"] = {**asked["header"], "msg_id": cell["header"]["msg_id"]}
    info = await bob.ask("control", "kernel_info_request", {}, message=asked)
    assert info.content["status"] == "ok"
    await alice.send("shell", "execute_request", {}, message=cell)
    assert text_of(await asyncio.wait_for(alice.finish(cell["header"]["msg_id"]), _PATIENCE_SECONDS)) == "ran\n"


async def test_what_a_collaborator_was_shown_is_still_its_owners(a_shared_house: SharedHouse, until: Any) -> None:
    """Open Bob's page with the name of Alice's session, which stands in each of her outputs."""
    house = a_shared_house
    await house.share("bob", "read")
    alice = await house.browser_of("alice", session="hers").open()
    bob = await house.browser_of("bob", session="hers").open()
    asked = await alice.run(COUNT.format(n=600))
    await alice.until(lambda m: bool(numbers([m])) and numbers([m])[-1] >= 50)
    await alice.close()
    await bob.until(is_idle_of(asked))
    assert numbers(bob.of(asked)) == list(range(600))
    assert "execute_reply" not in [m.type for m in bob.seen]
    cells = (await house.ask("bob", "GET", "aliquot", "api", "v1", "kernels", house.kernel_id, "outputs"))[1]["cells"]
    assert "599" in json.dumps(cells), "his page shows it after a reload, too"
    await until(lambda: not house.link.activity.is_busy)
    await alice.open()
    seen = await alice.finish(asked)
    assert numbers(seen) == list(range(600))
    assert [m.type for m in seen if m.channel == "shell"] == ["execute_reply"]
    await bob.close()
    assert text_of(await alice.execute("print('still hers')")) == "still hers\n"


async def test_a_collaborator_who_does_not_read_holds_nobody_up(a_shared_house: SharedHouse) -> None:
    house = a_shared_house
    await house.share("bob", "read")
    alice, bob = await house.browser_of("alice").open(), await house.browser_of("bob").open()
    assert bob.socket is not None
    asked = await alice.run("line = 'x' * 99_999\nfor i in range(400):\n    print(line, flush=True)")
    assert len(text_of(await alice.finish(asked))) == 40_000_000
    assert house.link.dropped["closed_socket"] == 0
    assert (await house.model())["connections"] == 2
    assert house.server.kernel_manager.connections(house.kernel_id) == 1, "who looks on keeps no kernel from its end"


async def test_who_may_write_works_in_it_with_its_owner(a_shared_house: SharedHouse) -> None:
    house = a_shared_house
    await house.share("bob", "write")
    alice, bob = await house.browser_of("alice").open(), await house.browser_of("bob", "legacy").open()
    await alice.execute("x = 20")
    asked = await bob.run("x += 22; print(x, input('who? '))")
    question = await bob.until(lambda m: m.type == "input_request")
    await bob.send("stdin", "input_reply", {"value": "bob"}, parent={"header": question.header})
    assert "42 bob\n" in text_of(await bob.finish(asked))
    await alice.until(is_idle_of(asked))
    assert "42 bob\n" in text_of(alice.of(asked)), "she sees what he runs"
    assert [m.type for m in alice.of(asked) if m.channel != "iopub"] == []
    status, _ = await house.ask("bob", "POST", "api", "kernels", house.kernel_id, "interrupt")
    assert status == 204
    ended = await bob.ask("control", "shutdown_request", {"restart": False})
    assert (ended.content["status"], "who alone ends it" in ended.content["evalue"]) == ("error", True)
    assert (await house.ask("bob", "DELETE", "api", "kernels", house.kernel_id))[0] == 403
    await house.share("bob", "read")
    ran = await bob.execute("x = 0")
    assert "error" in [m.type for m in ran], "what was given less of is less at once"
    assert text_of(await alice.execute("print(x)")) == "42\n"


async def test_who_may_only_read_is_asked_nothing(a_shared_house: SharedHouse, until: Any) -> None:
    house = a_shared_house
    for name, access in (("bob", "read"), ("carol", "write")):
        await house.share(name, access)
    alice, bob = await house.browser_of("alice").open(), await house.browser_of("bob").open()
    asked = await alice.run("print(input('which of them? '))")
    question = await alice.until(lambda m: m.type == "input_request")

    async def told(name: str) -> Any:
        path = ("aliquot", "api", "v1", "kernels", house.kernel_id, "outputs")
        (cell,) = (await house.ask(name, "GET", *path))[1]["cells"]
        return cell["input"]

    assert (await until(lambda: told("alice")))["prompt"] == "which of them? "
    assert (await told("carol"))["prompt"] == "which of them? "
    assert await told("bob") is None
    await alice.send("stdin", "input_reply", {"value": "this"}, parent={"header": question.header})
    await bob.until(is_idle_of(asked))
    assert "input_request" not in [m.type for m in bob.seen]


async def test_what_is_taken_back_closes_its_websockets_and_no_other(a_shared_house: SharedHouse) -> None:
    house = a_shared_house
    for name in ("bob", "carol"):
        await house.share(name, "read")
    alice = await house.browser_of("alice").open()
    bob, carol = await house.browser_of("bob").open(), await house.browser_of("carol").open()
    await house.share("bob", None)
    assert await closed(bob) == (1008, "this kernel is not shared with you any more")
    asked = await alice.run("print('after')")
    await carol.until(is_idle_of(asked))
    assert text_of(carol.of(asked)) == "after\n"
    assert (await house.ask("bob", "GET", "api", "kernels"))[1] == []
    with pytest.raises(HTTPClientError, match="404"):
        await house.browser_of("bob").open()


async def test_a_reader_who_asks_without_end_is_closed_and_the_kernel_hears_little_of_it(
    a_shared_house: SharedHouse,
) -> None:
    house = a_shared_house
    await house.share("bob", "read")
    alice, bob = await house.browser_of("alice").open(), await house.browser_of("bob").open()
    assert bob.socket is not None
    for _ in range(2000):
        asked = bob.make("kernel_info_request", {})
        try:
            await bob.send("shell", "kernel_info_request", {}, message=asked)
        except Exception:  # tornado raises different errors for a closed socket
            break
    code, reason = await closed(bob)
    assert (code in (1008, None), reason in ("too many requests to a kernel that is shared read-only", None)) == (
        True,
        True,
    )
    assert text_of(await alice.execute("print('well')")) == "well\n"
    heard = [m for m in alice.seen if m.type == "status" and m.header.get("session") != alice.session]
    assert len(heard) < 400


@pytest.mark.parametrize("levels", [300, 5000, 100_000])
async def test_a_collaborator_ends_the_kernel_by_no_message_however_it_is_nested(
    a_shared_house: SharedHouse, levels: int
) -> None:
    house = a_shared_house
    await house.share("bob", "write")
    alice, bob = await house.browser_of("alice").open(), await house.browser_of("bob").open()
    await alice.execute("x = 42")
    nested = b"[" * levels + b"]" * levels
    header = json.dumps(bob.make("shutdown_request", {})["header"], default=str).encode()
    deep_header = header[:-1] + b', "more": ' + nested + b"}"
    assert bob.socket is not None
    for parts in (
        [header, b"{}", b"{}", b'{"restart": false, "more": ' + nested + b"}"],
        [deep_header, b"{}", b"{}", b'{"restart": false}'],
    ):
        for channel in ("control", "shell"):
            await bob.socket.write_message(serialize_msg_to_ws_v1(parts, channel), binary=True)
    assert text_of(await alice.execute("print(x)")) == "42\n", "the same kernel goes on"
