"""Starting a node agent in the background, once however many ask, and finding out about the one that is there."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.gpu_hook.paths import PathError, RuntimeDir, find_runtime_dir, prepare_runtime_dir, private_opener

_POLL_SECONDS = 0.02
_LOG_LINES = 5
_END_SECONDS = 5.0  # for an agent that was told to end; one whose driver hangs may not
_STATUS = b'{"id":1,"op":"status","kernels":false}\n'  # answered when the agent has looked at its devices
# What a kernel's environment carries would lead the agent to the hook instead of the driver.
_NOT_INHERITED = ("LD_PRELOAD", "LD_AUDIT", "CUDA_VISIBLE_DEVICES", "ALIQUOT_KERNEL_DIR", "ALIQUOT_SOFTGPU_STATE")


class AgentStartError(Exception):
    """The agent did not start; the message has its last words."""


@dataclass(frozen=True)
class AgentFacts:
    """What can be seen of an agent without asking it."""

    runtime_dir: Path
    socket: Path
    pid: int | None  # who holds agent.lock, whether it answers or not
    answers: bool
    driver: str | None
    log: Path | None

    @property
    def has_stale_socket(self) -> bool:
        """A socket file whose agent was killed; the next agent replaces it."""
        return self.pid is None and not self.answers and self.socket.exists()


def find_agent(runtime_dir: str | os.PathLike[str] | None = None) -> AgentFacts:
    """Look, and change nothing."""
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
        log=runtime.agent_log if runtime.agent_log.exists() else None,
    )


def start_agent(
    runtime_dir: str | os.PathLike[str] | None = None,
    *,
    arguments: Sequence[str] = (),
    exit_when_idle_seconds: float = 30,
    seconds: float = 15,
    command: Sequence[str] = (sys.executable, "-m", "jupyter_aliquot.gpu_hook.agent"),
) -> bool:
    """Make sure that an agent answers; tells whether this call started it. Blocks: call it from a thread.

    ``arguments`` are further options of ``aliquot agent``. Raises PathError and AgentStartError.
    """
    runtime = _runtime(runtime_dir)
    prepare_runtime_dir(runtime)
    deadline = time.monotonic() + seconds
    with _only_one_starts(runtime, deadline):
        if answers(runtime.agent_socket):
            return False
        options = ["--runtime-dir", os.fspath(runtime.path), "--exit-when-idle", f"{exit_when_idle_seconds:g}"]
        options += ["--log-file", os.fspath(runtime.agent_log), *arguments]
        process, log_start = _spawn(runtime, [*command, *options])
        while not _knows_its_devices(runtime.agent_socket, deadline):
            code = process.poll()
            if code is not None:
                raise AgentStartError(f"the node agent ended with code {code}: {_last_words(runtime, log_start)}")
            if time.monotonic() > deadline:
                ended = _end(process)
                raise AgentStartError(
                    f"the node agent did not answer within {seconds:g} s{ended}: {_last_words(runtime, log_start)}"
                )
            time.sleep(_POLL_SECONDS)
        wait_aside(process)
    return True


def _end(process: subprocess.Popen[bytes]) -> str:
    """End an agent that does not answer; return what to add to the message where it does not end."""
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        wait_aside(process)
        return f", and does not end (pid {process.pid})"
    return ""


def _knows_its_devices(path: Path, deadline: float) -> bool:
    """Wait until the agent at this socket has looked at its devices. False: it did not, or it ended."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(max(_POLL_SECONDS, deadline - time.monotonic()))
            connection.connect(os.fspath(path))
            connection.sendall(_STATUS)
            return bool(connection.recv(1))
        except OSError:
            return False


def wait_aside(process: subprocess.Popen[bytes]) -> None:
    """It may outlive us. If it ends before, it must not stay as a zombie, and its end is no warning."""
    threading.Thread(target=process.wait, name=f"aliquot-child-{process.pid}", daemon=True).start()


def _runtime(runtime_dir: str | os.PathLike[str] | None) -> RuntimeDir:
    return find_runtime_dir() if runtime_dir is None else RuntimeDir(Path(runtime_dir).absolute())


@contextlib.contextmanager
def _only_one_starts(runtime: RuntimeDir, deadline: float) -> Iterator[None]:
    """Hold start.lock. Others wait, and then find the agent there."""
    descriptor = os.open(runtime.start_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise AgentStartError(f"another process starts an agent on {runtime.path} for too long") from None
                time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _spawn(runtime: RuntimeDir, command: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    try:
        with open(runtime.agent_log, "ab", opener=private_opener) as log:
            log_start = log.tell()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                env=environment,
            )
    except OSError as error:
        raise AgentStartError(f"cannot start the node agent ({command[0]}): {error.strerror}") from error
    return process, log_start


def _last_words(runtime: RuntimeDir, log_start: int) -> str:
    """What this agent wrote last; the log may hold those before it."""
    with contextlib.suppress(OSError), open(runtime.agent_log, "rb") as log:
        log.seek(log_start)
        lines = log.read().decode(errors="replace").splitlines()
        own = [line.removeprefix("aliquot agent: ") for line in lines if line.startswith("aliquot agent: ")]
        return own[-1] if own else " | ".join(lines[-_LOG_LINES:]) or f"it left nothing in {runtime.agent_log}"
    return f"its log {runtime.agent_log} cannot be read"


def _lock_holder(path: Path) -> int | None:
    """The pid in the lock file, when somebody holds the lock."""
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


def answers(path: Path) -> bool:
    """Whether somebody listens at this socket: one that refuses is stale."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1)
        try:
            connection.connect(os.fspath(path))
        except OSError:
            return False
        return True


__all__ = ["AgentFacts", "AgentStartError", "PathError", "find_agent", "start_agent"]
