"""Websockets of pages to a kernel that waits for its GPU.

They open at once, and the gateway loses no message that comes meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from tornado.httpclient import HTTPClientError
from traitlets.config import Config

from tests.gateway.link.browser import Browser, Message, is_state, text_of

from .conftest import Node

USERS = {name: {"token": f"a-token-of-{name}"} for name in ("alice", "bob")}
PLAIN = {"AliquotProvisioner": {"relay": False}}
_OPEN_SECONDS = 1.0
_PATIENCE_SECONDS = 60.0

each_kind = pytest.mark.parametrize("more_config", [{}, PLAIN], indirect=True, ids=["with a relay", "without one"])


@pytest.fixture
def more_config(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(getattr(request, "param", {}))


@pytest.fixture
def jp_server_config(a_node: Node, more_config: dict[str, Any]) -> Config:
    return Config(
        {
            "ServerApp": {"jpserver_extensions": {"jupyter_aliquot.gateway": True}},
            "Aliquot": {"runtime_dir": str(a_node.folder), "start_agent": False},
            "AliquotIdentityProvider": {"users": USERS},
            **more_config,
        }
    )


class Line:
    """A server whose GPU another program holds, Alice's kernel that waits for it, and pages."""

    def __init__(self, server: ServerApp, fetch: Any, connect: Any, node: Node) -> None:
        self.server, self._fetch, self._connect, self._node = server, fetch, connect, node
        self.kernel_id = ""
        self._holder: subprocess.Popen[bytes] | None = None

    async def fetch(self, *path: str, user: str = "alice", **more: Any) -> Any:
        headers = {"Authorization": f"token a-token-of-{user}"}
        options = {"allow_nonstandard_methods": True, "request_timeout": 120, "headers": headers}
        answer = await self._fetch(*path, **options, **more)
        return json.loads(answer.body) if answer.body else answer.code

    async def start_kernel(self, name: str = "python3.gpu-0.5") -> str:
        return str((await self.fetch("api", "kernels", method="POST", body=json.dumps({"name": name})))["id"])

    async def start_pending(self) -> None:
        self.kernel_id = await self.start_kernel()
        await self.until_state("queued")

    async def until_state(self, want_state: str) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (found := self.server.kernel_manager.kernel_state(self.kernel_id)[0]) != want_state:
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.02)

    def page(
        self, protocol: str = "v1", session: str = "tab-1", *, user: str = "alice", kernel_id: str = ""
    ) -> Browser:
        async def connect(*path: str, **more: Any) -> Any:
            return await self._connect(*path, headers={"Authorization": f"token a-token-of-{user}"}, **more)

        return Browser(connect, kernel_id or self.kernel_id, protocol, session)

    def take_room(self) -> None:
        self._holder = self._node.reserve_elsewhere("other", 100)

    def give_room(self) -> None:
        holder, self._holder = self._holder, None
        if holder is not None:
            self._node.release_elsewhere("other", holder)

    async def act(self, action: str) -> Any:
        return await self.fetch("api", "kernels", self.kernel_id, action, method="POST")

    async def share(self, access: str | None) -> None:
        """Give Bob this access to the kernel; with None, end his share."""
        path = ("aliquot", "api", "v1", "kernels", self.kernel_id, "shares", "users", "bob")
        body = None if access is None else json.dumps({"access": access})
        await self.fetch(*path, method="DELETE" if access is None else "PUT", body=body)

    async def until_kept(self, want_messages: int) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        kept_for = self.server.kernel_manager.pending._messages
        while (kept := len(kept_for[self.kernel_id]._messages) if self.kernel_id in kept_for else 0) != want_messages:
            assert time.monotonic() < deadline, kept
            await asyncio.sleep(0.02)

    async def cells(self) -> list[dict[str, Any]]:
        found = await self.fetch("aliquot", "api", "v1", "kernels", self.kernel_id, "outputs")
        return list(found["cells"])


@pytest.fixture
def a_line(
    a_node: Node, kernelspecs: Path, jp_serverapp: ServerApp, jp_fetch: Any, jp_ws_fetch: Any, jp_asyncio_loop: Any
) -> Iterator[Line]:
    line = Line(jp_serverapp, jp_fetch, jp_ws_fetch, a_node)

    async def begin() -> None:
        await jp_serverapp.extension_manager.start_all_extensions()
        line.take_room()
        await line.start_pending()

    async def end() -> None:
        await jp_serverapp.kernel_manager.shutdown_all(now=True)
        await jp_serverapp.extension_manager.stop_all_extensions()

    jp_asyncio_loop.run_until_complete(begin())
    yield line
    jp_asyncio_loop.run_until_complete(end())
    line.give_room()


