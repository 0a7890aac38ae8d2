"""Files that several processes use: replaced whole, set aside when damaged, and locked.

A reader sees the old content of a replaced file or the new one, never a part. A lock ends with the
process that holds it, also when the process is killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path


def replace_file(path: Path, content: str | bytes, *, mode: int = 0o600, is_durable: bool = True) -> None:
    """Replace the file by one with this *content* and *mode*.

    Raises OSError, and leaves the old file then. With *is_durable* the content is on disk before
    the name points to it. Content that is of no use after a power cut need not be durable.
    """
    # Hidden, and with another ending: other programs read the files of a folder by their ending.
    new = path.with_name(f".{path.name}.new")
    data = content.encode() if isinstance(content, str) else content
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(new, flags, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            if is_durable:
                os.fsync(file.fileno())
        os.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise


def set_aside(path: Path, why: str = "unreadable") -> Path:
    """Rename a file that cannot be used, so that a new one can be begun. Return its new path.

    Raises OSError.
    """
    aside = path.with_name(f"{path.name}.{why}-{time.time_ns()}")
    os.replace(path, aside)
    return aside


# ---- locks


def open_lock(path: Path) -> int:
    """Open a lock file, made if need be, and return its descriptor. Raises OSError.

    Closing the descriptor lets the lock go. The file stays: removing a lock file is a race.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def try_lock(descriptor: int) -> bool:
    """Lock a file or a folder for this process alone.

    Return False where another process holds it.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_while(descriptor: int, may_wait: Callable[[], bool], poll_seconds: float) -> bool:
    """Try to lock until it succeeds, or *may_wait* returns False.

    Return whether the lock is held now. Blocks.
    """
    while not try_lock(descriptor):
        if not may_wait():
            return False
        time.sleep(poll_seconds)
    return True


class LockHeldError(Exception):
    """Another process held a lock for too long."""


@contextlib.contextmanager
def locked(path: Path, seconds: float, poll_seconds: float) -> Iterator[None]:
    """Hold the lock of *path*. Raises LockHeldError where another process holds it for *seconds*.

    Blocks.
    """
    descriptor = open_lock(path)
    deadline = time.monotonic() + seconds
    try:
        if not lock_while(descriptor, lambda: time.monotonic() <= deadline, poll_seconds):
            raise LockHeldError(f"another process holds {path}")
        yield
    finally:
        os.close(descriptor)


def write_holder(descriptor: int, word: str = "") -> None:
    """Write this process and *word* into the lock file.

    Raises OSError; the lock counts, and this only explains it.
    """
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()} {word}".strip().encode() + b"\n", 0)


def read_holder(descriptor: int) -> str:
    """Return what the process that holds the lock wrote: its pid, and perhaps a word.

    Empty where it wrote nothing.
    """
    return os.pread(descriptor, 100, 0).decode("ascii", errors="replace").strip()
