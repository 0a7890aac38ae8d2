"""The entrance of one kernel to CUDA: the processes that the agent does not know yet.

A process holds a lock on a file of the kernel's folder from before its cuInit until it has registered.
While a mark stands beside that file, further processes wait before their cuInit: the kernel moves to
another device. The mark outlives the agent. The hook's end is agent_link/entrance.c.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from pathlib import Path

_FILE, _MARK = "entrance", "moving"
_FLOCK = struct.Struct("hhqqi")  # struct flock: type, whence, start, length, pid
_READABLE = 0o644  # a lock needs no more; the kernel's processes may run under another account


class Entrance:
    """The entrance of the kernel with this folder."""

    def __init__(self, folder: Path) -> None:
        """Make its file, and the folder. Raises OSError."""
        folder.mkdir(exist_ok=True)
        self._file, self._mark = folder / _FILE, folder / _MARK
        self.make()

    def make(self) -> None:
        """Make its file where there is none. Raises OSError."""
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _READABLE)
        try:
            os.fchmod(descriptor, _READABLE)
        finally:
            os.close(descriptor)

    def close(self, target: str) -> None:
        """Have processes that begin CUDA from now on wait until the kernel is on *target*. Raises OSError."""
        with contextlib.suppress(FileExistsError):
            self._mark.symlink_to(target)

    def open(self) -> None:
        """Let the processes that wait begin. Raises OSError."""
        self._mark.unlink(missing_ok=True)

    def find_inside(self) -> int | None:
        """Return the pid of a process that has begun CUDA, or is about to, and has not registered. Raises OSError."""
        descriptor = os.open(self._file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        finally:
            os.close(descriptor)
        return None if kind == fcntl.F_UNLCK else pid