def reply_to(asked: str) -> Callable[[Message], bool]:
    return lambda message: message.parent == asked and message.type == "execute_reply"


@each_kind
@pytest.mark.parametrize("protocol", ["v1", "legacy"])
async def test_a_waiting_kernels_socket_opens_at_once_and_its_cells_run_in_order_when_it_comes(
    a_line: Line, protocol: str
) -> None:
    began = time.monotonic()
    page = await a_line.page(protocol).open()
    assert time.monotonic() - began < _OPEN_SECONDS
    await page.until(lambda message: is_state(message, "starting"))
    asked = [await page.send("shell", "kernel_info_request", {})]
    asked += [await page.run(code) for code in ("order = [1]", "order.append(2)", "print(order, flush=True)")]
    a_line.give_room()
    await page.until(lambda message: message.parent == asked[0] and message.type == "kernel_info_reply")
    shown = await page.finish(asked[-1])
    assert text_of(shown) == "[1, 2]\n"
    replies = [message.parent for message in page.seen if message.type == "execute_reply"]
    assert replies == asked[1:], "each ran once, in its order"
    assert text_of(await page.execute("print('still', order)")) == "still [1, 2]\n"
    await page.close()


async def test_what_one_page_queued_runs_before_what_the_page_after_it_sends(a_line: Line) -> None:
    page = await a_line.page().open()
    first = await page.send(
        "shell",
        "execute_request",
        {"code": "late = 'kept'", "silent": False, "store_history": True, "allow_stdin": False},
    )
    await page.close()
    await a_line.until_kept(1)
    [cell] = await a_line.cells()
    assert (cell["msg_id"], cell["is_open"], cell["ended"], cell["omitted_messages"]) == (first, True, None, 0)
    assert [message["content"]["code"] for message in cell["messages"]] == ["late = 'kept'"]
    page = await a_line.page(session="tab-2").open()
    asked = await page.run("print(late)")
    a_line.give_room()
    assert text_of(await page.finish(asked)) == "kept\n"
    told = await a_line.cells()
    assert [cell["msg_id"] for cell in told] == [first, asked], "told once"
    assert any(message.parent == first and is_state(message, "idle") for message in page.seen), (
        "heard by who came after"
    )
    await page.close()


async def test_cells_run_though_no_page_is_open_when_the_kernel_comes(a_line: Line, until: Any, tmp_path: Path) -> None:
    page = await a_line.page().open()
    await page.run(f"open({str(tmp_path / 'ran')!r}, 'a').write('once')")
    await page.close()
    a_line.give_room()
    await until(lambda: (tmp_path / "ran").exists() and (tmp_path / "ran").read_text())
    page = await a_line.page(session="tab-2").open()
    assert await page.execute("print(1)")
    assert (tmp_path / "ran").read_text() == "once"
    await page.close()


@each_kind
async def test_stop_lets_the_cells_leave_the_queue_and_the_kernel_stay_in_it(a_line: Line) -> None:
    page = await a_line.page().open()
    asked = [await page.run(code) for code in ("print('first')", "print('second')")]
    other = await a_line.page(session="tab-2").open()
    others = await other.run("print('third')")
    question = await page.send("shell", "kernel_info_request", {})
    await a_line.until_kept(4)
    assert await a_line.act("interrupt") == 204
    first = await page.finish(asked[0])
    assert [message.type for message in first] == ["status", "error", "execute_reply", "status"]
    assert first[1].content["ename"] == first[2].content["ename"] == "KeyboardInterrupt"
    assert "The kernel keeps its place in the queue" in first[1].content["evalue"]
    second = await page.finish(asked[1])
    assert [message.content.get("status") for message in second if message.type == "execute_reply"] == ["aborted"]
    assert [message.content["ename"] for message in await other.finish(others) if message.type == "error"]
    assert a_line.server.kernel_manager.kernel_state(a_line.kernel_id)[0] == "queued"
    assert await a_line.cells() == []
    a_line.give_room()
    await page.until(lambda message: message.parent == question and message.type == "kernel_info_reply")
    assert text_of(await page.execute("print('only this')")) == "only this\n"
    assert "first" not in text_of(page.seen)
    assert "third" not in text_of(page.seen)
    await page.close()
    await other.close()


async def test_an_interrupt_over_the_websocket_does_the_same_and_a_shutdown_is_refused(a_line: Line) -> None:
    page = await a_line.page().open()
    asked = await page.run("print('first')")
    reply = await page.ask("control", "interrupt_request", {})
    assert reply.content == {"status": "ok"}
    assert any(message.type == "error" for message in await page.finish(asked))
    reply = await page.ask("control", "shutdown_request", {"restart": False})
    assert (reply.content["status"], reply.content["ename"]) == ("error", "CellNotRun")
    a_line.give_room()
    assert text_of(await page.execute("print('alive')")) == "alive\n"
    await page.close()


