"""Spill files: private, unlinked files that take a copy when the host memory for copies is used up.

Their space is taken before they are handed out, so that a full disk is met here. Leaves a part of the file system free.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

_STEP_BYTES = 64 << 20
_LEFT_FREE = 0.05  # of the file system, for everybody else
_MODE = 0o600


def make_file(folder: Path, amount: int, look: Callable[[], None]) -> int:
    """A descriptor. Raises OSError when there is no such folder or no room, and what ``look`` raises."""
    descriptor = _open(folder)
    try:
        for offset in range(0, amount, _STEP_BYTES):
            look()
            part = min(_STEP_BYTES, amount - offset)
            _check_room(descriptor, part, folder)
            os.posix_fallocate(descriptor, offset, part)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _open(folder: Path) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, _MODE)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):  # a file system without; before Linux 3.11
            raise
    descriptor, path = tempfile.mkstemp(prefix="aliquot-spill-", dir=folder)  # 0600
    os.unlink(path)
    return descriptor


def _check_room(descriptor: int, amount: int, folder: Path) -> None:
    found = os.fstatvfs(descriptor)
    free, kept = found.f_bavail * found.f_frsize, int(found.f_blocks * found.f_frsize * _LEFT_FREE)
    if amount + kept > free:
        text = f"asked {amount} bytes in {folder}, {free} are free, of which {kept} are left to others"
        raise OSError(errno.ENOSPC, text)
