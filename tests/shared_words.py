"""Words of a page that another process reads meanwhile: each is stored or read at once, as a node agent and a hook do.

``struct.pack_into`` writes zeros first, which are words, too: "nothing is paced" is one of them.
"""

from __future__ import annotations

import mmap


def store(page: mmap.mmap, offset: int, value: int) -> None:
    """A word of 64 bits; the offset is in bytes."""
    with memoryview(page) as all_bytes, all_bytes.cast("Q") as words:
        words[offset // 8] = value


def store_half(page: mmap.mmap, offset: int, value: int) -> None:
    """A word of 32 bits; the offset is in bytes."""
    with memoryview(page) as all_bytes, all_bytes.cast("I") as words:
        words[offset // 4] = value


def load_half(page: mmap.mmap, offset: int) -> int:
    """A word of 32 bits; the offset is in bytes."""
    with memoryview(page) as all_bytes, all_bytes.cast("I") as words:
        return words[offset // 4]