async def test_a_restart_drops_what_was_queued_and_the_kernel_keeps_its_place(a_line: Line) -> None:
    page = await a_line.page().open()
    asked = await page.run("print('first')")
    await a_line.until_kept(1)
    assert (await a_line.act("restart"))["id"] == a_line.kernel_id
    [error] = [message for message in await page.finish(asked) if message.type == "error"]
    assert "restart was asked" in error.content["evalue"]
    a_line.give_room()
    assert text_of(await page.execute("print('after')")) == "after\n"
    await page.close()


async def test_a_kernel_that_is_given_up_ends_its_cells_and_its_sockets_with_the_reason(a_line: Line) -> None:
    page = await a_line.page().open()
    asked = await page.run("print('never')")
    await a_line.until_kept(1)
    assert await a_line.fetch("api", "kernels", a_line.kernel_id, method="DELETE") == 204
    shown = await page.finish(asked)
    [error] = [message for message in shown if message.type == "error"]
    assert error.content["ename"] == "CellNotRun"
    assert "withdrawn" in error.content["evalue"]
    assert page.socket is not None
    assert await asyncio.wait_for(page.socket.read_message(), _PATIENCE_SECONDS) is None
    assert (page.socket.close_code, "withdrawn" in str(page.socket.close_reason)) == (1008, True)
    with pytest.raises(HTTPClientError, match="404"):
        await a_line.page().open()


async def test_a_page_that_comes_back_with_its_session_has_its_cells_run_once(a_line: Line) -> None:
    page = await a_line.page().open()
    message = page.make("execute_request", {"code": "print('once')", "silent": False, "store_history": False})
    asked = await page.send("shell", "execute_request", {}, message=message)
    await page.close()
    page = await a_line.page().open()
    a_line.give_room()
    assert text_of(await page.finish(asked)) == "once\n"
    await page.close()


@pytest.mark.parametrize(
    "more_config", [{"Limits": {"unread_bytes": 8 << 20, "message_bytes": 4 << 20}}], indirect=True
)
async def test_what_is_kept_is_bounded_and_what_is_too_much_is_refused_in_words(a_line: Line) -> None:
    page = await a_line.page().open()
    asked = [await page.run("#" * (3 << 20)) for _ in range(3)]
    shown = await page.finish(asked[2])
    [error] = [message for message in shown if message.type == "error"]
    assert error.content["ename"] == "KernelNotResponding"
    assert "(c.Limits.unread_bytes)" in error.content["evalue"]
    a_line.give_room()
    for each in asked[:2]:
        assert [
            message.content["status"] for message in await page.finish(each) if message.type == "execute_reply"
        ] == ["ok"]
    await page.close()


async def test_others_use_the_server_meanwhile_and_no_connection_is_counted(a_line: Line) -> None:
    page = await a_line.page().open()
    model = await a_line.fetch("api", "kernels", a_line.kernel_id)
    assert (model["connections"], model["execution_state"]) == (0, "starting")
    plain = await a_line.start_kernel("python3")
    began = time.monotonic()
    other = await a_line.page(session="tab-2", kernel_id=plain).open()
    assert text_of(await other.execute("print('runs')")) == "runs\n"
    assert time.monotonic() - began < _PATIENCE_SECONDS
    a_line.give_room()
    assert await page.execute("1")
    assert (await a_line.fetch("api", "kernels", a_line.kernel_id))["connections"] == 1
    await page.close()
    await other.close()


@pytest.mark.parametrize("left", [None, "read"])
async def test_what_a_collaborator_queued_does_not_run_where_the_share_is_taken_back_meanwhile(
    a_line: Line, tmp_path: Path, left: str | None
) -> None:
    await a_line.share("write")
    collaborator = await a_line.page(session="tab-2", user="bob").open()
    question = await collaborator.send("shell", "kernel_info_request", {})
    asked = await collaborator.run(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    await a_line.until_kept(2)
    await a_line.share(left)
    [error] = [message.content for message in await collaborator.finish(asked) if message.type == "error"]
    assert (error["ename"], "your right to run code in the kernel ended" in error["evalue"]) == ("CellNotRun", True)
    await a_line.until_kept(0 if left is None else 1)
    page = await a_line.page().open()
    a_line.give_room()
    assert text_of(await page.execute("print('hers')")) == "hers\n"
    assert not (tmp_path / "ran").exists()
    if left is not None:
        await collaborator.until(lambda message: message.parent == question and message.type == "kernel_info_reply")
    await page.close()
