"""A node with software GPUs whose kernels run GPU loads.

It has a real agent, real hooks, and the GPU's own busy counters.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import warm_start
from gpu_load import GpuLoad, Load, compile_load

from jupyter_aliquot.gpu_hook.agent.base.processes import start_time_ticks
from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.client.client import AgentClientError, query
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, softgpu_driver, softgpu_state_path

GIB = 1 << 30
AGENT = ("-m", "jupyter_aliquot.gpu_hook.agent")
Found = TypeVar("Found")


def until(claim: Callable[[], Found], seconds: float = 60) -> Found:
    deadline = time.monotonic() + seconds
    while not (found := claim()):
        assert time.monotonic() < deadline, "the claim did not come true in time"
        time.sleep(0.02)
    return found


class ComputeNode:
    """A node whose agent may be killed and started again; its loads live on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_dir = folder / "run"
        self.program = compile_load(folder, softgpu_driver().cuda)
        self.loads: list[GpuLoad] = []
        self.agent: subprocess.Popen[bytes] | warm_start.WarmProcess | None = None
        self.options: tuple[str, ...] = ()
        self.program_of_agent = AGENT

    def start_agent(self, *options: str, program: tuple[str, ...] | None = None) -> None:
        """Start the agent; without arguments with those of the last start.

        ``program``: arguments of Python that run an agent.
        """
        self.options = options or self.options
        self.program_of_agent = program or self.program_of_agent
        words = [*self.program_of_agent, "--driver", "softgpu", "--softgpu-memory", "4GiB", "--overcommit", "1"]
        words += ["--runtime-dir", str(self.run_dir), "--log-file", str(self.folder / "agent.log"), *self.options]
        # Another program may change modules before others import them.
        imports = warm_start.AGENT if self.program_of_agent == AGENT else ()
        self.agent = warm_start.start(imports, words)
        until(self._answers)

    def kill_agent(self) -> None:
        assert self.agent is not None
        self.agent.kill()
        self.agent.wait()

    def load(self, kernel_id: str, load: Load, workload_class: str = "production", hundredths: int = 50) -> GpuLoad:
        """Start another load of a kernel, and make the kernel if it does not exist."""
        grant = query(
            "reserve",
            runtime_dir=self.run_dir,
            kernel_id=kernel_id,
            owner="ada",
            hundredths=hundredths,
            memory_limit=None,
            workload_class=workload_class,
            label="",
        )["grant"]
        granted = {name.removesuffix("_PREPEND"): value for name, value in grant["env"].items()}
        running = GpuLoad(self.program, load, {**os.environ, **granted})
        self.loads.append(running)
        ticks = start_time_ticks(running.pid)
        query("bind", runtime_dir=self.run_dir, kernel_id=kernel_id, pid=running.pid, start_time_ticks=ticks)
        running.go()
        return running

    def status(self) -> dict[str, Any]:
        return query("status", runtime_dir=self.run_dir)

    def compute(self, kernel_id: str, device: int = 0) -> dict[str, Any]:
        found = self.on_device(kernel_id, device)["compute"]
        return {} if found is None else dict(found)

    def on_device(self, kernel_id: str, device: int = 0) -> dict[str, Any]:
        kernel = next(kernel for kernel in self.status()["kernels"] if kernel["kernel_id"] == kernel_id)
        return dict(kernel["devices"][device])

    def busy_seconds(self, *kernel_ids: str) -> tuple[float, ...]:
        """Return each kernel's busy seconds, by the GPU's last sample."""
        kernels = {kernel["kernel_id"]: kernel for kernel in self.status()["kernels"]}
        return tuple(kernels[name]["devices"][0]["busy_seconds"] for name in kernel_ids)

    def busy_growth(self, *kernel_ids: str, seconds: float) -> tuple[float, ...]:
        """Return each kernel's growth while all of them together had so many more seconds."""
        first = self.busy_seconds(*kernel_ids)

        def grown() -> tuple[float, ...] | None:
            growth = tuple(b - a for a, b in zip(first, self.busy_seconds(*kernel_ids), strict=True))
            return growth if sum(growth) >= seconds else None

        found = until(lambda: grown() or (), seconds=120)
        return found

    def close(self) -> None:
        for load in self.loads:
            load.kill()
        if self.agent is not None and self.agent.poll() is None:
            self.agent.send_signal(signal.SIGTERM)
            try:
                self.agent.wait(60)
            finally:
                self.agent.kill()
                self.agent.wait()
        remove_state(softgpu_state_path(RuntimeDir(self.run_dir)))

    def _answers(self) -> bool:
        assert self.agent is not None
        assert self.agent.poll() is None, (self.folder / "agent.log").read_text()
        try:
            return bool(query("hello", runtime_dir=self.run_dir, version=1, name="test"))
        except AgentClientError:
            return False
