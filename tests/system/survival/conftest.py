"""A machine with a node agent, gateways that come and go as processes, and tabs that reconnect.

The tabs reconnect as JupyterLab's do.
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
from pathlib import Path
from typing import Any

import pytest
import warm_start
import websocket
from ports import free_port
from quick_start import program

from jupyter_aliquot.gpu_hook.client.client import AgentUnreachable, query
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.relay.wire.files import RelayRecord, read_relay_records
from jupyter_aliquot.provisioner.relay.wire.proc import is_process

TOKEN = "survival-test-token"
SECONDS = 90.0
JUPYTERS = (program("jupyter_server"), program("jupyterlab", with_lab=True))


def wait_until(claim: Callable[[], Any], seconds: float = SECONDS) -> Any:
    deadline, pause = time.monotonic() + seconds, 0.02
    while not (value := claim()):
        assert time.monotonic() < deadline, f"still {value!r} after {seconds} s"
        time.sleep(pause)
        pause = min(0.1, pause * 1.2)  # most claims ask a server, or look at all processes
    return value


class Refusal(Exception):
    """An HTTP answer of 4xx or 5xx."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status


class Gateway:
    """One life of `aliquot serve`, or of another program that starts a gateway.

    The next life has the same port and name.
    """

    def __init__(self, node: Node, port: int, command: list[str], token: str = TOKEN) -> None:
        self.node, self.port, self.token = node, port, token
        self.log = node.folder / f"gateway-{len(node.gateways)}.log"
        with self.log.open("w") as stream:
            places = {"env": node.environment, "cwd": node.folder, "stdin": subprocess.DEVNULL}
            # A program of a test may change modules before others import them; Jupyter's own do not.
            imports = () if command[1] == "-c" and command[2] not in JUPYTERS else warm_start.SERVER
            self.process = warm_start.start(imports, command[1:], **places, stdout=stream, stderr=stream)
        node.gateways.append(self)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_until_up(self) -> Gateway:
        def answers() -> bool:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            with contextlib.suppress(OSError):
                return self.call("GET", "/api") is not None
            return False

        try:
            wait_until(answers)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log.read_text()[-3000:]}") from None
        return self

    def call(self, method: str, path: str, body: object = None, token: str = "") -> Any:
        headers = {"Authorization": f"token {token or self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", method=method, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as response:
                text = response.read()
        except urllib.error.HTTPError as refusal:
            raise Refusal(refusal.code, refusal.read().decode()) from None
        return json.loads(text) if text else None

    def start_kernel(self, name: str = "python3", token: str = "") -> str:
        kernel_id: str = self.call("POST", "/api/kernels", {"name": name}, token)["id"]
        return kernel_id

    def kernel_ids(self) -> set[str]:
        return {kernel["id"] for kernel in self.call("GET", "/api/kernels")}

    def model(self, kernel_id: str) -> Any:
        return self.call("GET", f"/api/kernels/{kernel_id}")

    def ended(self, kernel_id: str) -> Any:
        """Return why the kernel ended, by REST; None while it runs."""
        kernels = self.call("GET", "/aliquot/api/v1/kernels")["kernels"]
        found = next((kernel for kernel in kernels if kernel["id"] == kernel_id), None)
        return found and found.get("termination")

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(SECONDS)


class Tab:
    """A browser's websocket to a kernel. It keeps its session over reconnections, as JupyterLab's does."""

    def __init__(self, gateway: Gateway, kernel_id: str) -> None:
        self.gateway, self.kernel_id = gateway, kernel_id
        self.session = uuid.uuid4().hex
        self.seen: list[dict[str, Any]] = []
        self.doubled = 0
        self._known: set[str] = set()
        self._socket: websocket.WebSocket | None = None
        self.connect()

    def connect(self) -> None:
        url = f"ws{self.gateway.url[4:]}/api/kernels/{self.kernel_id}/channels?session_id={self.session}"
        headers = [f"Authorization: token {self.gateway.token}"]
        self._socket = websocket.create_connection(url, header=headers, timeout=SECONDS)

    def reconnect(self, gateway: Gateway) -> Tab:
        if self._socket is not None and self.gateway.process.poll() is not None:
            # Output from before its end is in our socket, as in a browser's.
            with contextlib.suppress(OSError, ValueError, websocket.WebSocketException):
                while True:
                    self.read()
        self.close()
        self.gateway = gateway
        self.connect()
        return self

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def send(self, kind: str, content: dict[str, Any], channel: str = "shell", parent: Any = None) -> str:
        message_id = uuid.uuid4().hex
        header = {"msg_id": message_id, "msg_type": kind, "session": self.session, "username": "", "version": "5.3"}
        message = {"header": header, "parent_header": parent or {}, "metadata": {}, "content": content}
        assert self._socket is not None
        self._socket.send(json.dumps({**message, "channel": channel, "buffers": []}))
        return message_id

    def execute(self, code: str, *, stdin: bool = False) -> str:
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": stdin}
        return self.send("execute_request", content)

    def read(self) -> dict[str, Any]:
        """Return the next message.

        A message that a killed gateway wrote and did not acknowledge comes twice: this method
        returns it once.
        """
        assert self._socket is not None
        while (message_id := (message := json.loads(self._socket.recv()))["header"]["msg_id"]) in self._known:
            self.doubled += 1
        self._known.add(message_id)
        self.seen.append(message)
        return dict(message)

    def find(self, message_id: str, kind: str) -> dict[str, Any]:
        """Return the first message of this kind that answers the request; read on until it comes."""
        known = list(self.seen)
        while True:
            for message in known:
                if message["parent_header"].get("msg_id") == message_id and message["msg_type"] == kind:
                    return message
            known = [self.read()]

    def wait_for_text(self, text: str) -> None:
        while text not in "".join(m["content"].get("text", "") for m in self.seen):
            self.read()

    def text(self, message_id: str) -> str:
        """Return all output of the cell; read on until it has ended."""
        while not any(self._is_idle(message, message_id) for message in self.seen):
            self.read()
        found = (m for m in self.seen if m["parent_header"].get("msg_id") == message_id and m["msg_type"] == "stream")
        return "".join(message["content"]["text"] for message in found)

    def run(self, code: str) -> str:
        message_id = self.execute(code)
        reply = self.find(message_id, "execute_reply")
        assert reply["content"]["status"] == "ok", reply
        return self.text(message_id).strip()

    @staticmethod
    def _is_idle(message: dict[str, Any], message_id: str) -> bool:
        is_its = message["parent_header"].get("msg_id") == message_id and message["msg_type"] == "status"
        return is_its and message["content"]["execution_state"] == "idle"


class Node:
    """A runtime folder, its agent on the software GPU, and all gateways that ran here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runtime = RuntimeDir(folder / "run")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER_", "ALIQUOT_", "XDG_"))}
        places = {"JUPYTER_RUNTIME_DIR": "jupyter", "JUPYTER_DATA_DIR": "data", "JUPYTER_CONFIG_DIR": "config"}
        self.environment |= {name: str(folder / place) for name, place in places.items()}
        self.environment |= {"ALIQUOT_SOFTGPU_CONTEXT": "0"}
        self.environment |= {"ALIQUOT_RUNTIME_DIR": str(folder / "run"), "IPYTHONDIR": str(folder / "ipython")}
        self.gateways: list[Gateway] = []
        self._agent: subprocess.Popen[bytes] | warm_start.WarmProcess | None = None
        self.root = folder / "notebooks"
        self.root.mkdir()

    # ---- the agent

    def start_agent(self, memory: str = "4GiB", *options: str) -> None:
        command = [
            sys.executable,
            "-m",
            "jupyter_aliquot.gpu_hook.agent",
            "--driver",
            "softgpu",
            "--softgpu-memory",
            memory,
            "--overcommit",
            "1",
        ]
        command += options
        with (self.folder / "agent.log").open("a") as log:
            files = {"env": self.environment, "stdout": log, "stderr": log}
            self._agent = warm_start.start(warm_start.AGENT, command[1:], **files)
        wait_until(self._agent_answers)

    def kill_agent(self, how: int = signal.SIGKILL) -> None:
        os.kill(self.agent_pid, how)
        assert self._agent is not None
        self._agent.wait()

    @property
    def agent_pid(self) -> int:
        assert self._agent is not None
        return self._agent.pid

    def _agent_answers(self) -> bool:
        with contextlib.suppress(AgentUnreachable):
            return bool(query("status", runtime_dir=self.runtime.path))
        return False

    def held(self) -> dict[str, int]:
        """Return the agent's ledger: kernel to hundredths of a GPU."""
        kernels = query("status", runtime_dir=self.runtime.path)["kernels"]
        return {kernel["kernel_id"]: kernel["hundredths"] for kernel in kernels}

    # ---- gateways

    def serve(self, *options: str, port: int = 0, name: str = "test", program: str = "") -> Gateway:
        """Start a gateway.

        ``program``: Python that starts it in its own way, instead of `aliquot serve`.
        """
        start = ["-c", program] if program else ["-m", "jupyter_aliquot.gateway.cli.app", "serve"]
        port = port or free_port()
        command = [sys.executable, *start, f"--port={port}", "--ServerApp.port_retries=0", "--ip=127.0.0.1"]
        command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={self.root}", "--allow-root"]
        command += ["--Aliquot.start_agent=False", *([f"--Aliquot.gateway_name={name}"] if name else []), *options]
        return Gateway(self, port, command)

    def succeed(self, gateway: Gateway, *options: str, program: str = "") -> Gateway:
        """Start the next life of a gateway that has ended."""
        return self.serve(*options, port=gateway.port, program=program).wait_until_up()

    # ---- processes

    def relays(self) -> dict[str, RelayRecord]:
        return {relay.kernel_id: relay for relay in read_relay_records(self.runtime) if relay.is_alive}

    def records(self) -> set[str]:
        return {path.stem for path in self.folder.glob("data/aliquot/gateways/*/kernels/*.json")}

    def processes(self) -> dict[str, list[int]]:
        """Return all processes of each kernel, by the variable that its children inherit."""
        found: dict[str, list[int]] = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if not entry.name.isdigit():
                    continue
                environment = (entry / "environ").read_bytes().split(b"\0")
                values = dict(line.split(b"=", 1) for line in environment if b"=" in line)
                if values.get(b"ALIQUOT_RUNTIME_DIR", b"").decode() == str(self.runtime.path):
                    kernel = values.get(b"ALIQUOT_KERNEL_ID", b"").decode()
                    if kernel:
                        found.setdefault(kernel, []).append(int(entry.name))
        return found

    def close(self) -> None:
        for gateway in self.gateways:
            if gateway.process.poll() is None:
                gateway.process.kill()
            gateway.process.wait()
        self._end_relays()
        if self._agent is not None:
            self._agent.terminate()
            self._agent.wait()

    def end_relay_host(self) -> None:
        """End the relay host; its relays go on. Does nothing without a relay host."""
        try:
            host = int((self.folder / "run" / "relay.lock").read_text().split()[0])
            os.kill(host, signal.SIGTERM)
        except (OSError, ValueError, IndexError):
            return
        wait_until(lambda: not Path(f"/proc/{host}").exists())

    def _end_relays(self) -> None:
        """End all relays, the host first: it would replace a relay that is killed."""
        self.end_relay_host()
        for relay in read_relay_records(self.runtime):
            for process in (relay, relay.kernel):
                if process is not None and is_process(process.pid, process.start_time_ticks):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGKILL)


@pytest.fixture
def a_machine() -> Iterator[Node]:
    """A machine without an agent: plain kernels run."""
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    node = Node(folder)
    yield node
    node.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def a_node(a_machine: Node) -> Node:
    """A machine with an agent and a software GPU of 4 GiB."""
    a_machine.start_agent()
    return a_machine


@pytest.fixture
def open_tab() -> Iterator[Callable[[Gateway, str], Tab]]:
    tabs: list[Tab] = []

    def open_one(gateway: Gateway, kernel_id: str) -> Tab:
        tabs.append(Tab(gateway, kernel_id))
        return tabs[-1]

    yield open_one
    for tab in tabs:
        with contextlib.suppress(Exception):
            tab.close()


@pytest.fixture
def eventually() -> Callable[..., Any]:
    return wait_until


@pytest.fixture(scope="session")
def world() -> Any:
    """Return the classes above, for modules that set their scene once."""

    class World:
        pass

    World.Node, World.Tab, World.Refusal = Node, Tab, Refusal  # type: ignore[attr-defined]
    World.wait_until = staticmethod(wait_until)  # type: ignore[attr-defined]
    return World
