"""Ids of seen messages, kept as ranges of numbers where a kernel counts its messages, as most do.

Who has one answer that was put together, and one stream of messages, tells by it what is in both.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any

from .ranges import Numbers

# ipykernel and others name their messages by their session, their process, and a number.
_COUNTED = re.compile(r"(.*_)(0|[1-9]\d{0,14})", re.DOTALL)
# Each is a cell's reply; 5 KB of a kernel in all.
_MOST_RANGES = 64
_MOST_PREFIXES = 16


class SeenMessages:
    """Ids of seen messages. The latest ``most_names`` ids without a number are kept."""

    def __init__(self, most_names: int) -> None:
        self._numbers: dict[str, Numbers] = {}
        self._names: deque[str] = deque(maxlen=most_names)

    def add(self, msg_id: str) -> None:
        found = _COUNTED.fullmatch(msg_id)
        if found is None:
            self._names.append(msg_id)
            return
        numbers = self._numbers.get(found[1]) or self._begin(found[1])
        numbers.add(int(found[2]))
        if len(numbers) > _MOST_RANGES:
            # Replies, on other channels, are the gaps: what lies between the oldest ranges comes no
            # more.
            numbers.join_lowest()

    def _begin(self, prefix: str) -> Numbers:
        if len(self._numbers) == _MOST_PREFIXES:
            del self._numbers[next(iter(self._numbers))]
        numbers = self._numbers[prefix] = Numbers()
        return numbers

    def report(self) -> dict[str, Any]:
        """Return the ranges of numbers by prefix, both ends included, and the ids without a number."""
        ranges = {prefix: numbers.ranges() for prefix, numbers in self._numbers.items()}
        return {"ranges": ranges, "ids": list(self._names)}
