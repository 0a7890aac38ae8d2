"""Words of a page that another process reads meanwhile.

Each is stored or read at once, as a node agent and a hook do. ``struct.pack_into`` writes zeros
first, which are words, too: "nothing is paced" is one of them. Offsets are in bytes.
"""

from __future__ import annotations

import mmap

WORD, HALF = 8, 4


def store(page: mmap.mmap, offset: int, value: int) -> None:
    """Store a word of 64 bits."""
    with memoryview(page) as all_bytes, all_bytes.cast("Q") as words:
        words[_index(offset, WORD)] = value


def store_half(page: mmap.mmap, offset: int, value: int) -> None:
    """Store a word of 32 bits."""
    with memoryview(page) as all_bytes, all_bytes.cast("I") as words:
        words[_index(offset, HALF)] = value


def load(page: mmap.mmap, offset: int) -> int:
    """Load a word of 64 bits."""
    with memoryview(page) as all_bytes, all_bytes.cast("Q") as words:
        return words[_index(offset, WORD)]


def load_half(page: mmap.mmap, offset: int) -> int:
    """Load a word of 32 bits."""
    with memoryview(page) as all_bytes, all_bytes.cast("I") as words:
        return words[_index(offset, HALF)]


def _index(offset: int, size: int) -> int:
    index, rest = divmod(offset, size)
    assert rest == 0, f"no word of {size} bytes begins at {offset}"
    return index
