"""A real Jupyter server with Aliquot, and users who send it requests."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from tornado.httpclient import HTTPClientError, HTTPResponse
from tornado.httputil import HTTPHeaders
from tornado.websocket import WebSocketClientConnection
from traitlets.config import Config

from .fake_agent import FakeAgent

ROOT = Path(__file__).resolve().parents[3]
SERVER = json.loads((ROOT / "jupyter-config" / "server-config" / "aliquot.json").read_text())["ServerApp"]

TOKENS = {who: f"a-token-of-{who}" for who in ("alice", "bob", "carol", "rita", "wanda", "ada")} | {"nobody": ""}
USERS = {
    "alice": {"token": TOKENS["alice"]},
    "bob": {"token": TOKENS["bob"], "role": "user"},
    "ada": {"token": TOKENS["ada"], "role": "admin"},
}


@dataclass(frozen=True)
class Answer:
    """An answer of the server: status, body and headers."""

    status: int
    body: bytes = b""
    headers: HTTPHeaders = field(default_factory=HTTPHeaders)

    @property
    def media_type(self) -> str:
        return self.headers.get("Content-Type", "").partition(";")[0]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@pytest.fixture
def runtime_dir() -> Iterator[Path]:
    """Make a runtime folder with a short path, for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def users() -> dict[str, dict[str, str]]:
    """The users of the server; a test module overrides this for a server of one."""
    return USERS


@pytest.fixture
def jp_server_config(runtime_dir: Path, users: dict[str, dict[str, str]]) -> Config:
    """Return the settings that an installed Aliquot makes, without an agent.

    Called by pytest-jupyter.
    """
    return Config(
        {
            "ServerApp": SERVER,
            "Aliquot": {"runtime_dir": str(runtime_dir), "start_agent": False, "status_refresh_seconds": 0.05},
            "AliquotIdentityProvider": {"users": users},
        }
    )


@pytest.fixture
def a_server(jp_serverapp: ServerApp) -> ServerApp:
    """Return the server; `ask` starts its extensions in the loop of the test."""
    return jp_serverapp


Ask = Callable[..., Any]
# Many requests start a kernel.
REQUEST_SECONDS = 120


def write_light_spec(kernels: Path, **more: Any) -> None:
    """Write a kernelspec "light", whose kernel starts at once, and answers nothing."""
    folder = kernels / "light"
    folder.mkdir(parents=True)
    spec = {"argv": ["/bin/sleep", "1000"], "display_name": "light", "language": "none", **more}
    (folder / "kernel.json").write_text(json.dumps(spec))


@pytest.fixture
def an_agent(runtime_dir: Path, jp_asyncio_loop: asyncio.AbstractEventLoop) -> Iterator[FakeAgent]:
    """A node agent that a test may start.

    It outlives the server, as a real one does.
    """
    agent = FakeAgent(runtime_dir / "agent.sock")
    yield agent
    jp_asyncio_loop.run_until_complete(agent.stop())


@pytest.fixture
def ask(
    a_server: ServerApp,
    jp_fetch: Any,
    jp_ws_fetch: Any,
    an_agent: FakeAgent,
    jp_asyncio_loop: asyncio.AbstractEventLoop,
) -> Iterator[Ask]:
    """Return a function that asks as a user: errors are answers, an open WebSocket answers 101."""
    started: list[bool] = []

    async def as_somebody(who: str, method: str, *path: str, body: Any = None, **more: Any) -> Answer:
        if not started:
            started.append(True)
            await a_server.extension_manager.start_all_extensions()
        headers = {"Authorization": f"token {TOKENS[who]}" if TOKENS.get(who) else "", **more.pop("headers", {})}
        try:
            if method == "WEBSOCKET":
                socket: WebSocketClientConnection = await jp_ws_fetch(*path, headers=headers)
                socket.close()
                return Answer(101)
            sent = body if body is None or isinstance(body, bytes) else json.dumps(body)
            response: HTTPResponse = await jp_fetch(
                *path,
                method=method,
                headers=headers,
                body=sent,
                allow_nonstandard_methods=True,
                follow_redirects=False,
                **{"request_timeout": REQUEST_SECONDS, **more},
            )
        except HTTPClientError as error:
            if error.response is None:
                return Answer(error.code)
            response = error.response
        return Answer(response.code, response.body or b"", response.headers)

    yield as_somebody
    jp_asyncio_loop.run_until_complete(a_server.extension_manager.stop_all_extensions())
