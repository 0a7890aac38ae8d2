"""The state file that is the software GPU of one runtime folder, and the two folders around it.

The outer folder is private; containers, where users have uids of their own, get the inner one. The
inner folder stays while kernels may live: it is mounted into their containers, and a new one would
not be. When an agent was killed, the next agent of the same user removes its files, whatever its
runtime folder: `remove_abandoned`.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import struct
from dataclasses import dataclass, replace
from pathlib import Path

from jupyter_aliquot.gpu_hook.base.files import try_lock
from jupyter_aliquot.gpu_hook.paths import PathError, RuntimeDir, is_shared

log = logging.getLogger(__name__)

_F_OFD_GETLK = 36
_FLOCK = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, pid
_RUNTIME = "runtime"  # in the outer folder: a link to the machine's runtime folder
_MACHINE_PARTS = 4
_LEAST_MEMORY, _MOST_MEMORY = 256 << 20, 16 << 30  # of a device whose memory no user set
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class SoftGpuSettings:
    """The machine that the software GPU simulates. None: its own default."""

    devices: int | None = None
    memory_bytes: int | None = None
    sm_count: int | None = None
    link_gbps: float | None = None

    def within(self, machine_bytes: int) -> SoftGpuSettings:
        """Return the same with memory that the machine can give, where none was asked for.

        Software GPUs and two copies of each device's memory fit into the machine.
        """
        if self.memory_bytes is not None or os.environ.get("ALIQUOT_SOFTGPU_MEMORY"):
            return self
        share = machine_bytes // (_MACHINE_PARTS * (self.devices or 1))
        memory = 1 << max(_LEAST_MEMORY.bit_length(), share.bit_length()) - 1
        return replace(self, memory_bytes=min(memory, _MOST_MEMORY))


def is_in_use(state: Path) -> bool:
    """Return whether a process uses the software GPU.

    Each such process holds a lock on its own byte of the file.
    """
    try:
        descriptor = os.open(state, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        return bool(_FLOCK.unpack(fcntl.fcntl(descriptor, _F_OFD_GETLK, query))[0] != fcntl.F_UNLCK)
    except OSError:
        return True  # unknown: leave it
    finally:
        os.close(descriptor)


def prepare(state: Path, runtime: RuntimeDir) -> int:
    """Make the folders, and a file of this agent's settings unless one is in use. Raises PathError.

    Return a descriptor. As long as it is open, `remove_abandoned` of no other agent takes the
    machine away.
    """
    outer = state.parent.parent
    try:
        _remove_older_form(outer)
        held = _held(outer)
        found = outer.lstat()
        if found.st_uid != os.geteuid():
            os.close(held)
            raise PathError(_not_ours(outer))
        outer.chmod(0o711 if is_shared(runtime) else 0o700)  # kernels' accounts have to pass
        _point_to(runtime, outer)
        state.parent.mkdir(exist_ok=True)
        state.parent.chmod(0o711)
    except NotADirectoryError as error:
        raise PathError(_not_ours(outer)) from error
    except OSError as error:
        raise PathError(f"cannot make {state.parent} for the software GPU: {error.strerror or error}") from error
    remove_unused(state)
    with contextlib.suppress(OSError):  # the library reports its defects
        descriptor = os.open(state, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.fchmod(descriptor, 0o666)
        os.close(descriptor)
    return held


def _not_ours(outer: Path) -> str:
    return f"{outer} is not a folder of user {os.geteuid()}; remove it"


def _held(outer: Path) -> int:
    """Return a descriptor of the folder, made if need be and locked.

    The folder is still there once no other agent is about to remove it.
    """
    while True:
        outer.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(outer, _FOLDER)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(outer.lstat(), os.fstat(descriptor)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _point_to(runtime: RuntimeDir, outer: Path) -> None:
    """Link the outer folder to its runtime folder. Raises OSError."""
    with contextlib.suppress(FileExistsError):  # the folder's name is made of this very path
        os.symlink(runtime.path.resolve(), outer / _RUNTIME)


def remove_abandoned(state: Path) -> None:
    """Remove the machines of this user's other runtime folders whose agent was killed.

    Never raises. A machine stays if a kernel may come back to it.
    """
    outer = state.parent.parent
    for other in outer.parent.glob(f"aliquot-{os.geteuid()}-*"):
        if other == outer:
            continue
        with contextlib.suppress(OSError):
            descriptor = os.open(other, _FOLDER)
            try:
                # A living agent holds the lock.
                if try_lock(descriptor) and _is_abandoned(other):
                    log.info("event=state_removed path=%s", other)
                    remove(other / state.parent.name / state.name)
            finally:
                os.close(descriptor)


def _is_abandoned(outer: Path) -> bool:
    """Return True where the runtime folder is gone, or knows of no kernel.

    Raises OSError where it is unknown.
    """
    runtime = RuntimeDir(Path(os.readlink(outer / _RUNTIME)))
    try:
        return not runtime.kernel_folders()
    except FileNotFoundError:
        return True


def remove_unused(state: Path) -> None:
    """Remove the file if no process uses it, so that the next agent's settings take effect."""
    try:
        if not is_in_use(state):
            state.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("event=state_not_removed path=%s error=%r", state, str(error))


def remove(state: Path) -> None:
    """Remove all of it, if no process uses it. Never raises."""
    remove_unused(state)
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileNotFoundError):
            state.parent.rmdir()
        (state.parent.parent / _RUNTIME).unlink(missing_ok=True)
        state.parent.parent.rmdir()


def _remove_older_form(outer: Path) -> None:
    """Remove the file of an earlier version, which stands where the outer folder is now."""
    if outer.is_file() and not outer.is_symlink():
        if is_in_use(outer):
            raise PathError(f"kernels of an older version use {outer}; end them first")
        outer.unlink()
