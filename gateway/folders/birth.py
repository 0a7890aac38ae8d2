"""The time at which a folder was made, which Linux tells by statx and Python's os.stat does not.

A file system may give the number of a removed folder to the next one. Users set neither the number
nor this time.
"""

from __future__ import annotations

import ctypes
import os

_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800
_NANOSECONDS = 1_000_000_000


class _Timestamp(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_int64), ("nanoseconds", ctypes.c_uint32), ("reserved", ctypes.c_int32))


class _Statx(ctypes.Structure):
    """``struct statx`` of linux/stat.h, as far as it is read here."""

    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("before_times", ctypes.c_uint8 * 60),
        ("accessed", _Timestamp),
        ("born", _Timestamp),
        ("rest", ctypes.c_uint8 * 160),
    )


def born_of(descriptor: int) -> int:
    """Return when an open file or folder was made, in nanoseconds since the epoch.

    0 where the file system, or the C library, does not tell. Raises OSError.
    """
    try:
        statx = ctypes.CDLL(None, use_errno=True).statx
    except AttributeError:
        return 0
    found = _Statx()
    if statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, ctypes.byref(found)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if not found.mask & _STATX_BTIME:
        return 0
    return int(found.born.seconds) * _NANOSECONDS + int(found.born.nanoseconds)
