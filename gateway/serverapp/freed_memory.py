"""Limit the memory that the C library keeps after the gateway's process has freed it.

By itself glibc gives back the end of its heap alone, and takes ever larger pieces from the heap
once one was freed (mallopt(3), "dynamic mmap threshold"): the objects of a thousand kernels that
come and go leave holes that stay forever.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Mapping

# Parameters of mallopt(3).
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
# glibc gives larger pieces, such as the text of a status of all kernels, back when they are freed.
# This is its initial value.
_LARGE_BYTES = 128 << 10
# Otherwise each of the first sixteen threads gets a heap, which keeps what its thread has freed.
_HEAPS = 2
_OWN_CHOICE = ("MALLOC_", "GLIBC_TUNABLES")

_LIBRARY = ctypes.CDLL(None)


def keep_little(environ: Mapping[str, str]) -> None:
    """Limit the kept memory for the rest of this process's life.

    Called before the process has threads, for an existing heap stays. Does nothing where the
    environment has malloc settings of its own, or the C library has no mallopt.
    """
    if any(name.startswith(_OWN_CHOICE) for name in environ):
        return
    with contextlib.suppress(AttributeError):  # musl, macOS
        _LIBRARY.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        _LIBRARY.mallopt(_ARENA_MAX, _HEAPS)


def give_back() -> None:
    """Give every empty page back to the system. Takes some milliseconds at most."""
    with contextlib.suppress(AttributeError):
        _LIBRARY.malloc_trim(0)
