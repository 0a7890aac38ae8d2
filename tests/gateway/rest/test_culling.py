"""A real server that ends idle kernels: it warns first, spares work, and lets owners keep them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from .conftest import Ask
from .fake_agent import GIB, FakeAgent, device
from .test_contract import check, until

KERNEL = "/aliquot/api/v1/kernels/{kernel_id}"


@pytest.fixture
def jp_server_config(jp_server_config: Config) -> Config:
    # The warning comes after two seconds of rest, the end four later: enough time for a test's
    # requests.
    jp_server_config.Culling.idle_seconds = 6.0
    jp_server_config.Culling.warning_seconds = 4.0
    return jp_server_config


class Somebody:
    """A user with one plain kernel."""

    def __init__(self, ask: Ask, server: ServerApp, kernel_id: str) -> None:
        self.ask = ask
        self.manager = server.kernel_manager
        self.kernel_id = kernel_id

    async def report(self) -> dict[str, Any] | None:
        answer = await self.ask("alice", "GET", "aliquot/api/v1/kernels", self.kernel_id)
        return check(answer, KERNEL) if answer.status == 200 else None

    async def soon(self) -> dict[str, Any] | None:
        report = await self.report()
        return None if report is None else report["scheduled_termination"]

    async def keep(self, who: str = "alice") -> int:
        answer = await self.ask(who, "POST", "aliquot/api/v1/kernels", self.kernel_id, "postpone-culling", body={})
        return int(answer.status)


async def a_kernel_of_alice(ask: Ask, a_server: ServerApp) -> Somebody:
    started = await ask("alice", "POST", "api/kernels", body={"name": "python3"})
    assert started.status == 201
    return Somebody(ask, a_server, started.json["id"])


async def test_a_cell_is_spared_its_kernel_announced_kept_and_ended(ask: Ask, a_server: ServerApp) -> None:
    somebody = await a_kernel_of_alice(ask, a_server)
    kernel = somebody.manager.get_kernel(somebody.kernel_id)
    client = kernel.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=90)
        cell = asyncio.ensure_future(client.execute_interactive("import time; time.sleep(5)", timeout=90))
        seen = []
        await until(somebody.soon, lambda soon: kernel.execution_state == "busy" and soon is None)
        while kernel.execution_state == "busy":
            seen.append(await somebody.soon())
            await asyncio.sleep(0.05)
        assert (await cell)["content"]["status"] == "ok"
    finally:
        client.stop_channels()
    assert len(seen) > 3
    assert seen == [None] * len(seen), "a silent cell is work: by now the end of an idle kernel would be told"

    soon = await until(somebody.soon, bool)
    assert (soon["message"], soon["can_postpone"]) == ("kernels that are idle for 6 s are ended", True)
    assert await somebody.keep("bob") == 404, "somebody else's kernel is not there"
    assert await somebody.keep("nobody") == 403
    assert await somebody.keep() == 204
    assert await somebody.soon() is None
    again = await until(somebody.soon, bool)
    assert again["at"] > soon["at"]

    report = await until(somebody.report, lambda report: report is not None and report["state"] == "ended")
    assert report["termination"]["code"] == "culled"
    assert report["reason"] == report["termination"]["message"] == "the kernel was ended after 6 s idle"
    assert report["termination"]["at"] >= again["at"]
    assert somebody.kernel_id not in somebody.manager
    status = (await somebody.ask("alice", "GET", "aliquot/api/v1/status")).json
    assert [kernel["id"] for kernel in status["kernels"]] == [somebody.kernel_id]
    assert (await somebody.ask("bob", "GET", "aliquot/api/v1/kernels", somebody.kernel_id)).status == 404
    assert (await somebody.ask("bob", "GET", "aliquot/api/v1/kernels")).json == {"kernels": []}
    text = (await somebody.ask("ada", "GET", "aliquot/api/v1/metrics")).body.decode()
    assert 'aliquot_kernel_terminations_total{reason="culled"} 1.0' in text
    assert await somebody.keep() == 404


async def test_what_waits_is_expected_to_start_when_culling_makes_room(
    ask: Ask, a_server: ServerApp, an_agent: FakeAgent
) -> None:
    an_agent.devices, an_agent.gives_room = [device(reserved_bytes=0, reserved_hundredths=0)], True
    await an_agent.start()
    started = await ask("alice", "POST", "api/kernels", body={"name": "python3.gpu-0.75"})
    assert started.status == 201, started.json
    idle = Somebody(ask, a_server, started.json["id"])
    await until(idle.report, lambda report: report is not None and report["state"] == "on_gpu")
    an_agent.devices = [device(reserved_bytes=12 * GIB, reserved_hundredths=75)]
    an_agent.gives_room = False
    started = await ask("bob", "POST", "api/kernels", body={"name": "python3.gpu-0.5"})
    path = ("aliquot", "api", "v1", "kernels", started.json["id"])

    async def pair() -> tuple[Any, Any]:
        soon, waiting = await idle.soon(), (await ask("bob", "GET", *path)).json
        return None if soon is None else soon["at"], waiting["expected_start"]

    assert await pair() == (None, None)
    at, expected = await until(pair, lambda told: told[0] is not None)
    assert expected == at, "the moment at which the kernel that has its room is ended"
    assert await idle.keep() == 204
    assert await pair() == (None, None)


async def test_a_kernel_that_waits_for_input_is_at_work(ask: Ask, a_server: ServerApp) -> None:
    somebody = await a_kernel_of_alice(ask, a_server)
    kernel = somebody.manager.get_kernel(somebody.kernel_id)
    client = kernel.client()
    client.start_channels()
    asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    try:
        await client.wait_for_ready(timeout=90)

        async def wait_for_a_look_or_more(_: Any) -> None:
            asked.set_result(None)
            await until(somebody.soon, lambda soon: soon is None)
            for _look in range(70):
                assert await somebody.soon() is None
                await asyncio.sleep(0.05)
            client.input("done")

        cell = client.execute_interactive(
            "x = input()", allow_stdin=True, stdin_hook=wait_for_a_look_or_more, timeout=90
        )
        assert (await cell)["content"]["status"] == "ok"
        assert asked.done()
    finally:
        client.stop_channels()
