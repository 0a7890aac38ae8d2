"""Starting a relay host in the background, once however many ask. It outlives who started it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.client.agent_process import answers, wait_aside
from jupyter_aliquot.gpu_hook.paths import PathError, RuntimeDir, prepare_runtime_dir, private_opener
from jupyter_aliquot.provisioner.errors import RelayUnavailableError
from jupyter_aliquot.provisioner.relay.wire.proc import stat_fields

_POLL_SECONDS = 0.02
_LOG_LINES = 5
# What a kernel's environment carries must not come into what forks other kernels' relays.
_NOT_INHERITED = ("LD_PRELOAD", "LD_AUDIT", "CUDA_VISIBLE_DEVICES", "ALIQUOT_KERNEL_DIR", "ALIQUOT_SOFTGPU_STATE")


@dataclass(frozen=True)
class RelaySettings:
    """How a relay host is started. It ends ``exit_when_idle_seconds`` after its last relay; None: never by itself."""

    exit_when_idle_seconds: float | None = 30.0
    start_seconds: float = 15.0
    command: tuple[str, ...] = (sys.executable, "-m", "jupyter_aliquot.provisioner.relay")


async def ensure_relay_host(runtime: RuntimeDir, settings: RelaySettings | None = None) -> bool:
    """Make sure that a relay host answers; tells whether this call started it. Raises RelayUnavailableError."""
    if answers(runtime.relay_socket):
        return False
    return await asyncio.to_thread(start_relay_host, runtime, settings or RelaySettings())


def start_relay_host(runtime: RuntimeDir, settings: RelaySettings) -> bool:
    """The same, blocking."""
    try:
        prepare_runtime_dir(runtime)
    except PathError as error:
        raise RelayUnavailableError(str(error)) from error
    deadline = time.monotonic() + settings.start_seconds
    with _only_one_starts(runtime, deadline):
        if answers(runtime.relay_socket):
            return False
        _reap_former(runtime)
        process, log_start = _start(runtime, settings)
        while not answers(runtime.relay_socket):
            code = process.poll()
            if code is not None:
                raise RelayUnavailableError(f"the relay host ended with code {code}: {_last_words(runtime, log_start)}")
            if time.monotonic() > deadline:
                process.terminate()
                process.wait(5)
                raise RelayUnavailableError(
                    f"the relay host did not answer within {settings.start_seconds:g} s: "
                    f"{_last_words(runtime, log_start)}"
                )
            time.sleep(_POLL_SECONDS)
        wait_aside(process)
    return True


def _reap_former(runtime: RuntimeDir) -> None:
    """A host that this process started before, and that has ended, is a child that nobody waits for."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(runtime.relay_lock.read_text())
        fields = stat_fields(pid)
        # It led a session of its own; another child of this process hardly does.
        if fields and fields[0] == "Z" and int(fields[3]) == pid:
            os.waitpid(pid, os.WNOHANG)


@contextlib.contextmanager
def _only_one_starts(runtime: RuntimeDir, deadline: float) -> Iterator[None]:
    """Hold start.lock. Others wait, and then find the host there."""
    descriptor = os.open(runtime.start_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise RelayUnavailableError(f"another process starts on {runtime.path} for too long") from None
                time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _start(runtime: RuntimeDir, settings: RelaySettings) -> tuple[subprocess.Popen[bytes], int]:
    command = [*settings.command, "--runtime-dir", os.fspath(runtime.path)]
    if settings.exit_when_idle_seconds is not None:
        command += ["--exit-when-idle", f"{settings.exit_when_idle_seconds:g}"]
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    try:
        with open(runtime.relay_log, "ab", opener=private_opener) as log:
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
        raise RelayUnavailableError(f"cannot start the relay host ({command[0]}): {error.strerror}") from error
    return process, log_start


def _last_words(runtime: RuntimeDir, log_start: int) -> str:
    with contextlib.suppress(OSError), open(runtime.relay_log, "rb") as log:
        log.seek(log_start)
        lines = log.read().decode(errors="replace").splitlines()
        own = [line.removeprefix("aliquot relay: ") for line in lines if line.startswith("aliquot relay: ")]
        return own[-1] if own else " | ".join(lines[-_LOG_LINES:]) or f"it left nothing in {runtime.relay_log}"
    return f"its log {runtime.relay_log} cannot be read"
