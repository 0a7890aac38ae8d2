"""Agents of other machines whose reports cannot be used: each fails itself, and no page of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.nodes.remote_node import RemoteNodeView
from jupyter_aliquot.gateway.status.nodes import nodes_report
from jupyter_aliquot.gateway.status.report_cache import ReportMemo
from jupyter_aliquot.gpu_hook.client.reports import DeviceStatus, NodeStatus

from .conftest import Ask
from .dialled_nodes import TOKEN, Node, is_in, nodes_of, until
from .fake_agent import device, kernel


@pytest.fixture
def jp_server_config(jp_server_config: Config, runtime_dir: Path) -> Config:
    file = runtime_dir / "agents"
    file.write_text(f"{TOKEN}\n")
    jp_server_config.Aliquot.agent_token_file = str(file)
    jp_server_config.Limits.requests_per_second = 0
    return jp_server_config


@pytest.fixture
def a_node(
    a_server: ServerApp, ask: Ask, runtime_dir: Path, jp_asyncio_loop: asyncio.AbstractEventLoop
) -> Iterator[Callable[[str], Any]]:
    nodes: list[Node] = []

    async def make(name: str) -> Node:
        await ask("alice", "GET", "api")
        nodes.append(Node(runtime_dir, name, a_server.connection_url))
        await nodes[-1].start()
        return nodes[-1]

    yield make
    for node in nodes:
        jp_asyncio_loop.run_until_complete(node.stop())


def spoil_part(node: Node, **other: Any) -> None:
    node.agent.kernels = [kernel("k1", "alice")]
    node.agent.kernels[0]["devices"][0].update(other)


SPOILED: dict[str, Callable[[Node], None]] = {
    "null for a number": lambda node: setattr(node.agent, "devices", [device(reserved_hundredths=None)]),
    "text for a number": lambda node: spoil_part(node, quota_bytes="x"),
    "a list for a name": lambda node: setattr(node.agent, "devices", [device(uuid=[])]),
    "no number": lambda node: setattr(node.agent, "devices", [device(power_watts=float("nan"))]),
    "infinity": lambda node: spoil_part(node, busy_seconds=float("inf")),
    "a number beyond all": lambda node: setattr(node.agent, "devices", [device(used_bytes=10**400)]),
    "text that is no Unicode": lambda node: setattr(node.agent, "devices", [device(name="\ud800")]),
    "infinity for a moment": lambda node: node.agent.node.update(seen=float("inf"), kernel_ids=[]),
    "an object for a driver": lambda node: node.agent.node.update(driver={}),
    "no number in GPU time": lambda node: spoil_part(
        node, compute={"own_seconds": float("nan"), "throttled_seconds": 0, "pace": "open"}
    ),
    "text for a factor": lambda node: node.agent.node.update(oversubscription="x"),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
async def test_a_report_that_cannot_be_used_fails_that_node_alone(
    ask: Ask, a_node: Callable[[str], Any], spoil: Callable[[Node], None]
) -> None:
    bad, good = await a_node("bad"), await a_node("good")
    await until(ask, is_in("connected", "bad", "good"))
    spoil(bad)
    bad.agent.tell_status()
    nodes = await until(ask, is_in("unknown", "bad"))
    assert "The node agent does not answer: the agent" in nodes["bad"]["message"], nodes["bad"]
    await pages_are_whole(ask)
    await bad.hang_up()
    await pages_are_whole(ask)
    assert (await nodes_of(ask))["good"]["state"] == "connected"
    await good.hang_up()


async def pages_are_whole(ask: Ask) -> None:
    for page in ("status", "nodes", "metrics"):
        answer = await ask("ada", "GET", f"aliquot/api/v1/{page}")
        assert answer.status == 200, (page, answer.body)


def test_a_node_whose_devices_cannot_be_summed_is_shown_without_them() -> None:
    # Such a value passes no reader today; a reader of tomorrow may let one through.
    broken: Any = "x"
    status = NodeStatus("bad", "softgpu", "hook", (DeviceStatus(**device(reserved_hundredths=broken)),), (), 1)
    views = [RemoteNodeView(name, True, "", SystemClock().wall(), status) for name in ("bad",)]
    [bad, good] = nodes_report([*views, RemoteNodeView("good", message="Unknown")], "alice", ReportMemo(), {})
    assert (bad["devices"], "cannot be shown" in (bad["message"] or "")) == ([], True)
    assert good["message"] == "Unknown"


def test_sums_of_a_node_follow_its_statuses() -> None:
    memo = ReportMemo()
    first, second = (NodeStatus("a", "softgpu", "hook", (DeviceStatus(**device()),), (), 1) for _ in range(2))
    made = memo.devices_of("a", first)
    assert memo.devices_of("a", first) is made
    assert memo.devices_of("a", second) is made
    assert made.status is second
    nodes_report([], "alice", memo, {})
    assert memo.devices_of("a", second) is not made, "of a node that was forgotten meanwhile"
