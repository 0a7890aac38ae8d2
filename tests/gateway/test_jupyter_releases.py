"""Parts that another release of Jupyter would break first.

They are a kernel over REST and its websocket, and the parts for a Hub.
`tools/check-jupyter-releases` runs this with the oldest and the newest releases, without the
fixtures of this folder.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import websocket

TOKEN = "a-token"


class Server:
    """A Jupyter server with Aliquot, and no node agent."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        extensions = {"jupyter_aliquot.gateway": True}
        options = {
            "ServerApp.jpserver_extensions": extensions,
            "ServerApp.port": self.port,
            "ServerApp.port_retries": 0,
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.root_dir": folder,
            "IdentityProvider.token": TOKEN,
            "Aliquot.start_agent": False,
            "Aliquot.runtime_dir": folder / "run",
            "Aliquot.keep_kernels": "never",
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        (folder / "run").mkdir(mode=0o700)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", *words],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {name: str(folder / name) for name in ("JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR")},
        )

    def until_it_runs(self) -> None:
        told = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            told.append(line)
            if "agent=unavailable" in line:  # our start hook logs it in a running loop
                return
        pytest.fail("".join(told))

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"token {TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def execute(self, kernel_id: str, code: str) -> str:
        """Return what the cell printed."""
        session, asked = uuid.uuid4().hex, uuid.uuid4().hex
        header = {"msg_id": asked, "username": "", "session": session, "msg_type": "execute_request", "version": "5.3"}
        content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
        message = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content}
        where = f"ws://127.0.0.1:{self.port}/api/kernels/{kernel_id}/channels?session_id={session}"
        channel = websocket.create_connection(where, timeout=60, header=[f"Authorization: token {TOKEN}"])
        try:
            channel.send(json.dumps(message))
            printed = ""
            while True:
                told = json.loads(channel.recv())
                if told["parent_header"].get("msg_id") != asked:
                    continue
                printed += told["content"].get("text", "")
                if told["content"].get("execution_state") == "idle":
                    return printed
        finally:
            channel.close()


@pytest.fixture
def a_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("r"))
    try:
        server.until_it_runs()
        yield server
    finally:
        server.process.terminate()
        server.process.communicate(timeout=60)


def test_a_kernel_starts_answers_restarts_and_ends(a_server: Server) -> None:
    body = {"path": "a.ipynb", "name": "a.ipynb", "type": "notebook", "kernel": {"name": "python3"}}
    session = a_server.ask("POST", "api/sessions", body)
    kernel_id = session["kernel"]["id"]
    assert a_server.execute(kernel_id, "x = 41\nprint(x + 1)") == "42\n"
    a_server.ask("POST", f"api/kernels/{kernel_id}/restart", {})
    assert a_server.execute(kernel_id, "print('x' in dir())") == "False\n"
    a_server.ask("POST", f"api/kernels/{kernel_id}/interrupt", {})
    a_server.ask("DELETE", f"api/sessions/{session['id']}")
    assert a_server.ask("GET", "api/kernels") == []


def test_sizes_are_offered_and_the_status_is_told(a_server: Server) -> None:
    assert "python3.gpu-0.25" in [size["name"] for size in a_server.ask("GET", "aliquot/api/v1/sizes")["sizes"]]
    assert "python3.gpu-0.25" in a_server.ask("GET", "api/kernelspecs")["kernelspecs"]
    assert a_server.ask("GET", "aliquot/api/v1/status")["node"]["agent"] == "unavailable"


@pytest.mark.parametrize(
    "module",
    [
        "jupyter_aliquot.gateway.hub",
        "jupyter_aliquot.gateway.hub_service.identity",
        "jupyter_aliquot.gateway.hub_service.login",
        "jupyter_aliquot.gateway.serverapp.hub_app",
        "jupyter_aliquot.gateway.remote.proxy",
    ],
)
def test_the_parts_for_a_hub_load(module: str) -> None:
    assert import_module(module)
