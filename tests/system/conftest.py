"""The whole product with real parts.

A node agent on the software GPU, a Jupyter server process, kernels over WebSockets.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import warm_start
import websocket
from ports import free_port
from quick_start import WITHOUT_PAGES, python_m

from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.client.client import AgentClientError, query
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, softgpu_state_path

sys.path.insert(0, str(Path(__file__).parent))  # for fixtures that several files of this folder share
TOKEN = "system-test-token"
AnyProcess = subprocess.Popen[bytes] | warm_start.WarmProcess
DEADLINE_SECONDS = 90.0


def wait_until(claim: Callable[[], object], deadline_seconds: float = DEADLINE_SECONDS) -> Any:
    """Wait until ``claim()`` is true and return it; fail with its last value.

    Most claims ask a server: the looks become rarer, up to ten a second.
    """
    deadline, pause = time.monotonic() + deadline_seconds, 0.02
    while not (value := claim()):
        assert time.monotonic() < deadline, f"still {value!r} after {deadline_seconds} s"
        time.sleep(pause)
        pause = min(0.1, pause * 1.2)
    return value


class HttpRefusal(Exception):
    """An HTTP answer of 4xx or 5xx, with its JSON body."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status, self.message = status, json.loads(body)["message"]


@dataclass(frozen=True)
class Server:
    """A Jupyter server process with Aliquot."""

    url: str
    process: AnyProcess
    log: Path
    token: str = TOKEN
    refusal = HttpRefusal

    def call(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"token {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", method=method, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as response:
                text = response.read()
        except urllib.error.HTTPError as refusal:
            raise HttpRefusal(refusal.code, refusal.read().decode()) from None
        return json.loads(text) if text else None

    def metrics(self) -> str:
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(f"{self.url}/aliquot/api/v1/metrics", headers=headers)
        with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as response:
            return str(response.read().decode())

    def status(self) -> Any:
        return self.call("GET", "/aliquot/api/v1/status")

    def start(self, name: str) -> Kernel:
        return Kernel(self, self.call("POST", "/api/kernels", {"name": name})["id"])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=DEADLINE_SECONDS)


@dataclass(frozen=True)
class Outcome:
    """The results of one cell."""

    status: str
    text: str
    error: str


