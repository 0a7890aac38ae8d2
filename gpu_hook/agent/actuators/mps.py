"""NVIDIA's Multi-Process Service, experimental: kernels of one class share a server of their own.

They run side by side. This module gives the class's part of the environment; the agent finds the
running daemons at its start. It neither starts nor ends a daemon.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from jupyter_aliquot.gpu_hook.agent.devices.mps_daemon import PERCENTAGE, PIPE_DIRECTORY, MpsDaemon, environment_of
from jupyter_aliquot.gpu_hook.placement.placement import WHOLE

from .base import KernelCompute

PRIORITY = "CUDA_MPS_CLIENT_PRIORITY"
CLASSES = ("production", "opportunistic")
_NORMAL, _BELOW_NORMAL = "0", "1"
_OURS = (PIPE_DIRECTORY, PERCENTAGE, PRIORITY)


class Mps:
    """Implements ``base.Actuator``.

    ``folder`` holds a pipe directory for each class that has a control daemon. A class without one
    goes without MPS: production never shares a server, and its fate, with opportunistic kernels.
    """

    name = "mps"
    is_experimental = True
    warning = (
        "a fatal fault of one program, an illegal access for example, ends all kernels of its class on that GPU; "
        "the other class has another server"
    )

    def __init__(self, folder: Path, proc: Path = Path("/proc")) -> None:
        self._daemons = {name: MpsDaemon(folder / name) for name in CLASSES}
        self._proc = proc
        self._problems: dict[str, str] = {}

    def unavailable(self) -> str:
        self._problems = {name: daemon.unavailable() for name, daemon in self._daemons.items()}
        if not all(self._problems.values()):
            return ""
        return "; ".join(f"{name}: {problem}" for name, problem in self._problems.items())

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the classes that had a server at the last look."""
        return tuple(name for name in CLASSES if not self._problems.get(name, "not looked yet"))

    def environment(self, kernel: KernelCompute) -> Mapping[str, str]:
        """Return the variables of MPS; empty for a class without a server.

        The percentage is one figure for all of a kernel's devices: the largest, or a whole device
        would be cut.
        """
        if kernel.workload_class not in self.classes:
            return {}
        percent = max(part.hundredths for part in kernel.parts) if kernel.is_capped and kernel.parts else WHOLE
        return {
            PIPE_DIRECTORY: os.fspath(self._daemons[kernel.workload_class].pipe_directory),
            PERCENTAGE: str(percent),
            PRIORITY: _NORMAL if kernel.is_production else _BELOW_NORMAL,
        }

    def needs_restart(self, kernel: KernelCompute, pids: Sequence[int]) -> tuple[str, ...]:
        """Return the settings that differ; a process reads all three when it connects."""
        want = self.environment(kernel)
        return tuple(text for pid in pids if (text := self._difference(pid, want)))

    def _difference(self, pid: int, want: Mapping[str, str]) -> str:
        found = environment_of(pid, self._proc)
        if found is None:
            return ""
        wrong = [name for name in _OURS if found.get(name) != want.get(name)]
        shown = ", ".join(f"{name}={found.get(name, '')}, now {want.get(name, 'none')}" for name in wrong)
        return f"pid {pid} was started with {shown}; it holds until the kernel is restarted" if wrong else ""
