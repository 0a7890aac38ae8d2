"""NVIDIA's Multi-Process Service: limits that each process gets by its environment, when it connects. Experimental.

Whoever asks for it should know that a fatal error of one client ends all clients of that device.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from aliquot.gpu_hook import protocol
from aliquot.gpu_hook.placement import Part

from .base import KernelLimits

PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
_PINNED = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
_PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_DEFAULT_PIPE_DIRECTORY = Path("/tmp/nvidia-mps")  # NVIDIA's own default
_CONTROL = "nvidia-cuda-mps-control"
_ANSWER_SECONDS = 5.0
_MIB = 1 << 20


class MpsEnforcer:
    """Implements ``base.Enforcer``. A control daemon must run already; we neither start nor end it."""

    name = "mps"
    word = protocol.Enforcer.MPS

    def __init__(self, pipe_directory: Path | None = None, proc: Path = Path("/proc")) -> None:
        self._pipe_directory = pipe_directory or Path(os.environ.get(PIPE_DIRECTORY) or _DEFAULT_PIPE_DIRECTORY)
        self._proc = proc
        self._told: dict[str, tuple[str, ...]] = {}

    def unavailable(self) -> str:
        program = shutil.which(_CONTROL)
        if program is None:
            return f"{_CONTROL} is not on PATH"
        try:
            (self._pipe_directory / "control").stat()
            owner = self._pipe_directory.stat().st_uid
        except OSError as error:
            why = f"no control daemon has its pipe in {self._pipe_directory} ({error.strerror})"
            return f"{why}; start one, or set {PIPE_DIRECTORY}"
        if owner != os.geteuid():
            return (
                f"the control daemon of {self._pipe_directory} is uid {owner}'s and kernels are uid {os.geteuid()}'s: "
                "it would refuse them; run it as that user"
            )
        return self._ask(program)

    def environment(self, parts: Sequence[Part]) -> Mapping[str, str]:
        """Ordinals are those of the kernel's own devices: one that is not there makes MPS drop all of the limits."""
        limits = ",".join(f"{ordinal}={part.quota_bytes // _MIB}M" for ordinal, part in enumerate(parts))
        return {
            PIPE_DIRECTORY: os.fspath(self._pipe_directory),
            _PINNED: limits,
            # One figure for all devices, and a ceiling: the largest share, or a whole device would be cut to a part.
            _PERCENTAGE: str(max(part.hundredths for part in parts)),
        }

    def hold(self, limits: KernelLimits) -> tuple[str, ...]:
        """A limit is read when a process connects, so that it cannot be mended: a drift is told once."""
        want = self.environment(limits.parts)
        drifted = []
        for pid in limits.pids:
            found = self._environment_of(pid)
            wrong = sorted(name for name in want if found is not None and found.get(name) != want[name])
            if wrong:
                drifted.append(f"pid {pid} was started with another {', '.join(wrong)}; it holds until it is restarted")
        is_news = self._told.get(limits.kernel_id) != tuple(drifted)
        self._told[limits.kernel_id] = tuple(drifted)
        return tuple(drifted) if is_news else ()

    def release(self, kernel_id: str) -> None:
        self._told.pop(kernel_id, None)

    def _ask(self, program: str) -> str:
        env = {**os.environ, PIPE_DIRECTORY: os.fspath(self._pipe_directory)}
        try:
            done = subprocess.run(
                [program],
                input="get_server_list\n",
                env=env,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_ANSWER_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"the control daemon of {self._pipe_directory} did not answer within {_ANSWER_SECONDS:g} s"
        except OSError as error:
            return f"{program} cannot be run: {error.strerror}"
        said = (done.stderr or done.stdout).strip().splitlines()
        return f"the control daemon of {self._pipe_directory} does not answer: {said[-1:]}" if done.returncode else ""

    def _environment_of(self, pid: int) -> dict[str, str] | None:
        """None when it cannot be read, or the process is gone."""
        try:
            words = (self._proc / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            return None
        return dict(os.fsdecode(word).split("=", 1) for word in words if b"=" in word)
