"""Agents of other machines that dial the gateway: real dialers and sockets, before agents whose answers a test sets."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect
from traitlets.config import Config

from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.nodes.registry import Pipe, Registration, RemoteNodes
from jupyter_aliquot.gateway.nodes.remembered import RememberedNodes
from jupyter_aliquot.gateway.nodes.tokens import TokenFile, TokenRefusedError, TokenUnknownError
from jupyter_aliquot.gpu_hook.agent.dialing.settings import agents_url
from jupyter_aliquot.gpu_hook.waiting import end_task

from .conftest import TOKENS, Ask
from .dialled_nodes import PATIENCE_SECONDS, TOKEN, Node, is_in, nodes_of, until
from .fake_agent import FakeAgent, kernel

TOKEN_OF_B = "a-token-of-node-b-alone"


@pytest.fixture
def token_file(runtime_dir: Path) -> Path:
    file = runtime_dir / "agents"
    file.write_text(f"# the agents\n{TOKEN}\nb {TOKEN_OF_B}\n")
    return file


@pytest.fixture
def jp_server_config(jp_server_config: Config, token_file: Path) -> Config:
    jp_server_config.Aliquot.agent_token_file = str(token_file)
    jp_server_config.Limits.requests_per_second = 0  # these tests ask again and again
    return jp_server_config


MakeNode = Callable[..., Any]


@pytest.fixture
def a_node(
    a_server: ServerApp, ask: Ask, runtime_dir: Path, jp_asyncio_loop: asyncio.AbstractEventLoop
) -> Iterator[MakeNode]:
    """Return a function that starts a node which dials the server."""
    nodes: list[Node] = []

    async def make(name: str, token: str = TOKEN) -> Node:
        await ask("alice", "GET", "api")
        node = Node(runtime_dir, name, a_server.connection_url, token)
        nodes.append(node)
        await node.start()
        return node

    yield make
    for node in nodes:
        jp_asyncio_loop.run_until_complete(node.stop())


async def test_two_agents_dial_and_both_nodes_are_shown(ask: Ask, a_node: MakeNode) -> None:
    first = await a_node("a")
    first.agent.kernels = [kernel("k1", "alice")]
    await a_node("b", TOKEN_OF_B)
    nodes = await until(ask, lambda found: is_in("connected", "a", "b")(found) and found["a"]["kernels"] == 1)
    assert list(nodes) == ["a", "b"]
    assert nodes["a"]["message"] is None
    assert [device["reserved_gpus"] for device in nodes["b"]["devices"]] == [0.25]
    status = (await ask("ada", "GET", "aliquot/api/v1/status")).json
    assert [node["name"] for node in status["nodes"]] == ["a", "b"]
    assert status["devices"] == [], "those of this machine, which has no agent"
    metrics = (await ask("ada", "GET", "aliquot/api/v1/metrics")).body.decode()
    assert 'aliquot_node_connected{node="a"} 1.0' in metrics
    assert 'aliquot_device_reserved_gpus{device="0"' in metrics
    assert 'node="b"' in metrics


async def test_a_node_that_is_lost_is_unknown_and_keeps_its_kernels(ask: Ask, a_node: MakeNode) -> None:
    lost, _ = await a_node("a"), await a_node("b")
    lost.agent.kernels = [kernel("k1", "alice")]
    await until(ask, lambda found: is_in("connected", "a", "b")(found) and found["a"]["kernels"] == 1)
    await lost.hang_up()
    nodes = await until(ask, is_in("unknown", "a"))
    assert (nodes["a"]["kernels"], len(nodes["a"]["devices"])) == (1, 1), "as last told, and not empty"
    assert "taken to run on" in nodes["a"]["message"]
    assert nodes["b"]["state"] == "connected"
    metrics = (await ask("ada", "GET", "aliquot/api/v1/metrics")).body.decode()
    assert 'aliquot_node_connected{node="a"} 0.0' in metrics
    lost.dial()
    await until(ask, is_in("connected", "a"))


async def test_an_agent_that_does_not_answer_delays_no_other(ask: Ask, a_node: MakeNode) -> None:
    stalled, other = await a_node("a"), await a_node("b")
    await until(ask, is_in("connected", "a", "b"))
    stalled.agent.hangs = {"status"}
    await asyncio.wait_for(stalled.agent.hung.wait(), PATIENCE_SECONDS)
    # The gateway waits for its answer now.
    other.agent.kernels = [kernel("k2", "alice")]
    other.agent.tell_status()
    nodes = await until(ask, lambda found: found["b"]["kernels"] == 1)
    assert nodes["b"]["state"] == "connected"
    nodes = await until(ask, is_in("unknown", "a"))
    assert "did not answer within" in nodes["a"]["message"]
    stalled.agent.hangs = set()
    await until(ask, is_in("connected", "a"))


async def test_two_agents_of_one_name_do_not_take_turns(ask: Ask, a_node: MakeNode, a_server: ServerApp) -> None:
    first = await a_node("a")
    first.agent.kernels = [kernel("k1", "alice")]
    await until(ask, lambda found: is_in("connected", "a")(found) and found["a"]["kernels"] == 1)
    answer = await dialled(ask, a_server, {"op": "register", "version": 1, "node": "a", "instance": "another"})
    assert answer["ok"] is False
    assert "another agent is connected by that name" in answer["message"]
    assert (await nodes_of(ask))["a"]["kernels"] == 1


@pytest.mark.parametrize(
    ("frame", "want"),
    [
        ({"op": "register", "version": 2, "node": "c"}, "Install the same version"),
        ({"op": "register", "version": 1, "node": "c/../d"}, "not valid"),
        ({"op": "register", "version": 1, "node": 7}, "not valid"),
        ({"op": "status"}, "first frame has to register"),
        ([], "first frame has to register"),
        ("no JSON", "first frame has to register"),
    ],
)
async def test_a_first_frame_that_cannot_be_used_is_answered_with_the_reason(
    ask: Ask, a_server: ServerApp, frame: Any, want: str
) -> None:
    answer = await dialled(ask, a_server, frame)
    assert (answer["ok"], want in answer["message"]) == (False, True), answer
    assert await nodes_of(ask) == {}


async def test_a_token_of_one_node_registers_no_other(ask: Ask, a_server: ServerApp) -> None:
    answer = await dialled(ask, a_server, {"op": "register", "version": 1, "node": "c"}, TOKEN_OF_B)
    assert (answer["ok"], "another node's" in answer["message"]) == (False, True), answer


async def test_the_gateways_own_node_is_not_registered_twice(
    ask: Ask, an_agent: FakeAgent, a_server: ServerApp
) -> None:
    an_agent.node = {"node": "here"}
    await an_agent.start()
    status: dict[str, Any] = {"node": {"name": ""}}
    while status["node"]["name"] != "here":
        status = (await ask("alice", "GET", "aliquot/api/v1/status")).json
    answer = await dialled(ask, a_server, {"op": "register", "version": 1, "node": "here"})
    assert (answer["ok"], "own machine" in answer["message"]) == (False, True), answer


@pytest.mark.parametrize("header", ["", "Bearer wrong-wrong-wrong-wrong", f"token {TOKEN}", f"token {TOKENS['ada']}"])
async def test_no_other_token_opens_the_path(ask: Ask, a_server: ServerApp, header: str) -> None:
    await ask("alice", "GET", "api")
    with pytest.raises(HTTPClientError) as refused:
        await connect(a_server, header)
    assert refused.value.code == 403


async def test_a_token_that_is_taken_back_opens_nothing(ask: Ask, a_server: ServerApp, token_file: Path) -> None:
    await ask("alice", "GET", "api")
    (await connect(a_server, f"Bearer {TOKEN}")).close()
    write(token_file, "")
    with pytest.raises(HTTPClientError) as refused:
        await connect(a_server, f"Bearer {TOKEN}")
    assert refused.value.code == 403


def write(file: Path, text: str) -> None:
    file.write_text(text)


async def connect(server: ServerApp, authorization: str) -> WebSocketClientConnection:
    url = agents_url(server.connection_url)
    return await websocket_connect(HTTPRequest(url, headers={"Authorization": authorization}))


async def dialled(ask: Ask, server: ServerApp, frame: Any, token: str = TOKEN) -> Any:
    """Return the answer to this first frame, after which the gateway closes the connection."""
    await ask("alice", "GET", "api")
    connection = await connect(server, f"Bearer {token}")
    await connection.write_message(frame if isinstance(frame, str) else json.dumps(frame))
    answer = await asyncio.wait_for(connection.read_message(), PATIENCE_SECONDS)
    assert answer is not None
    assert await asyncio.wait_for(connection.read_message(), PATIENCE_SECONDS) is None
    return json.loads(answer)


class TestTokenFile:
    async def test_a_line_may_name_the_node(self, token_file: Path) -> None:
        tokens = TokenFile(token_file)
        assert await tokens.allowed_nodes(TOKEN) is None
        assert await tokens.allowed_nodes(TOKEN_OF_B) == {"b"}

    @pytest.mark.parametrize("token", ["", "b", "a-token-of-any-agenT", "# the agents"])
    async def test_no_other_token_is_known(self, token_file: Path, token: str) -> None:
        with pytest.raises(TokenRefusedError):
            await TokenFile(token_file).allowed_nodes(token)

    @pytest.mark.parametrize("line", ["short", "three words and-a-long-token", "n short"])
    async def test_a_file_with_a_weak_line_opens_nothing(self, token_file: Path, line: str) -> None:
        write(token_file, f"{TOKEN}\n{line}\n")
        with pytest.raises(TokenUnknownError, match="line 2"):
            await TokenFile(token_file).allowed_nodes(TOKEN)

    async def test_a_file_that_is_missing_opens_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(TokenUnknownError, match="cannot read"):
            await TokenFile(tmp_path / "none").allowed_nodes(TOKEN)


class HourClock(SystemClock):
    """A clock whose hours pass when a test turns it; shorter waits are real."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0
        self._turned = asyncio.Event()

    def wall(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        if seconds < 3600:
            await super().sleep(seconds)
        elif seconds > 3600:
            await asyncio.Event().wait()
        else:
            await self._turned.wait()
            self._turned.clear()

    def turn(self, seconds: float) -> None:
        self.time += seconds
        self._turned.set()


async def join(pipe: Pipe, path: Path) -> None:
    """Pass lines between a gateway's client and an agent, as a connection does."""
    reader, writer = await asyncio.open_unix_connection(path)

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while line := await source.readline():
            target.write(line)

    try:
        await asyncio.gather(copy(pipe.reader, writer), copy(reader, pipe.writer))
    finally:
        writer.close()
        pipe.writer.close()


class TestNodesAfterARestart:
    def made(self, path: Path) -> RemoteNodes:
        log = logging.getLogger("test")
        return RemoteNodes(RememberedNodes(path, log), SystemClock(), 3600.0, log, lambda: "")

    async def test_a_node_that_has_not_connected_yet_is_unknown(self, tmp_path: Path) -> None:
        file = tmp_path / "nodes.json"
        RememberedNodes(file, logging.getLogger("test")).write({"a": SystemClock().wall()})
        nodes = self.made(file)
        await nodes.start()
        [view] = nodes.views()
        assert (view.name, view.is_connected, view.status, view.since) == ("a", False, None, None)
        assert "has not connected since this server started" in view.message
        await nodes.stop()

    async def test_a_node_is_forgotten_after_a_week(self, tmp_path: Path) -> None:
        file = tmp_path / "nodes.json"
        now = SystemClock().wall()
        RememberedNodes(file, logging.getLogger("test")).write({"a": now - 8 * 86400, "b": now - 6 * 86400})
        nodes = self.made(file)
        await nodes.start()
        assert [view.name for view in nodes.views()] == ["b"]
        await nodes.stop()

    async def test_a_start_and_a_stop_keep_what_is_remembered_of_others(self, tmp_path: Path) -> None:
        file, log = tmp_path / "nodes.json", logging.getLogger("test")
        now = SystemClock().wall()
        RememberedNodes(file, log).write({"a": now, "b": now})
        stopped_early = self.made(file)
        await stopped_early.stop()
        assert set(RememberedNodes(file, log).read(now)) == {"a", "b"}
        nodes = self.made(file)
        asked = [asyncio.create_task(nodes.register(Registration(name, "i"), None)) for name in ("c", "d")]
        await nodes.start()
        pipes = [await one for one in asked]
        assert {view.name for view in nodes.views()} == {"a", "b", "c", "d"}
        await nodes.stop()
        for pipe in pipes:
            pipe.writer.close()
        assert set(RememberedNodes(file, log).read(now)) == {"a", "b", "c", "d"}

    async def test_a_node_that_stays_connected_is_remembered_each_hour_and_a_lost_one_forgotten(
        self, tmp_path: Path
    ) -> None:
        file, log, clock = tmp_path / "nodes.json", logging.getLogger("test"), HourClock()
        RememberedNodes(file, log).write({"lost": clock.time - 7 * 86400 + 1800})
        nodes = RemoteNodes(RememberedNodes(file, log), clock, 1e9, log, lambda: "")
        await nodes.start()
        assert [view.name for view in nodes.views()] == ["lost"]
        agent = FakeAgent(tmp_path / "a.sock")
        await agent.start()
        pipe = await nodes.register(Registration("a", "i"), None)
        joined = asyncio.create_task(join(pipe, tmp_path / "a.sock"))
        try:
            await self.until(lambda: any(view.is_connected for view in nodes.views()))
            registered = clock.time
            clock.turn(3600.0)
            # No stop writes it: a gateway that is killed knows it all the same.
            await self.until(lambda: RememberedNodes(file, log).read(clock.time).get("a") == registered + 3600)
            assert [view.name for view in nodes.views()] == ["a"]
        finally:
            await end_task(joined)
            await nodes.stop()
            await agent.stop()

    async def until(self, claim: Callable[[], bool]) -> None:
        async def look() -> None:
            while True:
                if claim():
                    return
                await asyncio.sleep(0.005)

        await asyncio.wait_for(look(), PATIENCE_SECONDS)

    @pytest.mark.parametrize("content", ["", "[]", '{"nodes": [1]}', '{"nodes": {"a": "x"}}'])
    async def test_a_damaged_file_is_set_aside(self, tmp_path: Path, content: str) -> None:
        file = tmp_path / "nodes.json"
        write(file, content)
        nodes = self.made(file)
        await nodes.start()
        assert nodes.views() == ()
        assert [name.partition("-")[0] for name in os.listdir(tmp_path)] == ["nodes.json.unreadable"]
        await nodes.stop()
