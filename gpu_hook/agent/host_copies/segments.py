"""Segments hold the host copy of a swapped process.

This module makes, empties and closes them; it counts nothing. A segment is a sealed memfd with all
its pages allocated, so that a hook that maps it gets no signal. When the host memory for copies is
used up, the segment is a spill file: private, unlinked, with its space allocated before a process
gets it, so that the agent finds out here that a disk is full. All functions block; the agent calls
them in a thread.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event

PIECE_BYTES = 2 << 20  # the granularity of device memory, and of segments
STEP_BYTES = 64 << 20  # bytes made between two checks whether the segment is still wanted
_MADV_HUGEPAGE = 14
_MADV_POPULATE_WRITE = 23  # Linux 5.14
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_SPILL_LEFT_FREE = 0.05  # share of the file system, for other programs
_SPILL_MODE = 0o600
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

_libc = ctypes.CDLL(None, use_errno=True)  # calls through it release the interpreter lock
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)


class NotWantedError(Exception):
    """The segment is not wanted any more."""


@dataclass(frozen=True)
class Segment:
    """The agent's own open file of one segment.

    It belongs to one process for its whole life; no other process ever gets it. The process gets an
    open file of its own (``open_for_process``), so that the agent can tell whether it has the
    segment open.
    """

    descriptor: int
    bytes: int
    is_spilled: bool


def make_segment(amount: int, folder: Path | None, is_unwanted: Event) -> Segment:
    """Make a segment in memory, or as a file in ``folder``.

    Raises OSError when there is not enough room, and NotWantedError.
    """
    if folder is None:
        return Segment(_make_memory(amount, is_unwanted), amount, is_spilled=False)
    return Segment(make_file(folder, amount, lambda: _look(is_unwanted)), amount, is_spilled=True)


def open_for_process(segment: Segment) -> int:
    """Return a descriptor to hand over, of an open file other than the agent's. Raises OSError."""
    return os.open(f"/proc/self/fd/{segment.descriptor}", os.O_RDWR | os.O_CLOEXEC)


def empty_segment(segment: Segment) -> bool:
    """Free the memory behind a segment without a copy, even while a hook has it open.

    Close it and return True, unless a hook has it open.
    """
    _libc.fallocate(segment.descriptor, _PUNCH_HOLE | _KEEP_SIZE, 0, segment.bytes)
    if held_bytes(segment) is not None:
        return True
    close_segment(segment)
    return False


def held_bytes(segment: Segment) -> int | None:
    """Return the size of a segment that another process has open or mapped.

    None: none has, or the system cannot tell. The system grants a write lease on a file that is
    open nowhere else, and on no other.
    """
    try:
        fcntl.fcntl(segment.descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except BlockingIOError:
        return os.fstat(segment.descriptor).st_blocks * 512
    except OSError:  # a file system without leases
        return None
    fcntl.fcntl(segment.descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return None


def close_segment(segment: Segment) -> None:
    """Close our file. A copy lives on for as long as its process keeps it open."""
    os.close(segment.descriptor)


def _look(is_unwanted: Event) -> None:
    if is_unwanted.is_set():
        raise NotWantedError


def _make_memory(amount: int, is_unwanted: Event) -> int:
    descriptor = os.memfd_create("aliquot-segment", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, amount)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        with mmap.mmap(descriptor, amount) as view:
            _populate(descriptor, view, amount, is_unwanted)
        # leases need a file that was opened by path
        return os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(descriptor)


def _populate(descriptor: int, view: mmap.mmap, amount: int, is_unwanted: Event) -> None:
    """Allocate the pages before they are touched.

    A lack of memory is then an error, not a signal.
    """
    start = ctypes.c_char.from_buffer(view)
    try:
        address = ctypes.addressof(start)
        _libc.madvise(address, amount, _MADV_HUGEPAGE)  # advice
        for offset in range(0, amount, STEP_BYTES):
            _look(is_unwanted)
            part = min(STEP_BYTES, amount - offset)
            os.posix_fallocate(descriptor, offset, part)
            if _libc.madvise(address + offset, part, _MADV_POPULATE_WRITE) != 0:
                _libc.memset(address + offset, 0, part)  # an older system
    finally:
        del start  # or the mapping would stay


def make_file(folder: Path, amount: int, look: Callable[[], None]) -> int:
    """Return the descriptor of a new file.

    Raises OSError when there is no such folder or no room, and the exceptions of ``look``.
    """
    descriptor = _open(folder)
    try:
        for offset in range(0, amount, STEP_BYTES):
            look()
            part = min(STEP_BYTES, amount - offset)
            _check_room(descriptor, part, folder)
            os.posix_fallocate(descriptor, offset, part)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _open(folder: Path) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, _SPILL_MODE)
    except OSError as error:
        # a file system without O_TMPFILE; Linux before 3.11
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
            raise
    descriptor, path = tempfile.mkstemp(prefix="aliquot-spill-", dir=folder)  # made with mode 0600
    os.unlink(path)
    return descriptor


def _check_room(descriptor: int, amount: int, folder: Path) -> None:
    found = os.fstatvfs(descriptor)
    free, kept = found.f_bavail * found.f_frsize, int(found.f_blocks * found.f_frsize * _SPILL_LEFT_FREE)
    if amount + kept > free:
        text = f"Requested {amount} bytes in {folder}, but {free} are free, of which {kept} are left to others"
        raise OSError(errno.ENOSPC, text)
