"""Requests about one kernel: the server looks at this kernel alone, and makes its report once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp

from jupyter_aliquot.gateway.api.base import SETTING
from jupyter_aliquot.gateway.status.report import StatusSnapshot
from jupyter_aliquot.gateway.status.report_cache import ReportMemo

from .conftest import Ask
from .fake_agent import FakeAgent, kernel
from .test_changes import a_kernel_of_alice

REQUESTS = (
    ("GET", "", None, 200, 1),
    ("PATCH", "", {"gpus": 0.3}, 200, 1),
    ("POST", "/swap-out", {}, 202, 1),
    ("POST", "/restore", {}, 202, 1),
    ("POST", "/prefetch", {}, 204, 0),
    ("DELETE", "/resize", None, 404, 0),
)


class Looks:
    """The snapshots that handlers gathered, each with a memo of its own that counts its reports."""

    def __init__(self, snapshot: Callable[..., StatusSnapshot]) -> None:
        self._scene = snapshot
        self.snapshots: list[StatusSnapshot] = []

    def snapshot(self, *asked: Any) -> StatusSnapshot:
        found = replace(self._scene(*asked), memo=ReportMemo())
        self.snapshots.append(found)
        return found

    @property
    def kernels(self) -> set[str]:
        return {one.id for snapshot in self.snapshots for one in (*snapshot.kernels, *snapshot.ended)}

    @property
    def made(self) -> int:
        return sum(snapshot.memo.made for snapshot in self.snapshots)


@pytest.fixture
def looks(a_server: ServerApp) -> Callable[[], Looks]:
    """Return a function that watches the snapshots of handlers from its call on."""

    def watch() -> Looks:
        settings = a_server.web_app.settings
        looks = Looks(settings[SETTING].snapshot)
        settings[SETTING] = replace(settings[SETTING], snapshot=looks.snapshot)
        return looks

    return watch


async def four_kernels(ask: Ask, agent: FakeAgent) -> str:
    """Start three kernels of Alice's, end one, and add one of another program.

    Returns the id of one that runs.
    """
    agent.kernels = [kernel("elsewhere", "alice")]
    kernel_id = await a_kernel_of_alice(ask, agent)
    for _ in range(2):
        started = await ask("alice", "POST", "api/kernels", body={"name": "python3.gpu-0.05"})
        assert started.status == 201, started.body
    assert (await ask("alice", "DELETE", "api/kernels", started.json["id"])).status == 204
    told = {one["id"] for one in (await ask("alice", "GET", "aliquot/api/v1/kernels")).json["kernels"]}
    assert len(told) == 4
    return kernel_id


@pytest.mark.parametrize(
    ("method", "path", "body", "want_status", "want_made"), REQUESTS, ids=[f"{one[0]} {one[1]}" for one in REQUESTS]
)
async def test_a_request_about_a_kernel_gathers_it_alone_and_makes_its_report_once(
    ask: Ask,
    an_agent: FakeAgent,
    looks: Callable[[], Looks],
    method: str,
    path: str,
    body: Any,
    want_status: int,
    want_made: int,
) -> None:
    kernel_id = await four_kernels(ask, an_agent)
    looked = looks()
    answer = await ask("alice", method, f"aliquot/api/v1/kernels/{kernel_id}{path}", body=body)
    assert (answer.status, looked.kernels, looked.made) == (want_status, {kernel_id}, want_made), answer.body


async def test_one_kernel_is_told_as_the_list_tells_it(ask: Ask, an_agent: FakeAgent) -> None:
    """Compare reports of a running, an ended and another program's kernel with their list.

    The users are the owner, an administrator and a stranger.
    """
    await four_kernels(ask, an_agent)
    for who in ("alice", "ada"):
        for _ in range(50):
            asked, differing = await as_listed_and_told(ask, who)
            if not differing:
                break
            await asyncio.sleep(0.1)  # what the agent reports came between two requests
        assert (len(asked), differing) == (4, [])
        for kernel_id in asked:
            assert (await ask("bob", "GET", "aliquot/api/v1/kernels", kernel_id)).status == 404


async def as_listed_and_told(ask: Ask, who: str) -> tuple[list[str], list[tuple[Any, Any]]]:
    """Return the kernels of a user's list, and the reports in which a request about one differs from the list."""
    volatile = ("execution_state", "idle_since")
    listed = (await ask(who, "GET", "aliquot/api/v1/kernels")).json["kernels"]
    # The agent may still report the kernel that ended just now; the list has it twice then.
    wanted = {one["id"]: one for one in reversed(listed)}
    differing = []
    for kernel_id, want in wanted.items():
        told = (await ask(who, "GET", "aliquot/api/v1/kernels", kernel_id)).json
        if {**told, **dict.fromkeys(volatile)} != {**want, **dict.fromkeys(volatile)}:
            differing.append((told, want))
    return list(wanted), differing


async def test_the_history_gathers_no_kernel_that_its_asker_may_not_see(
    ask: Ask, an_agent: FakeAgent, looks: Callable[[], Looks]
) -> None:
    await four_kernels(ask, an_agent)
    looked = looks()
    assert (await ask("bob", "GET", "aliquot/api/v1/history")).status == 200
    assert {one.id for snapshot in looked.snapshots for one in snapshot.kernels} == set()
