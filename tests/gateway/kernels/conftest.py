"""A Jupyter server with our kernel manager, on the real node agent with stub devices."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import warm_start
from traitlets import default
from traitlets.config import Config

from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.kernels.manager import AliquotKernelManager
from jupyter_aliquot.gateway.kernels.services import KernelServices
from jupyter_aliquot.gateway.node.connection import AgentLink
from jupyter_aliquot.gateway.node.grant_server import LocalSocket
from jupyter_aliquot.gateway.scheduling.admission import Admission, AdmissionSettings
from jupyter_aliquot.gpu_hook.client.client import AgentUnreachable, query
from jupyter_aliquot.gpu_hook.paths import RuntimeDir

LOG = logging.getLogger("aliquot-test")
AGENT = Path(__file__).parents[2] / "provisioner" / "agent_with_stub_devices.py"


class Node:
    """A runtime folder and the agent in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | warm_start.WarmProcess | None = None

    def start(self) -> None:
        words = [str(AGENT), "--runtime-dir", str(self.folder)]
        with open(self.folder / "stderr", "ab") as log:
            self._process = warm_start.start(warm_start.AGENT, words, stderr=log)
        deadline = time.monotonic() + 60
        while not self.answers():
            is_starting = self._process.poll() is None and time.monotonic() < deadline
            assert is_starting, (self.folder / "stderr").read_text()
            time.sleep(0.02)

    def stop(self, how: int = signal.SIGTERM) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(60)

    def kernels(self) -> dict[str, Any]:
        return {kernel["kernel_id"]: kernel for kernel in query("status", runtime_dir=self.folder)["kernels"]}

    def reserve_elsewhere(self, kernel_id: str, hundredths: int) -> subprocess.Popen[bytes]:
        """Start another program of this node that holds a share until the test kills it."""
        code = (
            "import asyncio, sys\nfrom jupyter_aliquot.gpu_hook.client.client import AgentClient\n"
            "async def main():\n"
            "    client = await AgentClient.connect(sys.argv[1])\n"
            "    await client.reserve(sys.argv[2], owner='else', hundredths=int(sys.argv[3]))\n"
            "    print('held', flush=True)\n    await asyncio.sleep(1000)\nasyncio.run(main())\n"
        )
        command = [sys.executable, "-c", code, str(self.folder), kernel_id, str(hundredths)]
        holder = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert holder.stdout is not None
        with holder.stdout as told:
            assert told.readline() == b"held\n"
        return holder

    def release_elsewhere(self, kernel_id: str, holder: subprocess.Popen[bytes]) -> None:
        """End such a program, which gives its share back: the agent would await one that was killed."""
        query("release", runtime_dir=self.folder, kernel_id=kernel_id)
        holder.kill()
        holder.wait()

    def answers(self) -> bool:
        try:
            query("status", runtime_dir=self.folder)
        except AgentUnreachable:
            return False
        return True


@pytest.fixture
def a_node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    folder.chmod(0o700)
    monkeypatch.setenv("ALIQUOT_RUNTIME_DIR", str(folder))
    node = Node(folder)
    node.start()
    yield node
    node.stop()
    shutil.rmtree(folder)


@pytest.fixture
def kernelspecs(jp_environ: Any, jp_data_dir: Path) -> Path:
    """Write the kernelspecs: python3 in a few sizes, and a kernel that cannot start."""
    folder = jp_data_dir / "kernels"
    python = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    write_spec(folder, "python3", python)
    for gpus in ("0.25", "0.5", "1", "3"):
        write_spec(folder, f"python3.gpu-{gpus}", python, gpus)
    write_spec(folder, "broken.gpu-0.5", ["/nonexistent/program", "{connection_file}"], "0.5")
    write_spec(folder, "broken", ["/nonexistent/program", "{connection_file}"])
    write_spec(folder, "ending.gpu-0.5", [sys.executable, "-c", "raise SystemExit(3)", "{connection_file}"], "0.5")
    idle = "import sys, signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(1000)"
    write_spec(folder, "idle.gpu-0.25", [sys.executable, "-c", idle, "{connection_file}"], "0.25")
    for gpus in ("0.25", "0.5"):
        write_spec(folder, f"light.gpu-{gpus}", ["/bin/sleep", "1000"], gpus)
    return folder


def write_spec(folder: Path, name: str, argv: list[str], gpus: str = "") -> None:
    spec: dict[str, Any] = {"argv": argv, "display_name": name, "language": "python", "metadata": {}}
    if gpus:
        spec["metadata"]["kernel_provisioner"] = {"provisioner_name": "aliquot", "config": {"gpus": gpus}}
    (folder / name).mkdir(parents=True)
    (folder / name / "kernel.json").write_text(json.dumps(spec))


@pytest.fixture
def link(a_node: Node) -> AgentLink:
    return AgentLink(a_node.folder, SystemClock(), None, LOG)


@pytest.fixture
def admission(link: AgentLink) -> Admission:
    return Admission(link, SystemClock(), AdmissionSettings(agent_loss_seconds=3.0, recheck_seconds=1.0), LOG)


@pytest.fixture
def services(admission: Admission) -> KernelServices:
    """Return the services that the extension would make for the kernel manager."""
    return KernelServices(admission=admission)


@pytest.fixture
def jp_server_config(services: KernelServices) -> Config:
    class Manager(AliquotKernelManager):
        @default("services")
        def _given(self) -> KernelServices:
            return services

    return Config({"ServerApp": {"jpserver_extensions": {}, "kernel_manager_class": Manager}})


class Gateway:
    """The parts that the extension would join, joined here."""

    def __init__(self, server: Any, node: Node, link: AgentLink, admission: Admission) -> None:
        self.node = node
        self.kernels = server.kernel_manager
        self.link, self.admission = link, admission
        self.socket = LocalSocket(RuntimeDir(node.folder), admission, LOG, lambda _: frozenset())

    async def start(self) -> None:
        await self.link.start()
        await self.admission.start()
        await self.socket.start()

    async def stop(self) -> None:
        await self.kernels.shutdown_all(now=True)
        await self.socket.stop()
        await self.admission.stop()
        await self.link.stop()

    def held(self) -> set[str]:
        return {holding.grant.kernel_id for holding in self.admission.snapshot().holdings}


@pytest.fixture
def a_gateway(
    a_node: Node, link: AgentLink, admission: Admission, kernelspecs: Path, jp_serverapp: Any, jp_asyncio_loop: Any
) -> Iterator[Gateway]:
    gateway = Gateway(jp_serverapp, a_node, link, admission)
    jp_asyncio_loop.run_until_complete(gateway.start())
    yield gateway
    jp_asyncio_loop.run_until_complete(gateway.stop())
    # A grant for a start whose client had left returns when the agent sees the connection's end.
    deadline = time.monotonic() + 60
    while a_node.answers() and (left := a_node.kernels()):
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


@pytest.fixture
def until() -> Callable[..., Awaitable[Any]]:
    """Return a function that waits for a condition, plain or awaitable, up to a deadline."""

    async def wait(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        deadline = time.monotonic() + seconds
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            assert time.monotonic() < deadline, f"not within {seconds} s"
            await asyncio.sleep(0.02)

    return wait


@pytest.fixture
def environment() -> Callable[[int], dict[str, str]]:
    """Return a function that reads the environment that a process was started with."""

    def read(pid: int) -> dict[str, str]:
        entries = Path(f"/proc/{pid}/environ").read_text().split("\0")
        return dict(entry.split("=", 1) for entry in entries if "=" in entry)

    return read


@pytest.fixture
def is_alive() -> Callable[[int], bool]:
    def look(pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    return look
