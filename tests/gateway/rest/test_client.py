"""The client against a running server: every operation, both faces, events, and the server's own words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from traitlets.config import Config

from jupyter_aliquot.client import (
    AsyncClient,
    Client,
    ClientError,
    ConflictError,
    InvalidRequestError,
    NotAllowedError,
    NotFoundError,
    RefusedError,
    Retries,
)
from jupyter_aliquot.client.exchange import Exchange
from jupyter_aliquot.client.transport import HttpTransport, RawAnswer

from .conftest import TOKENS, Ask
from .fake_agent import GIB, FakeAgent, device, kernel

GetClient = Callable[[str], Awaitable[AsyncClient]]


@pytest.fixture
def jp_server_config(jp_server_config: Config) -> Config:
    jp_server_config.Aliquot.user_limit_gpus = 0.9
    return jp_server_config


@pytest.fixture
def a_client(ask: Ask, jp_http_port: int, jp_base_url: str) -> GetClient:
    """Return a function that makes a user's client, once the server's extensions run."""

    async def make(who: str) -> AsyncClient:
        await ask(who, "GET", "api/status")
        return AsyncClient(f"http://127.0.0.1:{jp_http_port}{jp_base_url}", TOKENS.get(who, ""), Retries(attempts=1))

    return make


class NotedTransport:
    """The real transport, with its answers kept."""

    def __init__(self, transport: HttpTransport) -> None:
        self._transport = transport
        self.answers: list[RawAnswer] = []

    async def send(self, method: str, path: str, query: tuple[tuple[str, str], ...], body: str | None) -> RawAnswer:
        self.answers.append(await self._transport.send(method, path, query, body))
        return self.answers[-1]


def residency(state: str, swapped_bytes: int = 0) -> dict[str, Any]:
    return {"state": state, "mode": "vmm", "swapped_bytes": swapped_bytes}


async def test_each_report_is_read_by_a_user_and_an_administrator(a_client: GetClient, an_agent: FakeAgent) -> None:
    an_agent.kernels = [kernel("k1", "alice", residency=residency("resident")), kernel("k2", "bob")]
    await an_agent.start()
    for who, want_ids in (("alice", ["k1"]), ("ada", ["k1", "k2"])):
        client = await a_client(who)
        assert [one["id"] for one in (await client.status())["kernels"]] == want_ids
        assert [one["id"] for one in await client.kernels()] == want_ids
        assert (await client.kernel("k1"))["owner"] == "alice"
        assert (await client.sizes())["device_memory_bytes"] == 16 * GIB
        assert (await client.dry_run(gpus=0.5))["suffix"] == "gpu-0.5"
        outcomes = await client.dry_runs(["gpu-0.25", "gpu-0.5-6g-low"])
        assert [(one["gpus"], one["priority"]) for one in outcomes] == [(0.25, "normal"), (0.5, "low")]
        assert await client.nodes() == []
        assert (await client.queue())["requests"] == []
        assert (await client.quota())["teams"] == []
        assert "KernelEvent" in (await client.openapi())["components"]["schemas"]
        assert await client.folders() == []
        assert (await client.history("day", device=[(await client.status())["devices"][0]["uuid"]]))["range"] == "day"
        assert (await client.history_csv()).startswith("start,step_seconds,")


async def test_each_change_reaches_the_node(a_client: GetClient, an_agent: FakeAgent) -> None:
    an_agent.kernels = [kernel("k1", "alice", residency=residency("resident"))]
    an_agent.gives_room = True
    await an_agent.start()
    alice = await a_client("alice")
    assert (await alice.swap_out_kernel("k1"))["id"] == "k1"
    assert (await alice.restore_kernel("k1"))["id"] == "k1"
    await alice.prefetch_kernel("k1")
    resized = await alice.resize_kernel("k1", gpus=0.5, memory="8GiB", priority="normal")
    assert resized["id"] == "k1"
    asked = [op for op, kernel_id in an_agent.asked if kernel_id == "k1"]
    assert [op for op in asked if op in ("swap_out", "wake", "resize")] == ["swap_out", "wake", "resize"]


async def test_shares_and_messages_of_a_kernel_are_given(a_client: GetClient, ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.devices = [device(reserved_bytes=0, reserved_hundredths=0)]
    an_agent.gives_room = True
    await an_agent.start()
    alice = await a_client("alice")
    started = await ask("alice", "POST", "api/kernels", body={"name": "python3.gpu-0.25"})
    kernel_id = started.json["id"]
    want = [{"kind": "user", "name": "bob", "access": "read"}]
    assert await alice.share_kernel(kernel_id, "users", "bob", "read") == want
    assert await alice.kernel_shares(kernel_id) == want
    assert [one["id"] for one in await (await a_client("bob")).kernels()] == [kernel_id]
    assert await alice.unshare_kernel(kernel_id, "users", "bob") == []
    await (await a_client("ada")).message_owner(kernel_id, "hello")
    message = (await alice.kernel(kernel_id))["owner_message"]
    assert (message and message["text"], message and message["by"]) == ("hello", "ada")
    await alice.postpone_culling(kernel_id)
    assert (await alice.kernel_outputs(kernel_id, messages=False))["cells"] == []


REFUSALS: tuple[tuple[str, type[RefusedError], Callable[[AsyncClient], Awaitable[object]]], ...] = (
    ("alice", NotFoundError, lambda client: client.kernel("k9")),
    ("alice", NotFoundError, lambda client: client.withdraw_resize("k1")),
    ("alice", InvalidRequestError, lambda client: client.resize_kernel("k1")),
    ("alice", InvalidRequestError, lambda client: client.dry_runs(["huge"])),
    ("alice", ConflictError, lambda client: client.share_kernel("k1", "users", "bob", "read")),
    ("alice", NotAllowedError, lambda client: client.metrics()),
    ("alice", NotAllowedError, lambda client: client.share_folder("data", "/data", "/data", users=["*"])),
    ("alice", NotAllowedError, lambda client: client.unshare_folder("data")),
    ("alice", NotAllowedError, lambda client: client.reload_quota()),
    ("alice", NotAllowedError, lambda client: client.holders()),
    ("ada", ConflictError, lambda client: client.message_owner("k1", "hello")),
    ("no user", NotAllowedError, lambda client: client.status()),
    ("ada", InvalidRequestError, lambda client: client.share_folder("data", "/nowhere", "/data", users=["*"])),
    ("ada", NotFoundError, lambda client: client.unshare_folder("data")),
    ("ada", ConflictError, lambda client: client.reload_quota()),
)


async def test_a_refusal_is_typed_and_has_the_servers_words(a_client: GetClient, ask: Ask, an_agent: FakeAgent) -> None:
    an_agent.kernels = [kernel("k1", "alice")]
    await an_agent.start()
    for who, want_error, call in REFUSALS:
        client = await a_client(who)
        sent = NotedTransport(HttpTransport(client.server))
        client._exchange = Exchange(sent, Retries(attempts=1))
        with pytest.raises(want_error) as caught:
            await call(client)
        assert type(caught.value) is want_error
        answer = sent.answers[-1]
        assert (caught.value.status, caught.value.message) == (answer.status, json.loads(answer.body)["message"])


async def test_an_administrator_reads_metrics_and_holders(a_client: GetClient, an_agent: FakeAgent) -> None:
    an_agent.kernels = [kernel("k1", "alice")]
    await an_agent.start()
    ada = await a_client("ada")
    assert "aliquot_agent_up 1.0" in await ada.metrics()
    assert [one["id"] for one in (await ada.holders())["kernels"]] == ["k1"]


async def test_events_are_heard_by_both_faces(a_client: GetClient, an_agent: FakeAgent) -> None:
    an_agent.kernels = [kernel("k1", "alice", residency=residency("resident"))]
    await an_agent.start()
    client = await a_client("alice")

    def hear_synchronously() -> tuple[str, str | None]:
        with Client(client.server) as other:
            for event in other.events():
                return event["state"], event["was"]
        raise AssertionError("the stream ended without an event")

    async def hear() -> tuple[str, str | None]:
        events = client.events()
        event = await events.__anext__()
        await events.aclose()
        return event["state"], event["was"]

    listeners = [asyncio.create_task(hear()), asyncio.create_task(asyncio.to_thread(hear_synchronously))]
    heard: list[tuple[str, str | None]] = []
    state = "resident"
    while len(heard) < 2:
        # A listener that is not there yet hears the next change.
        state = "swapped" if state == "resident" else "resident"
        an_agent.kernels = [kernel("k1", "alice", residency=residency(state, GIB if state == "swapped" else 0))]
        await asyncio.wait(listeners, timeout=0.3)
        heard = [one.result() for one in listeners if one.done()]
    assert set(heard) <= {("swapped_out", "on_gpu"), ("on_gpu", "swapped_out")}


async def test_the_synchronous_client_works_in_a_running_loop(a_client: GetClient) -> None:
    server = (await a_client("alice")).server

    def ask_in_a_loop() -> str:
        async def inside() -> str:
            with Client(server) as client:
                return client.status()["user"]["name"]

        return asyncio.run(inside())

    assert await asyncio.to_thread(ask_in_a_loop) == "alice"


async def test_a_closed_client_says_so(a_client: GetClient) -> None:
    client = Client((await a_client("alice")).server)
    client.close()
    client.close()
    with pytest.raises(ClientError, match="is closed"):
        client.status()
