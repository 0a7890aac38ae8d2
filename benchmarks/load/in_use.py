"""Memory that a process has in use, read inside it.

Memory that its allocators keep for later is not a leak. The configuration file of the load
benchmark's gateway calls ``note``; the process then writes a line a second: blocks, and bytes.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from pathlib import Path
from typing import Any

_SECONDS = 1.0
_NAME = "in-use.txt"


class _Mallinfo2(ctypes.Structure):
    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = [(name, ctypes.c_size_t) for name in _names]


def note(folder: str) -> None:
    """Begin to write; overwrite the lines of an earlier process."""
    threading.Thread(target=_write, args=(Path(folder) / _NAME,), daemon=True, name="in-use").start()


def read(folder: Path, since: int = 0) -> tuple[list[float], list[float]]:
    """Return blocks of Python's allocator, and bytes of malloc's, from the line ``since`` on."""
    lines = [line.split() for line in (folder / _NAME).read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [float(blocks) for blocks, _ in lines[since:]], [float(used) for _, used in lines[since:]]


def _write(path: Path) -> None:
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)  # once: each look for it leaves garbage
    if ask is not None:
        ask.restype = _Mallinfo2
    with path.open("w", buffering=1) as file:
        while True:
            print(sys.getallocatedblocks(), _malloc_bytes(ask), file=file)
            time.sleep(_SECONDS)


def _malloc_bytes(ask: Any) -> int:
    """Return the bytes of glibc's malloc, its own mappings included; 0 if it has no figures."""
    found = None if ask is None else ask()
    return 0 if found is None else int(found.uordblks + found.hblkhd)
