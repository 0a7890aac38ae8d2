"""The gateway's view of the node: new when the agent reports a change, else at intervals."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.node import agent_calls
from jupyter_aliquot.gateway.node.connection import AgentLink
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gateway.node.watcher import NodeWatch
from jupyter_aliquot.provisioner.errors import AgentUnavailableError
from jupyter_aliquot.provisioner.grants.agent_calls import greet

from .fake_agent import GIB, FakeAgent, kernel

NEVER_SECONDS = 3600.0
PATIENCE_SECONDS = 30.0


class Watched:
    """A node, and a watch whose views the test keeps."""

    def __init__(self, folder: Path, agent: FakeAgent, seconds: float) -> None:
        self.agent = agent
        self.watch = NodeWatch(partial(greet, folder, "test"), SystemClock(), seconds, logging.getLogger())
        self.views: asyncio.Queue[NodeView] = asyncio.Queue()
        self.watch.listen(self.views.put_nowait)

    async def until_seen(self, *kernels: str) -> None:
        async def seen() -> None:
            while True:
                status = (await self.views.get()).status
                if status is not None and tuple(one.kernel_id for one in status.kernels) == kernels:
                    return

        await asyncio.wait_for(seen(), PATIENCE_SECONDS)


@pytest.fixture
def a_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="aq-watch-") as folder:
        yield Path(folder)


async def watched(folder: Path, seconds: float, refusals: dict[str, tuple[str, str]] | None = None) -> Watched:
    agent = FakeAgent(folder / "agent.sock")
    agent.refusals = refusals or {}
    await agent.start()
    node = Watched(folder, agent, seconds)
    await node.watch.start()
    return node


async def test_a_change_is_seen_without_waiting_for_the_next_look(a_folder: Path) -> None:
    node = await watched(a_folder, NEVER_SECONDS)
    try:
        await node.until_seen()
        await node.agent.until_watched()
        node.agent.kernels = [kernel("k1", "alice")]
        node.agent.tell_status()
        await node.until_seen("k1")
    finally:
        await node.watch.stop()
        await node.agent.stop()


async def test_an_agent_that_does_not_tell_is_looked_at_all_the_same(a_folder: Path) -> None:
    node = await watched(a_folder, 0.05, refusals={"watch": ("bad_request", "asked op watch without a kernel_id")})
    try:
        node.agent.kernels = [kernel("k1", "alice")]
        await node.until_seen("k1")
    finally:
        await node.watch.stop()
        await node.agent.stop()


async def test_who_watched_an_agent_that_ended_hears_of_the_next_one(a_folder: Path) -> None:
    node = await watched(a_folder, NEVER_SECONDS)
    try:
        await node.until_seen()
        await node.agent.until_watched()
        await node.agent.stop()
        assert (await asyncio.wait_for(node.views.get(), PATIENCE_SECONDS)).status is None
        await node.agent.start()
        node.watch.refresh()
        await node.until_seen()
        await node.agent.until_watched()
    finally:
        await node.watch.stop()
        await node.agent.stop()


async def test_what_a_kernel_lacked_is_known_after_the_agent_forgot_it(a_folder: Path) -> None:
    node = await watched(a_folder, NEVER_SECONDS)
    try:
        short = kernel("k1", "alice")
        short["devices"][0]["needed_bytes"] = 5 * GIB
        for kernels, want in (([short], 5 * GIB), ([], 5 * GIB), ([kernel("k1", "alice")], None)):
            node.agent.kernels = kernels
            await node.watch.poll()
            assert node.watch.lacked_bytes("k1") == want
    finally:
        await node.watch.stop()
        await node.agent.stop()


async def test_a_connection_that_is_given_up_says_that_the_agent_did_not_answer(
    a_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway closes it, not the agent: the message must not send anyone to look at the agent's end."""
    monkeypatch.setattr(agent_calls, "answered", partial(agent_calls.answered, seconds=0.2))
    agent = FakeAgent(a_folder / "agent.sock")
    agent.hangs = {"release"}
    await agent.start()
    link, told = AgentLink(a_folder, SystemClock(), None, logging.getLogger()), asyncio.Queue[str]()
    link.listen(lambda: told.put_nowait(link.message))

    async def given_up() -> None:
        while not link.connections:
            await told.get()
        with pytest.raises(AgentUnavailableError):
            await link.release("k-1")
        while "did not answer within 0.2 s" not in await told.get():
            pass

    await link.start()
    try:
        await asyncio.wait_for(given_up(), PATIENCE_SECONDS)
    finally:
        await link.stop()
        await agent.stop()


async def test_what_keeps_the_hook_from_its_limits_is_told_with_the_node(a_folder: Path) -> None:
    node = await watched(a_folder, NEVER_SECONDS)
    try:
        assert node.watch.view().problems == ()
        node.agent.node = {"hook_problem": "The hook cannot hold memory limits: a file is missing"}
        await node.watch.poll()
        assert node.watch.view().problems == ("The hook cannot hold memory limits: a file is missing.",)
    finally:
        await node.watch.stop()
        await node.agent.stop()
