"""Track which of a relay's messages the browsers' sockets took, and which may be acknowledged.

A message is done when all sockets that it was given to and that are still open took it, and at
least one did. Output that only collaborators were given, or that no socket took, is acknowledged to
keep: the relay sends it again when the kernel's owner comes. A reply to a collaborator is done when
it was given, while the owner has a socket. The relay takes an acknowledgement for all that it sent
before; so does this. It sends nothing: the link reads from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from jupyter_aliquot.gateway.replay.seen_ids import Numbers

_MOST_RANGES = 1 << 16


@dataclass
class _Given:
    number: int
    waiting: set[Hashable]
    was_taken: bool
    # An output that only collaborators were given: they take it, and the owner has yet to.
    keep: bool
    is_output: bool
    is_over: bool = False


@dataclass(frozen=True)
class Leaving:
    """Counts of the messages that a closed socket had not taken.

    ``missed``: those that other sockets took or have. ``returned``: those that no socket has. What
    waits for the owner all the same counts for neither.
    """

    missed: int = 0
    returned: int = 0


class Ack(NamedTuple):
    """An acknowledgement of a message and all before it; with ``keep`` the outputs are kept."""

    number: int
    keep: bool = False


class Deliveries:
    """The messages of one relay by number, until all sockets that were given them took them."""

    def __init__(self) -> None:
        self._given: dict[int, _Given] = {}
        # As they came; a finished one waits for those before it.
        self._order: deque[_Given] = deque()
        self._taken = Numbers()
        # The last output that collaborators were given: outputs come to them in order.
        self._shown = 0
        self._acks: list[Ack] = []

    def __len__(self) -> int:
        """Return the number of messages that a socket still has to take."""
        return len(self._given)

    def is_known(self, number: int) -> bool:
        """Return whether a message was taken, or is with a socket: a repeated one is dropped then.

        What waits for the owner is unknown.
        """
        given = self._given.get(number)
        return number in self._taken or (given is not None and not given.keep)

    def was_shown(self, number: int) -> bool:
        """Return whether collaborators were given an output: they are given none twice."""
        return number <= self._shown

    def show(self, number: int) -> None:
        """Note that collaborators are given an output."""
        self._shown = max(self._shown, number)

    def give(
        self,
        number: int,
        waiting: Iterable[Hashable],
        *,
        was_taken: bool,
        keep: bool = False,
        is_output: bool = True,
        is_awaited: bool = True,
    ) -> None:
        """Note the sockets that have yet to take a message.

        ``was_taken``: another socket has taken it. ``keep``: only collaborators have it.
        ``is_output``: it is no reply, which its session's socket alone gets. Without ``is_awaited``
        it is acknowledged before they took it.
        """
        given = _Given(number, set(waiting), was_taken, keep, is_output)
        if given.waiting:
            self._given[number] = given
            self._line_up(given, is_awaited=is_awaited)
        elif was_taken:
            if not keep:
                self._note_taken(number)
            self._given.pop(number, None)
            given.is_over = True
            self._order.append(given)
            self._pass_finished()

    def begin(self) -> None:
        """Forget the order of messages: the relay repeats what was not acknowledged."""
        self._order.clear()
        self._acks.clear()

    def repeat(self, number: int, *, is_awaited: bool = True) -> None:
        """Note that a known message came again after `begin`.

        If it was taken, its acknowledgement was lost.
        """
        if number in self._taken:
            self.give(number, (), was_taken=True)
        else:
            self._line_up(self._given[number], is_awaited=is_awaited)

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
                missed += not given.keep
            else:
                returned += not given.keep
                given.keep = given.is_output
            if not given.waiting:
                self._end(given)
        return Leaving(missed, returned)

    def acknowledge(self) -> list[Ack]:
        """Return what to acknowledge, in order."""
        acks, self._acks = self._acks, []
        return acks

    def _note_taken(self, number: int) -> None:
        self._taken.add(number)
        if len(self._taken) > _MOST_RANGES:  # a relay may leave out numbers without end
            self._taken.join_lowest()

    def _line_up(self, given: _Given, *, is_awaited: bool) -> None:
        self._order.append(given)
        if not is_awaited:
            given.is_over = given.was_taken = True
            self._pass_finished()

    def _end(self, given: _Given) -> None:
        del self._given[given.number]
        given.is_over = True
        if given.was_taken and not given.keep:
            self._note_taken(given.number)
        self._pass_finished()

    def _pass_finished(self) -> None:
        """Acknowledge the first messages in order, as far as they are finished."""
        while self._order and self._order[0].is_over:
            first = self._order.popleft()
            if not first.was_taken and not first.keep:
                continue
            if self._acks and self._acks[-1].keep == first.keep:
                self._acks.pop()
            self._acks.append(Ack(first.number, first.keep))
