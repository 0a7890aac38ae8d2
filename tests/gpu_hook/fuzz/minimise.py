"""Find the shortest part of a list for which a claim still holds.

The search removes ever smaller runs of it (Zeller's ddmin).
"""

from __future__ import annotations

from collections.abc import Callable


def minimise(items: list[int], holds: Callable[[list[int]], bool], tries: int = 300) -> list[int]:
    """Return the shortest part.

    ``items`` must be in order; each try costs one call of ``holds``.
    """
    length = max(1, len(items) // 2)
    while tries > 0:
        at, has_shrunk = 0, False
        while at < len(items) and tries > 0:
            tries -= 1
            shorter = items[:at] + items[at + length :]
            if shorter and holds(shorter):
                items, has_shrunk = shorter, True
            else:
                at += length
        if length == 1 and not has_shrunk:
            break
        length = max(1, length // 2)
    return items
