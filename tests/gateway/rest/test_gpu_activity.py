"""A kernel whose GPU works is active for Jupyter and for the Hub, also while no cell of it runs."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from jupyterhub.singleuser.extension import JupyterHubSingleUser
from jupyterhub_idle_culler import cull_idle
from ports import free_port
from tornado.httpclient import AsyncHTTPClient
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders, HTTPServerRequest, ResponseStartLine

from .conftest import Ask
from .fake_agent import FakeAgent, device, kernel
from .test_contract import until

IDLE_SECONDS = 1800
LONG_AGO = timedelta(hours=1)


class StandInHub:
    """The part of a Hub's API that a user's server and the Hub's culler speak to."""

    def __init__(self) -> None:
        self.port = free_port()
        self.last_activity = ""
        self.culled: list[str] = []
        self._server = HTTPServer(self._answer)
        self._server.listen(self.port, "127.0.0.1")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hub/api"

    def close(self) -> None:
        self._server.stop()

    def _answer(self, request: HTTPServerRequest) -> None:
        told: Any = {"version": "5.4.0"}
        if request.method == "POST":
            self.last_activity = json.loads(request.body)["servers"][""]["last_activity"]
        elif request.method == "DELETE":
            self.culled.append(request.path)
        elif "/users" in request.path:
            server = {"name": "", "ready": True, "url": "/user/alice/", "last_activity": self.last_activity}
            told = [{"name": "alice", "admin": False, "servers": {"": {**server, "started": self.last_activity}}}]
        body = json.dumps(told).encode()
        connection = request.connection
        assert connection is not None
        headers = HTTPHeaders({"Content-Length": str(len(body)), "Content-Type": "application/json"})
        connection.write_headers(ResponseStartLine("HTTP/1.1", 200, "OK"), headers, body)
        connection.finish()


@pytest.fixture
def a_hub(jp_asyncio_loop: asyncio.AbstractEventLoop) -> Iterator[StandInHub]:
    async def make() -> StandInHub:
        return StandInHub()

    hub = jp_asyncio_loop.run_until_complete(make())
    yield hub
    hub.close()
    AsyncHTTPClient.configure(None)  # the culler sets defaults of the whole process


async def culled_after_report(hub: StandInHub, server: ServerApp) -> list[str]:
    """Report the server's activity by JupyterHub's own code; return what the Hub's culler then stops."""
    log = logging.getLogger("test-hub")
    reporter = SimpleNamespace(
        serverapp=server,
        log=log,
        hub_activity_url=f"{hub.url}/users/alice/activity",
        hub_auth=SimpleNamespace(api_token="t"),
        server_name="",
        hub_http_client_opts={},
        _last_activity_sent=None,
    )
    await JupyterHubSingleUser.notify_activity(reporter)
    hub.culled.clear()
    await cull_idle(hub.url, "t", IDLE_SECONDS, log)
    return list(hub.culled)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


async def test_gpu_work_between_cells_counts_as_activity(ask: Ask, a_server: ServerApp, an_agent: FakeAgent) -> None:
    an_agent.devices = [device(reserved_bytes=0, reserved_hundredths=0)]
    an_agent.gives_room = True
    await an_agent.start()
    kernel_id = (await ask("alice", "POST", "api/kernels", body={"name": "python3.gpu-0.25"})).json["id"]

    async def model() -> Any:
        return (await ask("alice", "GET", "api/kernels", kernel_id)).json

    async def seen() -> bool:
        report = (await ask("alice", "GET", "aliquot/api/v1/kernels", kernel_id)).json
        return bool(report["busy_seconds"] == busy)

    def works(seconds: float) -> dict[str, Any]:
        found = kernel(kernel_id, "alice")
        found["devices"][0]["busy_seconds"] = seconds
        return found

    await until(model, lambda one: one["execution_state"] == "idle")
    busy = 1.5
    an_agent.kernels = [works(busy)]
    await until(seen, bool)
    before = await model()
    server_before = a_server.web_app.last_activity()
    busy = 2.5
    an_agent.kernels = [works(busy)]
    after = await until(model, lambda one: moment(one["last_activity"]) > moment(before["last_activity"]))
    assert after["execution_state"] == "idle"
    # JupyterHub's single-user server reports this moment to the Hub, whose culler reads it there.
    assert a_server.web_app.last_activity() > server_before
    assert a_server.web_app.last_activity() >= moment(after["last_activity"])

    an_agent.kernels = [works(busy)]
    await until(seen, bool)
    at_rest = await model()
    assert await model() == at_rest, "a GPU that does nothing more is no activity"


async def test_the_hubs_culler_spares_a_server_whose_gpu_works(
    ask: Ask, a_server: ServerApp, an_agent: FakeAgent, a_hub: StandInHub
) -> None:
    """Let an hour pass in the server's own records: jupyterhub-idle-culler reads the moment alone."""
    an_agent.devices = [device(reserved_bytes=0, reserved_hundredths=0)]
    an_agent.gives_room = True
    await an_agent.start()
    kernel_id = (await ask("alice", "POST", "api/kernels", body={"name": "python3.gpu-0.25"})).json["id"]

    async def is_idle() -> bool:
        report = (await ask("alice", "GET", "aliquot/api/v1/kernels", kernel_id)).json
        return bool(report["execution_state"] == "idle" and report["state"] == "on_gpu")

    await until(is_idle, bool)

    async def culled_after_an_hour() -> list[str]:
        let_an_hour_pass(a_server, kernel_id)
        return await culled_after_report(a_hub, a_server)

    # The kernel may have had a last message on its way, which counts.
    assert await until(culled_after_an_hour, bool) == ["/hub/api/users/alice/server"], "it is idle"

    works = kernel(kernel_id, "alice")
    works["devices"][0]["busy_seconds"] = 99.5
    an_agent.kernels = [works]

    async def seen() -> bool:
        report = (await ask("alice", "GET", "aliquot/api/v1/kernels", kernel_id)).json
        return bool(report["busy_seconds"] == 99.5)

    await until(seen, bool)
    assert a_server.web_app.settings["api_last_activity"] < datetime.now(timezone.utc) - LONG_AGO / 2, (
        "no request counted"
    )
    assert await culled_after_report(a_hub, a_server) == []


def let_an_hour_pass(server: ServerApp, kernel_id: str) -> None:
    """Put all activity an hour back. Views of the node go on to come, and tell the use of GPUs again."""
    manager, settings = server.kernel_manager, server.web_app.settings
    past = datetime.now(timezone.utc) - LONG_AGO
    settings["started"] = settings["api_last_activity"] = past
    manager.last_kernel_activity = manager.get_kernel(kernel_id).last_activity = past
    used = culler_of(manager)._last
    for one, (report, figures, _) in list(used.items()):
        used[one] = (report, figures, past.timestamp())


def culler_of(manager: Any) -> Any:
    """Return the record of GPU use behind the manager's `gpu_used`."""
    return manager.activity.gpu_used.__self__._gpu
