"""Segments: host memory that holds the copy of a swapped process. Makes, empties and closes them; counts nothing.

Memory is a sealed memfd whose pages are all there, so that a hook that maps it meets no signal; fresh, it is zeroed by
the system. All of this blocks, and is called in a thread.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from .spill import make_file

PIECE_BYTES = 2 << 20  # the granularity of device memory, and of segments
STEP_BYTES = 64 << 20  # of making one, between two looks at whether it is still wanted
_MADV_HUGEPAGE = 14
_MADV_POPULATE_WRITE = 23  # Linux 5.14
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

_libc = ctypes.CDLL(None, use_errno=True)  # calls through it leave the interpreter to other threads
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)


class NotWantedError(Exception):
    """Who wanted the segment does not any more."""


@dataclass(frozen=True)
class Segment:
    """The agent's own open file. Of one process for its whole life: it is never handed to another.

    The process is given an open file of its own (``open_for_process``), so that the agent can tell whether it has one.
    """

    descriptor: int
    bytes: int
    is_spilled: bool


def make_segment(amount: int, folder: Path | None, is_unwanted: Event) -> Segment:
    """Of memory, or a file in ``folder``. Raises OSError when there is not so much, and NotWantedError."""
    if folder is None:
        return Segment(_make_memory(amount, is_unwanted), amount, is_spilled=False)
    return Segment(make_file(folder, amount, lambda: _look(is_unwanted)), amount, is_spilled=True)


def open_for_process(segment: Segment) -> int:
    """A descriptor to pass on, of an open file that is not the agent's. Raises OSError."""
    return os.open(f"/proc/self/fd/{segment.descriptor}", os.O_RDWR | os.O_CLOEXEC)


def empty_segment(segment: Segment) -> bool:
    """Free what is behind one that holds no copy, though a hook has it open; close it unless one has: True."""
    _libc.fallocate(segment.descriptor, _PUNCH_HOLE | _KEEP_SIZE, 0, segment.bytes)
    if held_bytes(segment) is not None:
        return True
    close_segment(segment)
    return False


def held_bytes(segment: Segment) -> int | None:
    """Return the size of a segment that another process has open or mapped; None: none has, or the system cannot tell.

    The system grants a write lease on a file that is open nowhere else, and on no other.
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
    """Close ours. What holds a copy lives on for as long as the process that it belongs to keeps it open."""
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
        return os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)  # leases need a file that was opened
    finally:
        os.close(descriptor)


def _populate(descriptor: int, view: mmap.mmap, amount: int, is_unwanted: Event) -> None:
    """Pages are allocated before they are touched: what cannot be had is then an error and no signal."""
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
        del start  # else the mapping stays
