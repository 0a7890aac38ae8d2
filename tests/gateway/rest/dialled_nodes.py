"""Nodes of other machines for tests: an agent whose answers a test sets, and the dialer that a real agent has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_aliquot.gpu_hook.agent.dialing.dialer import GatewayDialer
from jupyter_aliquot.gpu_hook.agent.dialing.settings import GatewayAddress, agents_url
from jupyter_aliquot.gpu_hook.waiting import end_task

from .conftest import Ask
from .fake_agent import FakeAgent

PATIENCE_SECONDS = 60.0
TOKEN = "a-token-of-any-agent"


class Node:
    """An agent on another machine: its control socket, and the dialer that a real agent has."""

    def __init__(self, folder: Path, name: str, url: str, token: str = TOKEN) -> None:
        self.name = name
        self.agent = FakeAgent(folder / f"{name}.sock")
        token_file = folder / f"{name}.token"
        token_file.write_text(f"{token}\n")
        self._dialer = GatewayDialer(
            GatewayAddress(agents_url(url), token_file), name, folder / f"{name}.sock", lambda: 0.0
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.agent.start()
        self.dial()

    def dial(self) -> None:
        self._task = asyncio.create_task(self._dialer.run())

    async def hang_up(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            await end_task(task)

    async def stop(self) -> None:
        await self.hang_up()
        await self.agent.stop()


async def nodes_of(ask: Ask) -> dict[str, dict[str, Any]]:
    answer = await ask("alice", "GET", "aliquot/api/v1/nodes")
    assert answer.status == 200
    return {node["name"]: node for node in answer.json["nodes"]}


async def until(ask: Ask, claim: Callable[[dict[str, dict[str, Any]]], object]) -> dict[str, dict[str, Any]]:
    async def look() -> dict[str, dict[str, Any]]:
        while not claim(found := await nodes_of(ask)):
            pass  # the request itself lets all others work
        return found

    return await asyncio.wait_for(look(), PATIENCE_SECONDS)


def is_in(state: str, *names: str) -> Callable[[dict[str, dict[str, Any]]], bool]:
    return lambda nodes: all(name in nodes and nodes[name]["state"] == state for name in names)
