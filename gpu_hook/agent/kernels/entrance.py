"""The entrance of one kernel to CUDA: the processes that the agent does not know yet.

A process holds a lock on a file of the kernel's folder from before its cuInit until it has registered.
While that file has a byte, further processes wait before their cuInit: the kernel moves to another
device. The byte outlives the agent. The kernel's account may write to the folder: anything but a regular
file is not believed. The hook's end is agent_link/entrance.c.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

_FILE = "entrance"
# The link by which the agent of the release before marked a move; that release's hook waits while it stands. Here for
# one release: no process with that hook is left then.
_MARK_BEFORE = "moving"
_FLOCK = struct.Struct("hhqqi")  # struct flock: type, whence, start, length, pid
_READABLE = 0o644  # a lock needs no more; the kernel's processes may run under another account
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_OF_OTHER_FILES = (errno.ELOOP, errno.EISDIR, errno.ENXIO)  # a link, a folder, a socket


class Entrance:
    """The entrance of the kernel with this folder."""

    def __init__(self, folder: Path) -> None:
        """Make its file, and the folder. Raises OSError."""
        folder.mkdir(exist_ok=True)
        self.path, self._mark_before = folder / _FILE, folder / _MARK_BEFORE
        self.make()

    def make(self, *, is_closed: bool = False) -> None:
        """Make its file where there is no regular one, with its byte where it *is_closed*. Raises OSError.

        Processes that hold a lock on what was there before are not found any more.
        """
        with contextlib.suppress(FileNotFoundError), self._opened() as descriptor:
            return os.fchmod(descriptor, _READABLE)
        new = self.path.with_suffix(".new")
        new.unlink(missing_ok=True)
        descriptor = os.open(new, _FLAGS | os.O_CREAT | os.O_EXCL, _READABLE)
        try:
            os.fchmod(descriptor, _READABLE)
            os.ftruncate(descriptor, int(is_closed))
        finally:
            os.close(descriptor)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self.path.rmdir()
        new.replace(self.path)

    def close(self) -> None:
        """Have processes that begin CUDA from now on wait: the kernel moves. Raises OSError."""
        with self._opened() as descriptor:
            os.ftruncate(descriptor, 1)

    def open(self) -> None:
        """Let the processes that wait begin; where the file is gone, none waits. Raises OSError."""
        try:
            with self._opened() as descriptor:
                os.ftruncate(descriptor, 0)
        except FileNotFoundError:
            if os.path.lexists(self.path):
                self.make()
        if self._mark_before.is_symlink():  # a kernel may put something else there, for which no hook waits
            self._mark_before.unlink(missing_ok=True)

    def find_inside(self) -> int | None:
        """Return the pid of a process that has begun CUDA, or is about to, and has not registered.

        Raises OSError; FileNotFoundError: there may be such processes, and none can be found.
        """
        with self._opened() as descriptor:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else pid

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Open its file, which is changed in place: the locks are on it. Another kind of file counts as none."""
        try:
            descriptor = os.open(self.path, _FLAGS)
        except OSError as error:
            if error.errno in _OF_OTHER_FILES:
                raise self._none() from error
            raise
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self._none()
            yield descriptor
        finally:
            os.close(descriptor)

    def _none(self) -> FileNotFoundError:
        return FileNotFoundError(errno.ENOENT, "Not a regular file", os.fspath(self.path))
