"""Bounds on agents of other machines: what they send, how long they may, and what ends their connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, websocket_connect
from traitlets.config import Config

from jupyter_aliquot.gateway.api import agents
from jupyter_aliquot.gateway.local_mode import OwnKernels
from jupyter_aliquot.gateway.nodes.limits import MOST_OF_ANY, AgentSockets, FrameRates, close_reason
from jupyter_aliquot.gateway.nodes.registry import RemoteNodes
from jupyter_aliquot.gateway.nodes.tokens import TokenExpiredError, TokenFile
from jupyter_aliquot.gpu_hook.agent.dialing import dialer
from jupyter_aliquot.gpu_hook.agent.dialing.settings import agents_url
from jupyter_aliquot.gpu_hook.base.pacing import Backoff
from jupyter_aliquot.provisioner.errors import LimitError

from .conftest import Ask
from .dialled_nodes import PATIENCE_SECONDS, TOKEN, Node, is_in, nodes_of, until
from .fake_agent import FakeAgent


@pytest.fixture
def token_file(runtime_dir: Path) -> Path:
    file = runtime_dir / "agents"
    file.write_text(f"{TOKEN}\n")
    return file


@pytest.fixture
def jp_server_config(jp_server_config: Config, token_file: Path) -> Config:
    jp_server_config.Aliquot.agent_token_file = str(token_file)
    jp_server_config.Limits.requests_per_second = 0
    return jp_server_config


@pytest.fixture
def a_node(a_server: ServerApp, runtime_dir: Path, jp_asyncio_loop: asyncio.AbstractEventLoop) -> Iterator[Node]:
    node = Node(runtime_dir, "a", a_server.connection_url)
    yield node
    jp_asyncio_loop.run_until_complete(node.stop())


async def connect(server: ServerApp, token: str = TOKEN) -> WebSocketClientConnection:
    url = agents_url(server.connection_url)
    return await websocket_connect(HTTPRequest(url, headers={"Authorization": f"Bearer {token}"}))


async def read(connection: WebSocketClientConnection) -> Any:
    return await asyncio.wait_for(connection.read_message(), PATIENCE_SECONDS)


def register(name: str, **more: Any) -> str:
    return json.dumps({"op": "register", "version": 1, "node": name, "instance": "i", **more})


async def test_a_first_frame_that_is_long_is_refused(ask: Ask, a_server: ServerApp) -> None:
    await ask("alice", "GET", "api")
    connection = await connect(a_server)
    await connection.write_message(register("a", more="x" * 4096))
    answer = json.loads(await read(connection))
    assert (answer["ok"], "may have 4096" in answer["message"]) == (False, True)
    assert await read(connection) is None
    assert "may have 4096" in (connection.close_reason or "")
    assert await nodes_of(ask) == {}


async def test_a_connection_that_registers_nothing_is_closed(
    ask: Ask, a_server: ServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "_REGISTER_SECONDS", 0.05)
    await ask("alice", "GET", "api")
    connection = await connect(a_server)
    assert await read(connection) is None
    assert (connection.close_code, "no node was registered" in (connection.close_reason or "")) == (1008, True)


async def test_a_frame_longer_than_any_status_ends_the_connection(ask: Ask, a_server: ServerApp) -> None:
    await ask("alice", "GET", "api")
    connection = await connect(a_server)
    await connection.write_message(register("a"))
    assert json.loads(await read(connection))["ok"] is True
    with contextlib.suppress(WebSocketClosedError):  # the gateway may close it before it has all
        await connection.write_message(b" " * ((8 << 20) + 1))
    while await read(connection) is not None:
        pass  # what the gateway asks
    assert connection.close_code in (1009, None)


async def test_each_frame_counts(ask: Ask, a_server: ServerApp, a_node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def count(rates: FrameRates, frame_bytes: int, now: float) -> float:
        counted.append(frame_bytes)
        return 0.0

    monkeypatch.setattr(FrameRates, "take", count)
    await ask("alice", "GET", "api")
    await a_node.start()
    await until(ask, is_in("connected", "a"))
    assert counted, "of the answers to hello and status"
    assert all(counted)


def test_frames_beyond_the_rate_wait() -> None:
    rates = FrameRates(0.0)
    assert [rates.take(10, 0.0) for _ in range(1000)] == [0.0] * 1000
    assert rates.take(10, 0.0) > 0
    assert rates.take(10, 10.0) == 0.0
    large = FrameRates(0.0)
    assert [large.take(8 << 20, 0.0) for _ in range(8)] == [0.0] * 8
    assert large.take(8 << 20, 0.0) == pytest.approx(1.0)


async def test_a_token_that_is_taken_back_ends_its_connection(
    ask: Ask, a_server: ServerApp, a_node: Node, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "_CHECK_SECONDS", 0.05)
    await ask("alice", "GET", "api")
    await a_node.start()
    await until(ask, is_in("connected", "a"))
    connection = await connect(a_server)
    await connection.write_message(register("b"))
    assert json.loads(await read(connection))["ok"] is True
    empty(token_file)
    await until(ask, is_in("unknown", "a"))
    while await read(connection) is not None:
        pass  # what the gateway asked before
    assert (connection.close_code, "not in the gateway's file" in (connection.close_reason or "")) == (1008, True)


async def test_a_token_that_expires_after_the_handshake_ends_no_connection(
    ask: Ask, a_server: ServerApp, a_node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "_CHECK_SECONDS", 0.05)
    await ask("alice", "GET", "api")
    await a_node.start()
    await until(ask, is_in("connected", "a"))
    checks: list[str] = []

    async def expired(_: TokenFile, token: str) -> None:
        checks.append(token)
        raise TokenExpiredError("The agent's token has expired")

    monkeypatch.setattr(TokenFile, "allowed_nodes", expired)
    await until(ask, lambda _: len(checks) >= 3)
    assert is_in("connected", "a")(await nodes_of(ask))


def empty(file: Path) -> None:
    file.write_text("")


async def test_an_agent_with_the_name_of_a_gateway_that_learns_it_later_is_closed(
    ask: Ask, a_server: ServerApp, an_agent: FakeAgent, a_node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "_CHECK_SECONDS", 0.05)
    await ask("alice", "GET", "api")
    await a_node.start()
    await until(ask, is_in("connected", "a"))
    an_agent.node = {"node": "a"}
    await an_agent.start()
    await until(ask, is_in("unknown", "a"))


async def test_a_gateway_that_has_not_started_takes_no_agent(ask: Ask, a_server: ServerApp) -> None:
    # The extension is made by now, and starts with the first request of `ask`.
    with pytest.raises(HTTPClientError) as early:
        await connect(a_server)
    assert early.value.code == 503
    assert b"starting" in early.value.response.body
    await ask("alice", "GET", "api")
    (await connect(a_server)).close()


async def test_a_file_of_tokens_that_cannot_be_read_is_not_told_to_strangers(
    ask: Ask, a_server: ServerApp, token_file: Path, a_node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    await ask("alice", "GET", "api")
    weak(token_file)
    with pytest.raises(HTTPClientError) as refused:
        await connect(a_server)
    body = refused.value.response.body.decode()
    assert (refused.value.code, "its log says why" in body, str(token_file) in body) == (503, True, False)
    assert f"line 1 of {token_file}" in caplog.text
    caplog.clear()
    await a_node.start()
    await until(ask, lambda found: "gateway_lost" in caplog.text)
    assert "503 Service Unavailable: The gateway cannot check tokens" in caplog.text


def weak(file: Path) -> None:
    file.write_text("weak\n")


async def test_requests_of_an_address_have_a_limit(
    ask: Ask, a_server: ServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask("alice", "GET", "api")
    guard = a_server.web_app.settings["aliquot_limits"]
    monkeypatch.setattr(guard, "visit", lambda name, address: 7.0 if (name, bool(address)) == ("", True) else 0.0)
    with pytest.raises(HTTPClientError) as refused:
        await connect(a_server, "wrong-wrong-wrong-wrong")
    assert refused.value.code == 429


def test_connections_have_a_bound_by_token() -> None:
    sockets = AgentSockets()
    held = [sockets.admit("t", frozenset({"a"})) for _ in range(65)]
    for one in held:
        one.__enter__()
    with pytest.raises(LimitError, match="65 by this token"), sockets.admit("t", frozenset({"a"})):
        pass
    with sockets.admit("another", frozenset({"b"})):
        pass
    for one in held:
        one.__exit__(None, None, None)
    assert MOST_OF_ANY > 65
    with sockets.admit("t", frozenset({"a"})):
        pass


def test_a_close_reason_fits_its_frame() -> None:
    assert close_reason("short") == "short"
    assert len(close_reason("ä" * 200).encode()) <= 123


async def test_a_version_that_does_not_fit_is_shown_and_told_to_the_agent(
    ask: Ask, a_server: ServerApp, a_node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    await ask("alice", "GET", "api")
    a_node.agent.refusals = {"hello": ("version", "the agent speaks version 9")}
    await a_node.start()
    nodes = await until(ask, lambda found: "a" in found and "version 9" in (found["a"]["message"] or ""))
    assert nodes["a"]["state"] == "unknown"
    await until(ask, lambda found: "version 9" in caplog.text.partition("gateway_lost")[2])


async def test_waits_begin_anew_only_after_a_connection_that_held(
    ask: Ask, a_server: ServerApp, a_node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    resets: list[bool] = []
    monkeypatch.setattr(Backoff, "reset", lambda waits: resets.append(True))
    await ask("alice", "GET", "api")
    await a_node.start()
    await until(ask, is_in("connected", "a"))
    await a_node.hang_up()
    await until(ask, is_in("unknown", "a"))
    assert resets == []
    monkeypatch.setattr(dialer, "_SETTLED_SECONDS", 0.0)
    a_node.dial()
    await until(ask, is_in("connected", "a"))
    await a_node.hang_up()
    assert resets == [True]


async def test_unused_kernels_are_looked_for_also_where_the_list_of_nodes_fails(
    a_server: ServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    async def fail(nodes: RemoteNodes) -> None:
        started.append("nodes")
        raise RuntimeError("unforeseen")

    real = OwnKernels.start_culling

    async def note(own: OwnKernels) -> None:
        started.append("culling")
        await real(own)

    monkeypatch.setattr(RemoteNodes, "start", fail)
    monkeypatch.setattr(OwnKernels, "start_culling", note)
    await a_server.extension_manager.start_all_extensions()
    try:
        assert started == ["culling", "nodes"]
    finally:
        await a_server.extension_manager.stop_all_extensions()
