"""The state file that is the software GPU of one runtime folder: whether it is in use, and its removal."""

from __future__ import annotations

import fcntl
import logging
import os
import struct
from pathlib import Path

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


def remove_unused(state: Path) -> None:
    """Remove the file when nobody uses it, so that the next agent makes one of its own settings."""
    try:
        if not is_in_use(state):
            state.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("event=state_not_removed path=%s error=%r", state, str(error))
