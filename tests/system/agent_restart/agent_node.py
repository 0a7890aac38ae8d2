"""A node whose agent a test can kill and start again, with kernels and processes in them.

The test drives the processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import warm_start

from jupyter_aliquot.gpu_hook.agent.base.processes import start_time_ticks
from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.client.client import AgentClientError, query
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, softgpu_state_path

MIB = 1 << 20
DEADLINE_SECONDS = 90.0
WORKER = Path(__file__).with_name("gpu_worker.py")


def until(claim: Callable[[], Any], seconds: float = DEADLINE_SECONDS) -> Any:
    """Wait for a claim to hold, and return what it found."""
    deadline = time.monotonic() + seconds
    while not (found := claim()):
        assert time.monotonic() < deadline, f"still {found!r} after {seconds} s"
        time.sleep(0.01)
    return found


class AgentNode:
    """A runtime folder with a software GPU of 4 GiB. ``options`` are further ones of the agent."""

    def __init__(self, *options: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
        self._options = options
        self._agent: subprocess.Popen[bytes] | warm_start.WarmProcess | None = None
        self._holders: dict[str, socket.socket] = {}
        self._closers: list[Callable[[], None]] = []

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "jupyter_aliquot.gpu_hook.agent",
            "--driver",
            "softgpu",
            "--softgpu-memory",
            "4GiB",
        ]
        command += ["--runtime-dir", str(self.folder), "--log-file", str(self.folder / "agent.log"), *self._options]
        self._agent = warm_start.start(warm_start.AGENT, command[1:])
        until(self._answers)

    def end(self, number: int = signal.SIGKILL) -> None:
        assert self._agent is not None
        self._agent.send_signal(number)
        self._agent.wait(DEADLINE_SECONDS)

    def signal(self, number: int) -> None:
        assert self._agent is not None
        self._agent.send_signal(number)

    def status(self) -> dict[str, Any]:
        return query("status", runtime_dir=self.folder)

    def log(self) -> str:
        return (self.folder / "agent.log").read_text()

    def reserve(self, kernel_id: str, hundredths: int) -> dict[str, Any]:
        """Reserve a part of the device; a connection holds it until the kernel is bound."""
        request = {"id": 1, "op": "reserve", "kernel_id": kernel_id, "owner": "ada", "hundredths": hundredths}
        holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        holder.connect(str(self.folder / "agent.sock"))
        self._holders[kernel_id] = holder
        self.at_end(holder.close)
        holder.sendall(json.dumps(request).encode() + b"\n")
        with holder.makefile("rb") as lines:
            grant: dict[str, Any] = json.loads(lines.readline())["grant"]
        return grant

    def leave(self, kernel_id: str) -> None:
        """Close the connection that alone holds a grant."""
        self._holders.pop(kernel_id).close()

    def bind(self, kernel_id: str, pid: int) -> None:
        query("bind", runtime_dir=self.folder, kernel_id=kernel_id, pid=pid, start_time_ticks=start_time_ticks(pid))
        self.leave(kernel_id)

    def release(self, kernel_id: str) -> None:
        query("release", runtime_dir=self.folder, kernel_id=kernel_id)

    def kernel(self, kernel_id: str) -> dict[str, Any]:
        return next((k for k in self.status()["kernels"] if k["kernel_id"] == kernel_id), {})

    def used_bytes(self) -> int:
        """Return the bytes in use, as the device itself reports them."""
        return int(self.status()["devices"][0]["used_bytes"])

    def at_end(self, close: Callable[[], None]) -> None:
        self._closers.append(close)

    def close(self) -> None:
        for close in reversed(self._closers):
            with contextlib.suppress(OSError):
                close()
        if self._agent is not None and self._agent.poll() is None:
            self.end()
        remove_state(softgpu_state_path(RuntimeDir(self.folder)))
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        assert self._agent is not None
        assert self._agent.poll() is None, self.log()
        try:
            return bool(query("hello", runtime_dir=self.folder, version=1, name="test"))
        except AgentClientError:
            return False


class Worker:
    """The test's end of a gpu_worker.

    The test listens first, then the process connects, wherever it runs and whatever its user is.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / name
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind(os.fspath(self.path))
        self.path.chmod(0o666)
        self._door.listen(1)
        self._door.settimeout(DEADLINE_SECONDS)

    def accept(self) -> None:
        connection, _ = self._door.accept()
        connection.settimeout(DEADLINE_SECONDS)
        self._lines = connection.makefile("rw")
        connection.close()

    def ask(self, name: str, *arguments: Any) -> Any:
        print(json.dumps([name, *arguments]), file=self._lines, flush=True)
        line = self._lines.readline()
        assert line, f"the worker at {self.path} ended"
        return json.loads(line)

    def rounds(self) -> int:
        return int(self.ask("tell")["rounds"])

    def close(self) -> None:
        self._door.close()
        with contextlib.suppress(AttributeError, OSError):
            self._lines.close()


