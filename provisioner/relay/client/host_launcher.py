"""Start a relay host in the background, once for all callers. It outlives its starter."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.base.daemon import Daemon, answers, start_daemon, wait_aside
from jupyter_aliquot.gpu_hook.base.files import LockHeldError, locked
from jupyter_aliquot.gpu_hook.paths import PathError, RuntimeDir, is_shared, prepare_runtime_dir
from jupyter_aliquot.provisioner.errors import RelayUnavailableError
from jupyter_aliquot.provisioner.relay.wire.proc import stat_fields

_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class RelaySettings:
    """Options of a relay host's start.

    It ends ``exit_when_idle_seconds`` after its last relay; None: never.
    """

    exit_when_idle_seconds: float | None = 30.0
    start_seconds: float = 15.0
    command: tuple[str, ...] = (sys.executable, "-m", "jupyter_aliquot.provisioner.relay")


async def ensure_relay_host(runtime: RuntimeDir, settings: RelaySettings | None = None) -> bool:
    """Make sure that a relay host answers; return whether this call started it.

    Raises RelayUnavailableError.
    """
    if answers(runtime.relay_socket):
        return False
    return await asyncio.to_thread(start_relay_host, runtime, settings or RelaySettings())


def start_relay_host(runtime: RuntimeDir, settings: RelaySettings) -> bool:
    """Start a relay host as `ensure_relay_host` does, and block."""
    try:
        prepare_runtime_dir(runtime)
    except PathError as error:
        raise RelayUnavailableError(str(error)) from error
    deadline = time.monotonic() + settings.start_seconds
    if is_shared(runtime) and os.geteuid() != 0:
        return _await_roots(runtime, deadline)
    with _only_one_starts(runtime, settings.start_seconds):
        if answers(runtime.relay_socket):
            return False
        _reap_former(runtime)
        daemon = _start(runtime, settings)
        process = daemon.process
        while not answers(runtime.relay_socket):
            code = process.poll()
            if code is not None:
                raise RelayUnavailableError(f"the relay host ended with code {code}: {daemon.last_words()}")
            if time.monotonic() > deadline:
                process.terminate()
                process.wait(5)
                raise RelayUnavailableError(
                    f"the relay host did not answer within {settings.start_seconds:g} s: {daemon.last_words()}"
                )
            time.sleep(_POLL_SECONDS)
        wait_aside(process)
    return True


def _await_roots(runtime: RuntimeDir, deadline: float) -> bool:
    """Wait for the host of root, which another program starts. Raises RelayUnavailableError."""
    while not answers(runtime.relay_socket):
        if time.monotonic() > deadline:
            raise RelayUnavailableError(
                f"the relay host of root does not answer at {runtime.relay_socket}. An administrator sees why: "
                "systemctl status aliquot-relay; or, where the Hub starts it, the Hub's log"
            )
        time.sleep(_POLL_SECONDS)
    return False


def _reap_former(runtime: RuntimeDir) -> None:
    """Reap a host that this process started before and that has ended."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(runtime.relay_lock.read_text())
        fields = stat_fields(pid)
        # The host led a session of its own; another child of this process hardly does.
        if fields and fields[0] == "Z" and int(fields[3]) == pid:
            os.waitpid(pid, os.WNOHANG)


@contextlib.contextmanager
def _only_one_starts(runtime: RuntimeDir, seconds: float) -> Iterator[None]:
    """Hold start.lock. Others wait, and then find the host there. Raises RelayUnavailableError."""
    try:
        with locked(runtime.start_lock, seconds, _POLL_SECONDS):
            yield
    except LockHeldError:
        raise RelayUnavailableError(f"another process starts on {runtime.path} for too long") from None


def _start(runtime: RuntimeDir, settings: RelaySettings) -> Daemon:
    command = [*settings.command, "--runtime-dir", os.fspath(runtime.path)]
    if settings.exit_when_idle_seconds is not None:
        command += ["--exit-when-idle", f"{settings.exit_when_idle_seconds:g}"]
    try:
        return start_daemon(command, "aliquot relay", runtime.relay_log)
    except OSError as error:
        raise RelayUnavailableError(f"cannot start the relay host ({command[0]}): {error.strerror}") from error
