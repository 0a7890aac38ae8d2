"""Ids of seen messages, kept as ranges of numbers where a kernel counts its messages, as most do.

Who has one answer that was put together, and one stream of messages, tells by it what is in both.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque

from jupyter_aliquot.gateway.reports.outputs import SeenMessages as SeenReport

# ipykernel and others name their messages by their session, their process, and a number.
_COUNTED = re.compile(r"(.*_)(0|[1-9]\d{0,14})", re.DOTALL)
# Each is a cell's reply; 5 KB of a kernel in all.
_MOST_RANGES = 64
_MOST_PREFIXES = 16


class Numbers:
    """A set of numbers that mostly come one after the other; as ranges it stays small."""

    def __init__(self) -> None:
        # Ascending, disjoint, not adjacent; both ends are in the set.
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._starts, number) - 1
        return place >= 0 and number <= self._ends[place]

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._starts)

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges, ascending; both ends are in the set."""
        return list(zip(self._starts, self._ends, strict=True))

    def join_lowest(self) -> None:
        """Add all numbers between the two lowest ranges."""
        del self._starts[1], self._ends[0]

    def add(self, number: int) -> None:
        """Add a number."""
        if self._ends and number == self._ends[-1] + 1:
            self._ends[-1] = number
            return
        place = bisect_right(self._starts, number)
        if place and number <= self._ends[place - 1]:
            return
        joins_left = place > 0 and self._ends[place - 1] == number - 1
        joins_right = place < len(self._starts) and self._starts[place] == number + 1
        if joins_left and joins_right:
            self._ends[place - 1] = self._ends[place]
            del self._starts[place], self._ends[place]
        elif joins_left:
            self._ends[place - 1] = number
        elif joins_right:
            self._starts[place] = number
        else:
            self._starts.insert(place, number)
            self._ends.insert(place, number)


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

    def report(self) -> SeenReport:
        """Return the ranges of numbers by prefix, both ends included, and the ids without a number."""
        ranges = {prefix: numbers.ranges() for prefix, numbers in self._numbers.items()}
        return {"ranges": ranges, "ids": list(self._names)}