class Kernel:
    """A reservation with its workers.

    ``pids`` are the host's, known when all of them are connected.
    """

    def __init__(self, node: AgentNode, kernel_id: str, hundredths: int, worker_count: int) -> None:
        self.node, self.id = node, kernel_id
        self.grant = node.reserve(kernel_id, hundredths)
        # Outside of the agent's folder: a container sees nothing of that but the kernel's own
        # folder.
        self.folder = Path(tempfile.mkdtemp(prefix="aqw-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.workers = [Worker(self.folder, f"w{i}") for i in range(worker_count)]
        node.at_end(lambda: shutil.rmtree(self.folder, ignore_errors=True))
        for worker in self.workers:
            node.at_end(worker.close)

    @property
    def sockets(self) -> list[str]:
        return [str(worker.path) for worker in self.workers]

    @property
    def environment(self) -> dict[str, str]:
        """Return a process's environment, as the grant names it."""
        return {name.removesuffix("_PREPEND"): value for name, value in self.grant["env"].items()}

    def start_processes(self) -> list[subprocess.Popen[bytes]]:
        """Start its workers as processes of this machine; the first is bound."""
        env = {**os.environ, **self.environment}
        processes = []
        for path in self.sockets:
            process = subprocess.Popen([sys.executable, str(WORKER), path], env=env, start_new_session=True)
            self.node.at_end(lambda process=process: (process.kill(), process.wait(), None)[-1])  # type: ignore[misc]
            processes.append(process)
        self.node.bind(self.id, processes[0].pid)
        self.accept()
        return processes

    def accept(self) -> None:
        for worker in self.workers:
            worker.accept()
        until(lambda: len(self.connected()) == len(self.workers))

    def connected(self) -> list[int]:
        """Return the host pids of its processes at the agent, also of an unconnected bound one."""
        return list(self.node.kernel(self.id).get("pids", ()))

    def record(self) -> dict[str, Any]:
        """Return the agent's record: bytes by device and of the host, peaks, refusals."""
        kernel = self.node.kernel(self.id)
        device, host = kernel["devices"][0], kernel["host_memory"]
        names = ("charged_bytes", "lent_bytes", "peak_bytes", "refusals")
        return {**{name: device[name] for name in names}, **{f"host_{name}": host[name] for name in names}}

    def wait_for_peaks_on_disk(self) -> None:
        """Wait until the agent's next look has written down the data that a kill would lose."""

        def is_written() -> bool:
            journal = json.loads((self.node.folder / "kernels" / self.id / "grant.json").read_text())
            record = self.record()
            written = (journal["tallies"][0]["peak_bytes"], journal["host_tally"]["peak_bytes"])
            return written == (record["peak_bytes"], record["host_peak_bytes"])

        until(is_written)


def work(kernels: Sequence[Kernel], is_wanted: bool) -> None:
    for kernel in kernels:
        for worker in kernel.workers:
            worker.ask("work", is_wanted)


def wait_for_rounds(kernels: Sequence[Kernel], more: int) -> None:
    """Wait until every worker has computed so many more rounds."""
    for worker in [worker for kernel in kernels for worker in kernel.workers]:
        before = worker.rounds()
        until(lambda worker=worker, before=before: worker.rounds() >= before + more)  # type: ignore[misc]


def problems(kernels: Sequence[Kernel]) -> list[str]:
    return [problem for kernel in kernels for worker in kernel.workers for problem in worker.ask("tell")["problems"]]


def wait_for_charges(kernels: Sequence[Kernel], records: Sequence[dict[str, Any]]) -> None:
    """Wait until the kernel is charged for all of it again."""
    names = ("charged_bytes", "host_charged_bytes")

    def charged(record: dict[str, Any]) -> list[Any]:
        return [record[name] for name in names]

    until(lambda: [charged(kernel.record()) for kernel in kernels] == [charged(record) for record in records])
