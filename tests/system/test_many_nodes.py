"""One gateway, its own node, and two nodes whose agents dial in: killed, partitioned, and unseen after a restart."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import warm_start
from cable import Cable

from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.client.client import query
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, softgpu_state_path

from .conftest import Server, answers, start_server

TOKEN = "a-token-of-agents-of-this-test"
Eventually = Callable[..., Any]


class RemoteNode:
    """A real agent on its own software GPU, behind a cable of its own."""

    def __init__(self, name: str, folder: Path, environment: dict[str, str], port: int) -> None:
        self.name, self.run_dir = name, folder / name
        self.cable = Cable(port)
        self._environment = {**environment, "ALIQUOT_RUNTIME_DIR": str(self.run_dir)}
        self._token_file, self._log = folder / "token", folder / f"{name}.log"
        self._kept: list[subprocess.Popen[bytes]] = []
        self.start()

    def start(self) -> None:
        words = ["-m", "jupyter_aliquot.gpu_hook.agent", "--driver", "softgpu", "--softgpu-memory", "1GiB"]
        words += ["--overcommit", "1", "--node", self.name, "--token-file", str(self._token_file)]
        words += ["--gateway", f"http://127.0.0.1:{self.cable.port}"]
        with self._log.open("a") as log:
            self.process = warm_start.start(warm_start.AGENT, words, env=self._environment, stdout=log, stderr=log)

    def hold_a_kernel(self) -> None:
        """Reserve a quarter of the GPU for a process, as a program of that machine does."""
        size = {"hundredths": 25, "memory_limit": None, "workload_class": "production"}
        query("reserve", runtime_dir=self.run_dir, kernel_id="k", owner="me", label="there", **size)
        keeper = subprocess.Popen(["sleep", "3600"])
        self._kept.append(keeper)
        ticks = int(Path(f"/proc/{keeper.pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
        query("bind", runtime_dir=self.run_dir, kernel_id="k", pid=keeper.pid, start_time_ticks=ticks)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=90)

    def close(self) -> None:
        self.cable.close()
        for keeper in self._kept:
            keeper.kill()
            keeper.wait()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=90)
        remove_state(softgpu_state_path(RuntimeDir(self.run_dir)))


@pytest.fixture
def server_options(a_folder: Path) -> list[str]:
    (a_folder / "token").write_text(f"{TOKEN}\n")
    return [f"--Aliquot.agent_token_file={a_folder / 'token'}", "--Limits.requests_per_second=0"]


@pytest.fixture
def two_nodes(
    a_server: Server, a_folder: Path, an_environment: dict[str, str], eventually: Eventually
) -> Iterator[tuple[RemoteNode, RemoteNode]]:
    port = urlsplit(a_server.url).port
    assert port is not None
    made: list[RemoteNode] = []
    try:
        for name in ("a", "b"):
            made.append(RemoteNode(name, a_folder, an_environment, port))
        eventually(lambda: states(a_server) == {"a": "connected", "b": "connected"})
        yield made[0], made[1]
    finally:
        for node in made:
            node.close()


def nodes_of(server: Server) -> dict[str, Any]:
    return {node["name"]: node for node in server.call("GET", "/aliquot/api/v1/nodes")["nodes"]}


def states(server: Server) -> dict[str, str]:
    return {name: node["state"] for name, node in nodes_of(server).items()}


def test_an_agent_that_is_killed_takes_no_kernel_with_it(
    a_server: Server, two_nodes: tuple[RemoteNode, RemoteNode], eventually: Eventually
) -> None:
    first, _ = two_nodes
    eventually(lambda: answers(first.run_dir))
    first.hold_a_kernel()
    eventually(lambda: nodes_of(a_server)["a"]["kernels"] == 1)
    mine = a_server.start("python3.gpu-0.25")
    assert mine.run("print(1)").text == "1\n"
    first.kill()
    eventually(lambda: states(a_server) == {"a": "unknown", "b": "connected"})
    gone = nodes_of(a_server)["a"]
    assert (gone["kernels"], gone["devices"][0]["reserved_gpus"]) == (1, 0.25), "unknown, not empty"
    assert mine.run("print(2)").text == "2\n"
    first.start()
    eventually(lambda: states(a_server)["a"] == "connected")
    assert nodes_of(a_server)["a"]["kernels"] == 1, "its own agent found it again"
    mine.end()


def test_a_partitioned_node_delays_nothing_elsewhere(
    a_server: Server, two_nodes: tuple[RemoteNode, RemoteNode], eventually: Eventually
) -> None:
    first, second = two_nodes
    second.cable.cut()
    eventually(lambda: answers(first.run_dir))
    first.hold_a_kernel()
    eventually(lambda: nodes_of(a_server)["a"]["kernels"] == 1)
    mine = a_server.start("python3.gpu-0.25")
    assert mine.run("print(1)").text == "1\n"
    eventually(lambda: states(a_server) == {"a": "connected", "b": "unknown"})
    assert len(nodes_of(a_server)["b"]["devices"]) == 1
    second.cable.mend()
    eventually(lambda: states(a_server) == {"a": "connected", "b": "connected"})
    assert mine.run("print(2)").text == "2\n"
    mine.end()


def test_a_restarted_gateway_says_which_nodes_it_does_not_see_yet(
    a_server: Server,
    two_nodes: tuple[RemoteNode, RemoteNode],
    a_folder: Path,
    an_environment: dict[str, str],
    server_options: list[str],
    eventually: Eventually,
) -> None:
    first, second = two_nodes
    second.cable.cut()
    a_server.stop()
    again = start_server(a_folder, an_environment, "again", *server_options)
    try:
        eventually(lambda: set(nodes_of(again)) == {"a", "b"})
        assert "has not connected since this server started" in nodes_of(again)["b"]["message"]
        port = urlsplit(again.url).port
        assert port is not None
        first.cable.target = second.cable.target = port
        eventually(lambda: states(again) == {"a": "connected", "b": "unknown"})
        second.cable.mend()
        eventually(lambda: states(again) == {"a": "connected", "b": "connected"})
    finally:
        again.stop()
