"""What the C library keeps of the memory that the gateway's process has freed: as little as it can be made to.

By itself glibc gives back the end of its heap alone, and takes ever larger pieces from the heap once one was freed
(mallopt(3), "dynamic mmap threshold"): between what a thousand kernels come and go with, holes stay for ever.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Mapping

# Of mallopt(3).
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
# Larger pieces, as the text of a status of all kernels, are given back when they are freed. glibc's first value.
_LARGE_BYTES = 128 << 10
# Else each of the first sixteen threads gets one, and each keeps what its thread has freed.
_HEAPS = 2
_OWN_CHOICE = ("MALLOC_", "GLIBC_TUNABLES")

_LIBRARY = ctypes.CDLL(None)


def keep_little(environ: Mapping[str, str]) -> None:
    """For the rest of this process's life; before it has threads, for a heap that is there stays.

    Nothing where the environment has settings of its own, or the C library knows none.
    """
    if any(name.startswith(_OWN_CHOICE) for name in environ):
        return
    with contextlib.suppress(AttributeError):  # musl, macOS
        _LIBRARY.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        _LIBRARY.mallopt(_ARENA_MAX, _HEAPS)


def give_back() -> None:
    """Give every page without anything in it to the system: some milliseconds at most."""
    with contextlib.suppress(AttributeError):
        _LIBRARY.malloc_trim(0)
