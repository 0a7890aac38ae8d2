"""The state file that is the software GPU of one runtime folder, and the two folders around it.

The outer folder is private; the inner one is what containers get, where users have uids of their own. That one is kept
while kernels may live: it is mounted into their containers, and a new one would not be.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import stat
import struct
from pathlib import Path

from aliquot.gpu_hook.paths import PathError

log = logging.getLogger(__name__)

_F_OFD_GETLK = 36
_FLOCK = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, pid


def is_in_use(state: Path) -> bool:
    """Whether a process uses the software GPU: each holds a lock on its own byte of the file."""
    try:
        descriptor = os.open(state, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        return bool(_FLOCK.unpack(fcntl.fcntl(descriptor, _F_OFD_GETLK, query))[0] != fcntl.F_UNLCK)
    except OSError:
        return True  # cannot tell: leave it
    finally:
        os.close(descriptor)


def prepare(state: Path) -> None:
    """Make the folders, and a file of this agent's settings unless one is in use. Raises PathError."""
    outer = state.parent.parent
    try:
        _remove_older_form(outer)
        outer.mkdir(mode=0o700, exist_ok=True)
        found = outer.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PathError(f"{outer} is not a folder of user {os.geteuid()}; remove it")
        outer.chmod(0o700)
        state.parent.mkdir(exist_ok=True)
        state.parent.chmod(0o711)
    except OSError as error:
        raise PathError(f"cannot make {state.parent} for the software GPU: {error.strerror or error}") from error
    remove_unused(state)
    with contextlib.suppress(OSError):  # the library says what is wrong with it
        descriptor = os.open(state, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.fchmod(descriptor, 0o666)
        os.close(descriptor)


def remove_unused(state: Path) -> None:
    """Remove the file when nobody uses it, so that the next agent makes one of its own settings."""
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
        state.parent.rmdir()
        state.parent.parent.rmdir()


def _remove_older_form(outer: Path) -> None:
    """Where the outer folder is now, agents of before had the file itself."""
    if outer.is_file() and not outer.is_symlink():
        if is_in_use(outer):
            raise PathError(f"kernels of an older version use {outer}; end them first")
        outer.unlink()
