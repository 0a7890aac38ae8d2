"""A control daemon of NVIDIA's Multi-Process Service, by its pipe directory.

This module finds out whether it is there and ours; it neither starts nor ends a daemon. Clients
read their settings from their environment, when they connect.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_CONTROL = "nvidia-cuda-mps-control"
_DEFAULT_PIPE_DIRECTORY = Path("/tmp/nvidia-mps")  # NVIDIA's own default
_ANSWER_SECONDS = 5.0


def default_pipe_directory() -> Path:
    return Path(os.environ.get(PIPE_DIRECTORY) or _DEFAULT_PIPE_DIRECTORY)


class MpsDaemon:
    def __init__(self, pipe_directory: Path) -> None:
        self.pipe_directory = pipe_directory

    def unavailable(self) -> str:
        """Return why our kernels cannot connect; empty when they can.

        May block for some seconds.
        """
        program = shutil.which(_CONTROL)
        if program is None:
            return f"{_CONTROL} is not on PATH"
        try:
            (self.pipe_directory / "control").stat()
            owner = self.pipe_directory.stat().st_uid
        except OSError as error:
            why = f"no control daemon has its pipe in {self.pipe_directory} ({error.strerror})"
            return f"{why}; start one, or set {PIPE_DIRECTORY}"
        if owner != os.geteuid():
            return (
                f"the control daemon of {self.pipe_directory} is uid {owner}'s and kernels are uid {os.geteuid()}'s: "
                "it would refuse them; run it as that user"
            )
        return self._ask(program)

    def _ask(self, program: str) -> str:
        env = {**os.environ, PIPE_DIRECTORY: os.fspath(self.pipe_directory)}
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
            return f"the control daemon of {self.pipe_directory} did not answer within {_ANSWER_SECONDS:g} s"
        except OSError as error:
            return f"{program} cannot be run: {error.strerror}"
        said = (done.stderr or done.stdout).strip().splitlines()
        return f"the control daemon of {self.pipe_directory} does not answer: {said[-1:]}" if done.returncode else ""


def environment_of(pid: int, proc: Path = Path("/proc")) -> dict[str, str] | None:
    """Return the environment that a process was started with.

    None if it is unreadable, or the process is gone.
    """
    try:
        words = (proc / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return dict(os.fsdecode(word).split("=", 1) for word in words if b"=" in word)
