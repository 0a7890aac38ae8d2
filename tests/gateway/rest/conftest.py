"""A real Jupyter server with Aliquot in it, and people who ask it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from tornado.httpclient import HTTPClientError, HTTPResponse
from tornado.websocket import WebSocketClientConnection
from traitlets.config import Config

pytest_plugins = ["pytest_jupyter.jupyter_server"]

ROOT = Path(__file__).resolve().parents[3]
SERVER = json.loads((ROOT / "jupyter-config" / "server-config" / "aliquot.json").read_text())["ServerApp"]

TOKENS = {"alice": "a-token-of-alice", "bob": "a-token-of-bob", "ada": "a-token-of-ada", "nobody": ""}
USERS = {
    "alice": {"token": TOKENS["alice"]},
    "bob": {"token": TOKENS["bob"], "role": "user"},
    "ada": {"token": TOKENS["ada"], "role": "admin"},
}


@dataclass(frozen=True)
class Answer:
    """What came back: a status, and the body as it is."""

    status: int
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@pytest.fixture
def runtime_dir() -> Iterator[Path]:
    """A short path: sockets lie below it."""
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def users() -> dict[str, dict[str, str]]:
    """The users of the server; a test module overrides this for a server of one."""
    return USERS


@pytest.fixture
def jp_server_config(runtime_dir: Path, users: dict[str, dict[str, str]]) -> Config:
    """Called by pytest-jupyter: what an installed Aliquot configures, without an agent."""
    return Config(
        {
            "ServerApp": SERVER,
            "Aliquot": {"runtime_dir": str(runtime_dir), "start_agent": False, "status_refresh_seconds": 0.05},
            "AliquotIdentityProvider": {"users": users},
        }
    )


@pytest.fixture
def a_server(jp_serverapp: ServerApp) -> ServerApp:
    """The server; its extensions are started by `ask`, in the loop of the test."""
    return jp_serverapp


Ask = Callable[..., Any]


@pytest.fixture
def ask(a_server: ServerApp, jp_fetch: Any, jp_ws_fetch: Any) -> Ask:
    """Ask as somebody; errors are answers, and a WebSocket that opens answers 101."""
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
            sent = None if body is None else json.dumps(body)
            response: HTTPResponse = await jp_fetch(
                *path,
                method=method,
                headers=headers,
                body=sent,
                allow_nonstandard_methods=True,
                follow_redirects=False,
                **more,
            )
        except HTTPClientError as error:
            return Answer(error.code, error.response.body if error.response else b"")
        return Answer(response.code, response.body)

    return as_somebody
