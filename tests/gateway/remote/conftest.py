"""A gateway and its users' own Jupyter servers, each a process of its own, as in a deployment."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import warm_start
import websocket
from ports import free_port
from quick_start import python_m

TOKENS = {"alice": "a-token-of-alice", "bob": "a-token-of-bob", "ada": "a-token-of-ada"}
START_SECONDS = 90.0


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any = None


@dataclass
class Server:
    """A Jupyter server that a test can end in any way, and start again at the same place."""

    folder: Path
    words: list[str]
    token: str
    port: int = field(default_factory=free_port)
    variables: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | warm_start.WarmProcess | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> Server:
        self.spawn()
        self.until(lambda: self.ask("GET", "api").status == 200, START_SECONDS)
        return self

    def spawn(self) -> None:
        (self.folder / "work").mkdir(parents=True, exist_ok=True)
        cleared = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER_", "ALIQUOT_", "XDG_", "KERNEL_"))}
        command = [*python_m(*self.words), f"--ServerApp.port={self.port}", "--ServerApp.port_retries=0"]
        command += [
            "--ServerApp.ip=127.0.0.1",
            "--no-browser",
            "--allow-root",
            f"--ServerApp.root_dir={self.folder}/work",
        ]
        with open(self.folder / "log", "ab") as log:
            self.process = warm_start.start(
                warm_start.SERVER,
                command[1:],
                env=cleared | {"HOME": str(self.folder)} | self.variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def end(self, how: int = signal.SIGTERM) -> None:
        process, self.process = self.process, None
        if process is not None and process.poll() is None:
            process.send_signal(how)
            process.wait(60)

    def wait(self) -> None:
        assert self.process is not None
        self.process.wait(60)

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> Answer:
        headers = {"Authorization": f"token {token or self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
                return Answer(answer.status, json.loads(text) if text else None)
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read().decode(errors="replace"))
        except OSError as error:
            return Answer(0, repr(error))

    def until(self, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            may_come = (self.process is None or self.process.poll() is None) and time.monotonic() < deadline
            assert may_come, (self.folder / "log").read_text()[-4000:]
            time.sleep(0.05)
        return found

    def kernels(self) -> list[str]:
        answer = self.ask("GET", "api/kernels")
        assert answer.status == 200, answer
        return sorted(kernel["id"] for kernel in answer.body)

    def execute(self, kernel_id: str, code: str, until: str) -> str:
        """Send a cell over a WebSocket; return its output once that holds ``until``."""
        session = uuid.uuid4().hex
        url = f"ws://127.0.0.1:{self.port}/api/kernels/{kernel_id}/channels?session_id={session}"
        header = {"msg_id": uuid.uuid4().hex, "username": "", "session": session, "msg_type": "execute_request"}
        content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
        message = {"channel": "shell", "header": {**header, "version": "5.3"}, "parent_header": {}, "metadata": {}}
        channel = websocket.create_connection(url, timeout=90, header=[f"Authorization: token {self.token}"])
        printed = ""
        try:
            channel.send(json.dumps({**message, "content": content}))
            while until not in printed:
                told = json.loads(channel.recv())
                if told["msg_type"] == "stream" and told["parent_header"].get("msg_id") == header["msg_id"]:
                    printed += told["content"]["text"]
        finally:
            channel.close()
        return printed


@contextmanager
def a_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def serving(keep_kernels: str = "never") -> Iterator[Server]:
    """Run `aliquot serve` with three users.

    Its kernels end with it, or outlive it, according to ``keep_kernels``.
    """
    with a_folder() as folder:
        users = {name: {"token": token} for name, token in TOKENS.items()}
        users["ada"]["role"] = "admin"
        config = folder / "serve.py"
        config.write_text(
            f"c.AliquotIdentityProvider.users = {users!r}\n"
            f"c.Aliquot.start_agent = False\nc.Aliquot.keep_kernels = {keep_kernels!r}\n"
            f"c.Aliquot.runtime_dir = {str(folder / 'run')!r}\n"
        )
        (folder / "run").mkdir(mode=0o700)
        server = Server(folder, ["jupyter_aliquot.gateway.cli.app", "serve", f"--config={config}"], TOKENS["ada"])
        try:
            yield server.start()
            end_kernels(server)
        finally:
            server.end(signal.SIGTERM)


def end_kernels(server: Server) -> None:
    """End the kernels of a running gateway; those of an ended one have ended with it."""
    for kernel_id in server.kernels() if server.process is not None else ():
        server.ask("DELETE", f"api/kernels/{kernel_id}")


@pytest.fixture(scope="module")
def a_gateway() -> Iterator[Server]:
    """Run a gateway that all tests of a module share."""
    with serving() as server:
        yield server


@pytest.fixture
def own_gateway() -> Iterator[Server]:
    """Run a gateway that a test may end and start again."""
    with serving() as server:
        yield server


@pytest.fixture
def a_lasting_gateway() -> Iterator[Server]:
    """Run a gateway that a test may kill and start again; its kernels outlive it.

    It has to run when the test ends.
    """
    with serving("always") as server:
        yield server


@pytest.fixture
def a_stock_gateway() -> Iterator[Server]:
    """Run a gateway of Jupyter Server alone, without Aliquot."""
    with a_folder() as folder:
        off = dict.fromkeys(("jupyter_aliquot.gateway", "jupyterlab", "jupyter_lsp", "jupyter_server_terminals"), False)
        words = ["jupyter_server", f"--ServerApp.jpserver_extensions={off}"]
        server = Server(folder, [*words, f"--IdentityProvider.token={TOKENS['alice']}"], TOKENS["alice"])
        try:
            yield server.start()
            end_kernels(server)
        finally:
            server.end(signal.SIGTERM)


@pytest.fixture
def own_servers(request: pytest.FixtureRequest) -> Iterator[Callable[..., list[Server]]]:
    """Return a function that starts users' own Jupyter servers in gateway mode.

    Each server has a folder of its own.
    """
    made: list[Server] = []
    gateways: list[Server] = []

    def make(user: str, gateway: Server, more: Sequence[str]) -> Server:
        folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
        words = ["jupyter_server", f"--gateway-url={gateway.url}", f"--GatewayClient.auth_token={TOKENS[user]}", *more]
        off = dict.fromkeys(("jupyterlab", "jupyter_lsp", "jupyter_server_terminals"), False)
        on = {"jupyter_aliquot.gateway": True, **off}
        made.append(
            Server(folder, [*words, f"--ServerApp.jpserver_extensions={on}", "--IdentityProvider.token=own"], "own")
        )
        return made[-1]

    def start(
        *users: str,
        gateway: Server | None = None,
        more: Sequence[str] = (),
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> list[Server]:
        there = gateway or request.getfixturevalue("a_gateway")
        gateways.append(there)
        servers = [make(user, there, more) for user in users]
        for server in servers:
            server.variables.update(variables)
            server.spawn()
        for server in servers:
            server.until(lambda server=server: server.ask("GET", "api").status == 200, START_SECONDS)
        return servers

    yield start
    for server in made:
        server.end(signal.SIGKILL)
        shutil.rmtree(server.folder, ignore_errors=True)
    for gateway in gateways:
        end_kernels(gateway)
