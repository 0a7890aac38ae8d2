"""A set of whole numbers, kept as ranges."""

from __future__ import annotations

from bisect import bisect_right


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
