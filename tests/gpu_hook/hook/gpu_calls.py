"""The calls of a driven program to its libcuda. Each returns the driver's code first."""

from __future__ import annotations

import ctypes
import os

U64 = ctypes.c_uint64
SIZE = ctypes.c_size_t
LIBRARY = ctypes.CDLL(os.environ.get("GPU_PROGRAM_LIBRARY", "libcuda.so.1"))


def call(name: str, *arguments: object) -> int:
    return int(getattr(LIBRARY, name)(*arguments))
