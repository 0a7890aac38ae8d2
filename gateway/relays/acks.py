"""Track which of a relay's messages the browsers' sockets took, and which may be acknowledged.

A message is done when all sockets that it was given to and that are still open took it, and at
least one did. The relay takes an acknowledgement for all that it sent before; so does this. It
sends nothing: the link reads from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from jupyter_aliquot.gateway.replay.seen_ids import Numbers


@dataclass
class _Given:
    number: int
    waiting: set[Hashable]
    was_taken: bool
    is_over: bool = False


@dataclass(frozen=True)
class Leaving:
    """Counts of the messages that a closed socket had not taken.

    ``missed``: those that other sockets took or have. ``returned``: those that no socket has.
    """

    missed: int = 0
    returned: int = 0


class Deliveries:
    """The messages of one relay by number, until all sockets that were given them took them."""

    def __init__(self) -> None:
        self._given: dict[int, _Given] = {}
        # As they came; a finished one waits for those before it.
        self._order: deque[_Given] = deque()
        self._taken = Numbers()
        self._acknowledged: int | None = None

    def __len__(self) -> int:
        """Return the number of messages that a socket still has to take."""
        return len(self._given)

    def is_known(self, number: int) -> bool:
        """Return whether a message was taken, or is with a socket: a repeated one is dropped then."""
        return number in self._taken or number in self._given

    def give(self, number: int, waiting: Iterable[Hashable], *, was_taken: bool) -> None:
        """Note the sockets that have yet to take a message.

        ``was_taken``: another socket has taken it.
        """
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
        """Forget the order of messages: the relay repeats what was not acknowledged."""
        self._order.clear()
        self._acknowledged = None

    def repeat(self, number: int) -> None:
        """Note that a known message came again after `begin`.

        If it was taken, its acknowledgement was lost.
        """
        if number in self._taken:
            self.give(number, (), was_taken=True)
        else:
            self._order.append(self._given[number])

    def take(self, number: int, socket: Hashable) -> None:
        """Note that a socket took a message. Without effect if it is no longer waited for."""
        given = self._given.get(number)
        if given is None or socket not in given.waiting:
            return
        given.waiting.discard(socket)
        given.was_taken = True
        if not given.waiting:
            self._end(given)

    def leave(self, socket: Hashable) -> Leaving:
        """Forget a closed socket.

        A message that no socket took becomes unknown, so that it can be given again.
        """
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
        """Return the number up to which all messages are done, if there is a new one."""
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
