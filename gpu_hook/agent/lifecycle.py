"""Begin and end an agent: its lock, its files in the runtime folder, and its end when idle.

There is one agent per runtime folder.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from jupyter_aliquot.gpu_hook.base.daemon import answers
from jupyter_aliquot.gpu_hook.base.files import lock_while, open_lock, read_holder, replace_file, write_holder
from jupyter_aliquot.gpu_hook.paths import RuntimeDir

log = logging.getLogger(__name__)

_LOCK_SECONDS = 3.0  # an ending agent closes its socket first, and holds its lock a little longer
_RETRY_SECONDS = 0.05


class StartError(Exception):
    """The agent cannot start; the message is for the user."""


class AgentLock:
    """The lock agent.lock: its holder is the agent of the folder.

    The system releases it with the process.
    """

    def __init__(self, runtime: RuntimeDir) -> None:
        """Take the lock. Raises StartError when another agent holds it."""
        try:
            self._descriptor = open_lock(runtime.agent_lock)
        except OSError as error:
            raise StartError(f"cannot open {runtime.agent_lock}: {error.strerror}") from error
        deadline = time.monotonic() + _LOCK_SECONDS

        def may_wait() -> bool:
            return not answers(runtime.agent_socket) and time.monotonic() <= deadline

        if not lock_while(self._descriptor, may_wait, _RETRY_SECONDS):
            pid = read_holder(self._descriptor) or "unknown"
            os.close(self._descriptor)
            raise StartError(
                f"an agent runs on {runtime.path} already (pid {pid}); use it, end it, or set ALIQUOT_RUNTIME_DIR"
            )
        write_holder(self._descriptor)

    def close(self) -> None:
        """Let another agent have the folder. The file stays: removing a lock file is a race."""
        os.close(self._descriptor)


def write_agent_info(runtime: RuntimeDir, info: dict[str, Any]) -> None:
    """Replace agent.json. Raises OSError."""
    text = json.dumps({"pid": os.getpid(), "started": time.time(), **info}) + "\n"
    replace_file(runtime.agent_info, text, is_durable=False)


def raise_descriptor_limit() -> None:
    """Raise the limit of descriptors.

    Each process of each kernel costs two descriptors, and each kernel one: the usual 1,024 are soon
    used up.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def log_to(path: Path | None) -> None:
    """Log to a file, or to stderr. Raises StartError."""
    try:
        handler = logging.StreamHandler(_own_stderr() if path is None else _open_log(path))
    except OSError as error:
        raise StartError(f"cannot write the log {path}: {error.strerror}") from error
    handler.setFormatter(logging.Formatter("time=%(asctime)s level=%(levelname)s module=%(module)s %(message)s"))
    root = logging.getLogger("jupyter_aliquot")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False


def _open_log(path: Path) -> TextIO:
    """Open a log file for appending. Raises OSError.

    Only its owner may read a new one, since it names users and kernels.
    """
    return open(path, "a", buffering=1, encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600))


def _own_stderr() -> TextIO:
    """Return a stderr for the log.

    The agent captures the other one, to which a driver's library writes.
    """
    return open(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace")


def end_on_signals(end: asyncio.Event) -> None:
    """End the agent in order at SIGTERM and SIGINT.

    Its terminal's end does the same, unless nohup started it.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN or number is not signal.SIGHUP:
            loop.add_signal_handler(number, end.set)


async def end_when_idle(is_idle: Callable[[], bool], idle_seconds: float, end: asyncio.Event) -> None:
    """Set ``end`` when the agent was idle for so long."""
    loop = asyncio.get_running_loop()
    idle_since = loop.time()
    while True:
        if not is_idle():
            idle_since = loop.time()
        elif loop.time() - idle_since >= idle_seconds:
            log.info("event=idle seconds=%g", idle_seconds)
            end.set()
            return
        await asyncio.sleep(min(1.0, idle_seconds / 4))
