"""Start the relay host: its folder, its lock, its socket."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from jupyter_aliquot.gpu_hook.base.daemon import answers
from jupyter_aliquot.gpu_hook.base.files import lock_while, open_lock, read_holder, write_holder
from jupyter_aliquot.gpu_hook.paths import PathError, RuntimeDir, prepare_runtime_dir, prepare_shared_runtime_dir
from jupyter_aliquot.provisioner.relay.wire.log import log
from jupyter_aliquot.provisioner.relay.wire.peer import listen

from .host import Host
from .settings import HostSettings, read_arguments
from .tenants import TenantError, Tenants

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LOCK_SECONDS = 3.0  # a host that is ending holds its lock a little longer than its socket
_RETRY_SECONDS = 0.05
_OF_HUB = "JUPYTERHUB_"


class StartError(Exception):
    """The relay host cannot start; the message is for the user."""


def run_host(settings: HostSettings) -> int:
    """Run a relay host in the foreground until it ends; return the exit code.

    A failure to start is one line on stderr.
    """
    if settings.account:
        _forget_hub()
    runtime = settings.runtime
    try:
        if settings.ends_with_parent is not None:
            _end_with(settings.ends_with_parent)
        tenants = _prepare(settings)
        lock = _lock(runtime, is_patient=settings.ends_with_parent is not None)
        try:
            listening = _listen(runtime.relay_socket, tenants)
            patience, parent = settings.exit_when_idle_seconds, settings.ends_with_parent
            host = Host(runtime, settings.spill_dir, listening, patience, tenants, parent)
        except StartError:
            os.close(lock)
            raise
    except (PathError, StartError, TenantError) as error:
        print(f"aliquot relay: {error}", file=sys.stderr)
        return 1
    # Children of a killed relay become ours.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.chdir("/")
    gc.collect()
    gc.freeze()  # a collection in a relay would copy what it shares with us
    log("started", pid=os.getpid(), folder=runtime.path)
    try:
        host.serve()
    finally:
        if not host.is_cut_off():
            runtime.relay_socket.unlink(missing_ok=True)
        host.close()
        os.close(lock)
        log("stopped", pid=os.getpid())
    return 0


def _forget_hub() -> None:
    """Replace this program by itself without the Hub's variables, such as the token of its service.

    The relays, which are forks of this process, would have them in their memory.
    """
    kept = {name: text for name, text in os.environ.items() if not name.startswith(_OF_HUB)}
    if len(kept) < len(os.environ):
        os.execve(sys.executable, sys.orig_argv, kept)


def _end_with(parent: int) -> None:
    """Have the system send this process SIGTERM when its parent ends, also where that is killed."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the system was told
        raise StartError(f"the process {parent} that started this relay host has ended")


def _prepare(settings: HostSettings) -> Tenants | None:
    """Prepare the runtime folder, and return the accounts that a host of root serves."""
    if not settings.account:
        prepare_runtime_dir(settings.runtime)
        return None
    tenants = Tenants.of(settings.account, settings.account_list)
    prepare_shared_runtime_dir(settings.runtime, tenants.gateway.gid)
    return tenants


def _listen(path: Path, tenants: Tenants | None) -> socket.socket:
    try:
        if tenants is None:
            return listen(path)
        listening = listen(path)
        os.chown(path, 0, tenants.gateway.gid, follow_symlinks=False)
        path.chmod(0o660)
        return listening
    except OSError as error:
        raise StartError(f"cannot listen at {path}: {error.strerror or error}") from error


def _lock(runtime: RuntimeDir, *, is_patient: bool) -> int:
    """Lock relay.lock, whose holder is the relay host of the folder.

    The system unlocks it with the process. A patient host waits for the end of another one.
    """
    try:
        descriptor = open_lock(runtime.relay_lock)
    except OSError as error:
        raise StartError(f"cannot open {runtime.relay_lock}: {error.strerror}") from error
    deadline = time.monotonic() + _LOCK_SECONDS

    def may_wait() -> bool:
        return is_patient or (not answers(runtime.relay_socket) and time.monotonic() <= deadline)

    if not lock_while(descriptor, may_wait, _RETRY_SECONDS):
        pid = read_holder(descriptor) or "unknown"
        os.close(descriptor)
        raise StartError(
            f"a relay host runs on {runtime.path} already (pid {pid}); use it, end it, or set ALIQUOT_RUNTIME_DIR"
        )
    write_holder(descriptor)
    return descriptor


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code.

    Called by ``python -m jupyter_aliquot.provisioner.relay`` and by ``aliquot relay``.
    """
    return run_host(read_arguments(arguments))
