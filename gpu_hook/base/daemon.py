"""Background processes that outlive their starter: the node agent and the relay host."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.gpu_hook.paths import private_opener

_LOG_LINES = 5
# A kernel's environment carries these. They would lead the agent to the hook instead of the driver, and from the relay
# host into other kernels' relays.
_NOT_INHERITED = ("LD_PRELOAD", "LD_AUDIT", "CUDA_VISIBLE_DEVICES", "ALIQUOT_KERNEL_DIR", "ALIQUOT_SOFTGPU_STATE")


@dataclass(frozen=True)
class Daemon:
    """A process that was started in the background.

    *name* stands before the errors in its *log*.
    """

    process: subprocess.Popen[bytes]
    name: str
    log: Path
    log_start: int

    def last_words(self) -> str:
        """Return the last lines of its output.

        The log may hold the lines of earlier processes.
        """
        with contextlib.suppress(OSError), open(self.log, "rb") as log:
            log.seek(self.log_start)
            lines = log.read().decode(errors="replace").splitlines()
            prefix = f"{self.name}: "
            own = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
            return own[-1] if own else " | ".join(lines[-_LOG_LINES:]) or f"it left nothing in {self.log}"
        return f"its log {self.log} cannot be read"


def start_daemon(command: Sequence[str], name: str, log: Path) -> Daemon:
    """Start a process in a session of its own, with its output appended to *log*.

    Raises OSError.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    with open(log, "ab", opener=private_opener) as file:
        log_start = file.tell()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            cwd="/",
            env=environment,
        )
    return Daemon(process, name, log, log_start)


def wait_aside(process: subprocess.Popen[bytes]) -> None:
    """Wait for the process in a thread.

    It may outlive this one; if it ends before, it must not stay as a zombie.
    """
    threading.Thread(target=process.wait, name=f"aliquot-child-{process.pid}", daemon=True).start()


def answers(path: Path) -> bool:
    """Return whether a process listens at this socket. A socket that refuses is stale."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1)
        try:
            connection.connect(os.fspath(path))
        except OSError:
            return False
        return True
