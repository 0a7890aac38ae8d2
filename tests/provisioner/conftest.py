"""A node agent with stub devices, kernelspecs as files, and clients that start kernels."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import warm_start
from jupyter_client.kernelspec import KernelSpecManager

from jupyter_aliquot.gpu_hook.client.client import AgentUnreachable, query
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.relay.client.control import read_relay_records, stop_relay

AGENT = Path(__file__).parent / "agent_with_stub_devices.py"


class Node:
    """A runtime folder, and the agent in it once it is started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | warm_start.WarmProcess | None = None

    def start(self) -> None:
        with open(self.folder / "stderr", "ab") as log:
            words = [str(AGENT), "--runtime-dir", str(self.folder)]
            self._process = warm_start.start(warm_start.AGENT, words, stderr=log)
        wait_until(self.answers)

    def stop(self, how: int = signal.SIGTERM) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(60)

    def answers(self) -> bool:
        try:
            query("status", runtime_dir=self.folder)
        except AgentUnreachable:
            return False
        return True

    def kernels(self) -> dict[str, Any]:
        return {kernel["kernel_id"]: kernel for kernel in query("status", runtime_dir=self.folder)["kernels"]}


def wait_until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)
    return found


@pytest.fixture
def until() -> Callable[..., Any]:
    return wait_until


@pytest.fixture
def no_node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """A runtime folder without an agent."""
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    folder.chmod(0o700)
    monkeypatch.setenv("ALIQUOT_RUNTIME_DIR", str(folder))
    node = Node(folder)
    yield node
    node.stop()
    end_relays(RuntimeDir(folder))
    shutil.rmtree(folder)


def end_relays(runtime: RuntimeDir) -> None:
    """End the relays that a test left, and show their output."""
    for record in read_relay_records(runtime):
        asyncio.run(stop_relay(record))
    if runtime.relay_log.exists():
        print(runtime.relay_log.read_text())
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        host = os.pidfd_open(int(runtime.relay_lock.read_text().split()[0]))
        signal.pidfd_send_signal(host, signal.SIGTERM)
        select.select([host], [], [], 60)
        os.close(host)


@pytest.fixture
def a_node(no_node: Node) -> Node:
    no_node.start()
    return no_node


@pytest.fixture
def kernelspecs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KernelSpecManager:
    folder = tmp_path / "share" / "kernels"
    python = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    for name, argv, gpus in (
        ("python3.gpu-0.5", python, "0.5"),
        ("python3.gpu-1", python, "1"),
        ("python3.gpu-3", python, "3"),
        ("python3.gpu-0", python, "0"),
        ("light.gpu-0.5", ["/bin/sleep", "1000"], "0.5"),
        ("broken.gpu-0.5", ["/nonexistent/program"], "0.5"),
        ("plain", python, ""),
    ):
        stanza = {"kernel_provisioner": {"provisioner_name": "aliquot", "config": {"gpus": gpus} if gpus else {}}}
        spec = {"argv": argv, "display_name": name, "language": "python", "metadata": stanza}
        (folder / name).mkdir(parents=True)
        (folder / name / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(folder.parent))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    return KernelSpecManager(kernel_dirs=[str(folder)])
