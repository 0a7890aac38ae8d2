"""What the C library keeps of the memory that the gateway's process has freed: as little as it can be made to.

By itself glibc gives back the end of its heap alone, and takes ever larger pieces from the heap once one was freed
(mallopt(3), "dynamic mmap threshold"): between what a thousand kernels come and go with, holes stay for ever.
"""

from __future__ import annotations

import contextlib
import ctypes

# Of mallopt(3).
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
# Larger pieces, as the text of a status of all kernels, are given back when they are freed. glibc's first value.
_LARGE_BYTES = 128 << 10
# The loop has one heap, all threads together another one.
_HEAPS = 2


def keep_little() -> None:
    """For the rest of this process's life. Nothing where the C library has no such settings."""
    with contextlib.suppress(AttributeError):  # musl, macOS
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_ARENA_MAX, _HEAPS)


def give_back() -> None:
    """Give every page without anything in it to the system: a millisecond at a thousand kernels."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
