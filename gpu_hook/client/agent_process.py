"""Start a node agent in the background, only once for many callers, and find a running one."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.gpu_hook.base.daemon import Daemon, answers, start_daemon, wait_aside
from jupyter_aliquot.gpu_hook.base.files import LockHeldError, locked
from jupyter_aliquot.gpu_hook.paths import PathError, RuntimeDir, find_runtime_dir, prepare_runtime_dir

_POLL_SECONDS = 0.02
_END_SECONDS = 5.0  # for an agent that was told to end; with a hanging driver it may not
_STATUS = b'{"id":1,"op":"status","kernels":false}\n'  # answered when the agent has looked at its devices


class AgentStartError(Exception):
    """The agent did not start. The message has its last log lines."""


@dataclass(frozen=True)
class AgentFacts:
    """The facts about an agent that are visible without a request to it."""

    runtime_dir: Path
    socket: Path
    pid: int | None  # the holder of agent.lock, whether it answers or not
    answers: bool
    driver: str | None
    log: Path | None


def find_agent(runtime_dir: str | os.PathLike[str] | None = None) -> AgentFacts:
    """Find the agent of this folder, and change nothing."""
    runtime = _runtime(runtime_dir)
    driver: str | None = None
    with contextlib.suppress(OSError, ValueError, AttributeError):
        driver = json.loads(runtime.agent_info.read_bytes()).get("driver")
    return AgentFacts(
        runtime_dir=runtime.path,
        socket=runtime.agent_socket,
        pid=_lock_holder(runtime.agent_lock),
        answers=answers(runtime.agent_socket),
        driver=driver,
        log=runtime.agent_log if os.path.exists(runtime.agent_log) else None,
    )


def start_agent(
    runtime_dir: str | os.PathLike[str] | None = None,
    *,
    arguments: Sequence[str] = (),
    exit_when_idle_seconds: float = 30,
    seconds: float = 15,
    command: Sequence[str] = (sys.executable, "-m", "jupyter_aliquot.gpu_hook.agent"),
) -> bool:
    """Make sure that an agent answers; return whether this call started it.

    It blocks: call it from a thread. ``arguments`` are further options of ``aliquot agent``. Raises
    PathError and AgentStartError.
    """
    runtime = _runtime(runtime_dir)
    prepare_runtime_dir(runtime)
    deadline = time.monotonic() + seconds
    with _only_one_starts(runtime, seconds):
        if answers(runtime.agent_socket):
            return False
        options = ["--runtime-dir", os.fspath(runtime.path), "--exit-when-idle", f"{exit_when_idle_seconds:g}"]
        options += ["--log-file", os.fspath(runtime.agent_log), *arguments]
        daemon = _start(runtime, [*command, *options])
        process = daemon.process
        while not _knows_its_devices(runtime.agent_socket, deadline):
            code = process.poll()
            if code is not None:
                raise AgentStartError(f"the node agent ended with code {code}: {daemon.last_words()}")
            if time.monotonic() > deadline:
                ended = _end(process)
                raise AgentStartError(
                    f"the node agent did not answer within {seconds:g} s{ended}: {daemon.last_words()}"
                )
            time.sleep(_POLL_SECONDS)
        wait_aside(process)
    return True


def _end(process: subprocess.Popen[bytes]) -> str:
    """End an agent that does not answer.

    Return the addition to the error message where it does not end.
    """
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        wait_aside(process)
        return f", and does not end (pid {process.pid})"
    return ""


def _knows_its_devices(path: Path, deadline: float) -> bool:
    """Wait until the agent at this socket has looked at its devices.

    Return False if it did not, or ended.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(max(_POLL_SECONDS, deadline - time.monotonic()))
            connection.connect(os.fspath(path))
            connection.sendall(_STATUS)
            return bool(connection.recv(1))
        except OSError:
            return False


def _runtime(runtime_dir: str | os.PathLike[str] | None) -> RuntimeDir:
    return find_runtime_dir() if runtime_dir is None else RuntimeDir(Path(runtime_dir).absolute())


@contextlib.contextmanager
def _only_one_starts(runtime: RuntimeDir, seconds: float) -> Iterator[None]:
    """Hold start.lock. Raises AgentStartError.

    Other callers wait, and then find the agent there.
    """
    try:
        with locked(runtime.start_lock, seconds, _POLL_SECONDS):
            yield
    except LockHeldError:
        raise AgentStartError(f"another process starts an agent on {runtime.path} for too long") from None


def _start(runtime: RuntimeDir, command: Sequence[str]) -> Daemon:
    try:
        return start_daemon(command, "aliquot agent", runtime.agent_log)
    except OSError as error:
        raise AgentStartError(f"cannot start the node agent ({command[0]}): {error.strerror}") from error


def _lock_holder(path: Path) -> int | None:
    """Return the pid in the lock file, if the lock is held."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, 32, 0).strip()
        return int(text) if text.isdigit() else None
    else:
        return None
    finally:
        os.close(descriptor)


__all__ = ["AgentFacts", "AgentStartError", "PathError", "find_agent", "start_agent"]
