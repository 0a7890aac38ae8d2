"""Which of a relay's messages the browsers' sockets took, and what may be acknowledged.

A message is done when all sockets that it was given to and that are still open took it, and at least one did. The
relay takes an acknowledgement for all that it sent before; so does this. It tells nobody: the link asks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass


class Numbers:
    """A set of numbers that mostly come one after the other: kept as ranges, so that it stays small."""

    def __init__(self) -> None:
        # Ascending, disjoint, not adjacent; both ends are in the set.
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._starts, number) - 1
        return place >= 0 and number <= self._ends[place]

    def __len__(self) -> int:
        """How many ranges there are."""
        return len(self._starts)

    def ranges(self) -> list[tuple[int, int]]:
        """Ascending; both ends are in the set."""
        return list(zip(self._starts, self._ends, strict=True))

    def join_lowest(self) -> None:
        """Take what lies between the two lowest ranges for in it."""
        del self._starts[1], self._ends[0]

    def add(self, number: int) -> None:
        """A number that is in it already changes nothing."""
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


@dataclass
class _Given:
    number: int
    waiting: set[Hashable]
    was_taken: bool
    is_over: bool = False


@dataclass(frozen=True)
class Leaving:
    """What a socket left behind that closed: how many messages others took or have, and how many nobody has."""

    missed: int = 0
    returned: int = 0


class Deliveries:
    """The messages of one relay, by their numbers, from when sockets were given them until all took them."""

    def __init__(self) -> None:
        self._given: dict[int, _Given] = {}
        self._order: deque[_Given] = deque()  # as they came; what is over waits for what came before it
        self._taken = Numbers()
        self._acknowledged: int | None = None

    def __len__(self) -> int:
        """How many messages a socket still has to take."""
        return len(self._given)

    def is_known(self, number: int) -> bool:
        """Whether it was taken, or is with a socket: one that comes again then is dropped."""
        return number in self._taken or number in self._given

    def give(self, number: int, waiting: Iterable[Hashable], *, was_taken: bool) -> None:
        """These sockets have not taken it yet; ``was_taken``: another one has. With neither it is not given."""
        given = _Given(number, set(waiting), was_taken)
        if given.waiting:
            self._given[number] = given
            self._order.append(given)
        elif was_taken:
            self._taken.add(number)
            if self._order:
                self._order.append(given)
                given.is_over = True
            else:
                self._acknowledged = number

    def begin(self) -> None:
        """The relay sends again what it has no acknowledgement for: what came before no longer has an order."""
        self._order.clear()
        self._acknowledged = None

    def repeat(self, number: int) -> None:
        """It came again after `begin`, and is known. If it was taken, its acknowledgement was lost."""
        if number in self._taken:
            self.give(number, (), was_taken=True)
        else:
            self._order.append(self._given[number])

    def take(self, number: int, socket: Hashable) -> None:
        """The socket took it. One that is no longer waited for changes nothing."""
        given = self._given.get(number)
        if given is None or socket not in given.waiting:
            return
        given.waiting.discard(socket)
        given.was_taken = True
        if not given.waiting:
            self._end(given)

    def leave(self, socket: Hashable) -> Leaving:
        """The socket closed. What nobody took is no longer known, so that it can be given again."""
        missed = returned = 0
        for given in [given for given in self._given.values() if socket in given.waiting]:
            given.waiting.discard(socket)
            if given.was_taken or given.waiting:
                missed += 1
            else:
                returned += 1
            if not given.waiting:
                self._end(given)
        return Leaving(missed, returned)

    def acknowledge(self) -> int | None:
        """The number up to which all that came is done, if there is a new one."""
        number, self._acknowledged = self._acknowledged, None
        return number

    def _end(self, given: _Given) -> None:
        del self._given[given.number]
        given.is_over = True
        if given.was_taken:
            self._taken.add(given.number)
        while self._order and self._order[0].is_over:
            first = self._order.popleft()
            if first.was_taken:
                self._acknowledged = first.number