class Kernel:
    """One kernel as a browser sees it."""

    def __init__(self, server: Server, kernel_id: str) -> None:
        self.server, self.id = server, kernel_id
        self._socket: websocket.WebSocket | None = None

    def connect(self) -> websocket.WebSocket:
        if self._socket is None:
            url = f"ws{self.server.url[4:]}/api/kernels/{self.id}/channels?session_id={uuid.uuid4().hex}"
            headers = [f"Authorization: token {self.server.token}"]
            self._socket = websocket.create_connection(url, header=headers, timeout=DEADLINE_SECONDS)
        return self._socket

    def send(self, code: str) -> str:
        message_id = uuid.uuid4().hex
        header = {"msg_id": message_id, "msg_type": "execute_request", "session": "t", "username": "", "version": "5.3"}
        content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
        message = {
            "header": header,
            "parent_header": {},
            "metadata": {},
            "content": content,
            "channel": "shell",
            "buffers": [],
        }
        self.connect().send(json.dumps(message))
        return message_id

    def outcome(self, message_id: str) -> Outcome:
        """Read until the cell's reply and its idle status are there."""
        text, error, status, idle = "", "", "", False
        while not (status and idle):
            answer = json.loads(self.connect().recv())
            if answer["parent_header"].get("msg_id") != message_id:
                continue
            kind, content = answer["msg_type"], answer["content"]
            if kind == "stream":
                text += content["text"]
            elif kind == "execute_reply":
                status = content["status"]
                error = f"{content.get('ename', '')}: {content.get('evalue', '')}" if status == "error" else ""
            idle = idle or (kind == "status" and content["execution_state"] == "idle")
        return Outcome(status, text, error)

    def wait_for_text(self, text: str) -> None:
        """Wait until a cell printed it: an interrupt before user code runs would be lost."""
        while json.loads(self.connect().recv())["content"].get("text", "").strip() != text:
            pass

    def run(self, code: str) -> Outcome:
        return self.outcome(self.send(code))

    def model(self) -> Any:
        return self.server.call("GET", f"/api/kernels/{self.id}")

    def on_node(self) -> Any:
        return next((k for k in self.server.status()["kernels"] if k["id"] == self.id), None)

    def used_bytes(self) -> Any:
        """Return the bytes in use on the node; None while the kernel starts again."""
        return (self.on_node() or {}).get("used_bytes")

    def reconnect(self) -> None:
        """Reconnect as a browser does after a restart."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def end(self) -> None:
        self.reconnect()
        self.server.call("DELETE", f"/api/kernels/{self.id}")


@pytest.fixture
def eventually() -> Callable[..., Any]:
    return wait_until


@contextlib.contextmanager
def new_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def a_folder() -> Iterator[Path]:
    with new_folder() as folder:
        yield folder


def environment_in(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "ALIQUOT_RUNTIME_DIR": str(folder / "run"),
        "JUPYTER_RUNTIME_DIR": str(folder / "jupyter"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "IPYTHONDIR": str(folder / "ipython"),
    }


@pytest.fixture
def an_environment(a_folder: Path) -> dict[str, str]:
    return environment_in(a_folder)


@contextlib.contextmanager
def agent_in(folder: Path, environment: dict[str, str]) -> Iterator[AnyProcess]:
    """Run a node agent with one software GPU of 4 GiB, on which kernels queue."""
    words = ["-m", "jupyter_aliquot.gpu_hook.agent", "--driver", "softgpu", "--softgpu-memory", "4GiB"]
    with (folder / "agent.log").open("w") as log:
        files = {"env": environment, "stdout": log, "stderr": log}
        process = warm_start.start(warm_start.AGENT, [*words, "--overcommit", "1"], **files)
    wait_until(lambda: answers(folder / "run") or process.poll() is not None)
    assert process.poll() is None, (folder / "agent.log").read_text()
    yield process
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=DEADLINE_SECONDS)
    remove_state(softgpu_state_path(RuntimeDir(folder / "run")))  # of an agent that left kernels behind


@pytest.fixture
def an_agent(a_folder: Path, an_environment: dict[str, str]) -> Iterator[AnyProcess]:
    with agent_in(a_folder, an_environment) as agent:
        yield agent


def answers(run_dir: Path) -> bool:
    """Return whether an agent answers here: its socket exists a moment before it listens."""
    try:
        query("status", runtime_dir=run_dir)
    except AgentClientError:
        return False
    return True


class GrantedKernel:
    """Half of the agent's GPU, reserved for as long as a sleeping process lives.

    Programs run in it.
    """

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.run_dir = folder / "run"
        self.grant = query(
            "reserve",
            runtime_dir=self.run_dir,
            kernel_id="k",
            owner="me",
            hundredths=50,
            memory_limit=None,
            workload_class="production",
            label="processes",
        )["grant"]
        self.keeper = subprocess.Popen(["sleep", "3600"])
        ticks = int(Path(f"/proc/{self.keeper.pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
        query("bind", runtime_dir=self.run_dir, kernel_id="k", pid=self.keeper.pid, start_time_ticks=ticks)
        granted = {name.removesuffix("_PREPEND"): value for name, value in self.grant["env"].items()}
        self.environment = {**environment, **granted, "PYTHONFAULTHANDLER": "1"}

    def start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def status(self) -> Any:
        return query("status", runtime_dir=self.run_dir)

    def lent_bytes(self) -> int:
        return int(self.status()["kernels"][0]["devices"][0]["lent_bytes"])

    def charged_bytes(self) -> int:
        return int(self.status()["kernels"][0]["devices"][0]["charged_bytes"])

    def used_bytes(self) -> int:
        """Return the bytes in use, as the device itself reports them."""
        return int(self.status()["devices"][0]["used_bytes"])

    def close(self) -> None:
        self.keeper.kill()
        self.keeper.wait()


@pytest.fixture
def a_granted_kernel(an_agent: object, a_folder: Path, an_environment: dict[str, str]) -> Iterator[GrantedKernel]:
    """2 GiB of a software GPU of 4 GiB."""
    kernel = GrantedKernel(a_folder, an_environment)
    yield kernel
    kernel.close()


def start_server(
    folder: Path, environment: dict[str, str], name: str, *options: str, has_devices: bool = True, before: str = ""
) -> Server:
    """Start a user's own server: plain ``jupyter server``, Aliquot enabled by its installation.

    *has_devices* False: no agent of its own machine will tell it any. *before*: code that its process runs first.
    """
    command = [*python_m("jupyter_server", before=before), "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1"]
    command += [WITHOUT_PAGES]
    command += [f"--port={free_port()}", "--ServerApp.port_retries=0"]
    command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={folder}"]
    # Tests stop servers by SIGTERM, and want nothing left behind; those about survival choose
    # otherwise.
    is_told = any(option.startswith("--Aliquot.keep_kernels=") for option in options)
    command += [*([] if is_told else ["--Aliquot.keep_kernels=never"]), *options]
    runtime = folder / f"jupyter-{name}"
    log = folder / f"{name}.log"
    with log.open("w") as stream:
        files = {"env": {**environment, "JUPYTER_RUNTIME_DIR": str(runtime)}, "stdout": stream, "stderr": stream}
        process = warm_start.start(warm_start.SERVER, command[1:], **files)

    def info() -> Any:
        assert process.poll() is None, log.read_text()[-3000:]
        return next(iter(runtime.glob("jpserver-*.json")), None)

    path = wait_until(info)
    port = wait_until(lambda: json.loads(path.read_text() or "{}").get("port"))
    server = Server(f"http://127.0.0.1:{port}", process, log)

    def is_up() -> bool:
        with contextlib.suppress(OSError):
            # Sizes are judged by the node's devices as soon as the gateway has been told of them.
            return bool(server.call("GET", "/api/status") and (server.status()["devices"] or not has_devices))
        return False

    wait_until(is_up)
    return server


@pytest.fixture
def server_options() -> list[str]:
    """The options of ``a_server``; a test that needs some parametrizes them."""
    return []


@pytest.fixture
def a_server(
    a_folder: Path, an_environment: dict[str, str], an_agent: object, server_options: list[str]
) -> Iterator[Server]:
    server = start_server(a_folder, an_environment, "server", *server_options)
    yield server
    if server.process.poll() is None:
        server.stop()


@pytest.fixture(scope="module")
def a_standing_server() -> Iterator[Server]:
    """A server and its agent, for the tests of a module that leave both as they find them."""
    with new_folder() as folder, agent_in(folder, environment_in(folder)):
        server = start_server(folder, environment_in(folder), "server")
        yield server
        server.stop()


@pytest.fixture
def a_shared_server(a_standing_server: Server) -> Iterator[Server]:
    """The standing server, without kernels, and with an empty GPU after each test."""
    yield a_standing_server
    for kernel in a_standing_server.call("GET", "/api/kernels"):
        a_standing_server.call("DELETE", f"/api/kernels/{kernel['id']}")
    wait_until(lambda: is_empty(a_standing_server))


def is_empty(server: Server) -> bool:
    (device,) = server.status()["devices"]
    return device["used_bytes"] == device["reserved_bytes"] == 0


@pytest.fixture
def another_server(a_folder: Path, an_environment: dict[str, str], a_server: Server) -> Iterator[Server]:
    """Start a second gateway on the same node."""
    server = start_server(a_folder, an_environment, "second")
    yield server
    if server.process.poll() is None:
        server.stop()
