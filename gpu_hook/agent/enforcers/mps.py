"""Memory limits of NVIDIA's Multi-Process Service, experimental.

Each process gets its limits from its environment, when it connects. A fatal error of one client
ends all clients of that device.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from jupyter_aliquot.gpu_hook.agent.devices.mps_daemon import (
    PERCENTAGE,
    PIPE_DIRECTORY,
    MpsDaemon,
    default_pipe_directory,
    environment_of,
)
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.gpu_hook.protocol import codec as protocol

from .base import KernelLimits

_PINNED = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
_MIB = 1 << 20


class MpsEnforcer:
    """Implements ``base.Enforcer``.

    A control daemon must run already; we neither start nor end it.
    """

    name = "mps"
    word = protocol.Enforcer.MPS

    def __init__(self, pipe_directory: Path | None = None, proc: Path = Path("/proc")) -> None:
        self._daemon = MpsDaemon(pipe_directory or default_pipe_directory())
        self._proc = proc
        self._told: dict[str, tuple[str, ...]] = {}

    def unavailable(self) -> str:
        return self._daemon.unavailable()

    def environment(self, parts: Sequence[Part]) -> Mapping[str, str]:
        """Return the variables with the limits of the kernel's own devices, by ordinal.

        One ordinal that is not there makes MPS drop all of the limits.
        """
        limits = ",".join(f"{ordinal}={part.quota_bytes // _MIB}M" for ordinal, part in enumerate(parts))
        return {
            PIPE_DIRECTORY: os.fspath(self._daemon.pipe_directory),
            _PINNED: limits,
            # One figure for all devices, and a ceiling: the largest share, or a whole device would be cut to a part.
            PERCENTAGE: str(max(part.hundredths for part in parts)),
        }

    def hold(self, limits: KernelLimits) -> tuple[str, ...]:
        """Report each drift once.

        A process reads its limit when it connects, so that it cannot be repaired.
        """
        want = self.environment(limits.parts)
        drifted = []
        for pid in limits.pids:
            found = environment_of(pid, self._proc)
            wrong = sorted(name for name in want if found is not None and found.get(name) != want[name])
            if wrong:
                drifted.append(f"pid {pid} was started with another {', '.join(wrong)}; it holds until it is restarted")
        is_news = self._told.get(limits.kernel_id) != tuple(drifted)
        self._told[limits.kernel_id] = tuple(drifted)
        return tuple(drifted) if is_news else ()

    def release(self, kernel_id: str) -> None:
        self._told.pop(kernel_id, None)
