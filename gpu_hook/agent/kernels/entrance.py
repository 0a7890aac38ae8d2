"""The entrance of one kernel to CUDA: the processes that the agent does not know yet.

A process holds a lock on a file of the kernel's folder from before its cuInit until it has registered.
While that file has a byte, further processes wait before their cuInit: the kernel moves to another
device. The byte outlives the agent. The hook's end is agent_link/entrance.c.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from pathlib import Path

_FILE = "entrance"
# The link by which the agent of the release before marked a move; that release's hook waits while it stands. Here for
# one release: no process with that hook is left then.
_MARK_BEFORE = "moving"
_FLOCK = struct.Struct("hhqqi")  # struct flock: type, whence, start, length, pid
_READABLE = 0o644  # a lock needs no more; the kernel's processes may run under another account


class Entrance:
    """The entrance of the kernel with this folder."""

    def __init__(self, folder: Path) -> None:
        """Make its file, and the folder. Raises OSError."""
        folder.mkdir(exist_ok=True)
        self._file, self._mark_before = folder / _FILE, folder / _MARK_BEFORE
        self.make()

    def make(self) -> None:
        """Make its file where there is none. Raises OSError."""
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _READABLE)
        try:
            os.fchmod(descriptor, _READABLE)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Have processes that begin CUDA from now on wait: the kernel moves. Raises OSError."""
        self._set_bytes(1)

    def open(self) -> None:
        """Let the processes that wait begin; where the file is gone, none waits. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            self._set_bytes(0)
        if self._mark_before.is_symlink():  # a kernel may put something else there, for which no hook waits
            self._mark_before.unlink(missing_ok=True)

    def _set_bytes(self, count: int) -> None:
        """Change the file's size, in place: the locks are on this file."""
        descriptor = os.open(self._file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.ftruncate(descriptor, count)
        finally:
            os.close(descriptor)

    def find_inside(self) -> int | None:
        """Return the pid of a process that has begun CUDA, or is about to, and has not registered. Raises OSError."""
        descriptor = os.open(self._file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        finally:
            os.close(descriptor)
        return None if kind == fcntl.F_UNLCK else pid
