"""Decide which link gets which message, and when a message may be forgotten. `LinkServer` sends.

A reply belongs to one session, and the session to the link that attached it last; iopub goes to
every link that has a session. A link of guests gets iopub, too, but no message is kept, or
forgotten, because of it. Each link has at most a window of bytes on its way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from .output_store import Entry, Store

WINDOW_BYTES = 8 << 20


class LinkState:
    """One link: its sessions, and its messages in order.

    The messages are those to come, and those sent and not acknowledged. ``shown``: for a link of
    guests, its last iopub message; none comes to it twice.
    """

    __slots__ = ("in_flight", "in_flight_bytes", "is_of_guests", "sessions", "shown", "todo")

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.todo: deque[int] = deque()
        self.in_flight: dict[int, int] = {}
        self.in_flight_bytes = 0
        self.is_of_guests = False
        self.shown = 0


class Delivery:
    """The bookkeeping that keeps the store's entries and the links' queues in agreement.

    A link is a number here.
    """

    def __init__(self, store: Store, window_bytes: int = WINDOW_BYTES) -> None:
        self._store = store
        self._window = window_bytes
        self._links: dict[int, LinkState] = {}
        self._listening: tuple[int, ...] = ()
        self._watching: tuple[int, ...] = ()
        self._owners: dict[str, int] = {}

    @property
    def listening(self) -> tuple[int, ...]:
        """The links that have a session."""
        return (*self._listening, *self._watching)

    def link_came(self, link: int) -> None:
        self._links[link] = LinkState()

    def link_went(self, link: int) -> None:
        """Keep for others what a link that ended did not acknowledge."""
        state = self._links.get(link)
        if state is None:
            return
        for session in tuple(state.sessions):
            self.detach(link, session)
        del self._links[link]

    def attach(self, link: int, session: str, *, is_guest: bool = False) -> None:
        """Give a session to this link. A link with a guest's session is a link of guests."""
        before = self._owners.get(session)
        if before is not None and before != link:
            self.detach(before, session)
        self._owners[session] = link
        self._links[link].sessions.add(session)
        self._links[link].is_of_guests |= is_guest
        self._find_listening()
        self._line_up(link)

    def detach(self, link: int, session: str) -> None:
        """Take a session from this link. A link without sessions gets nothing."""
        state = self._links[link]
        if session not in state.sessions:
            return
        state.sessions.discard(session)
        self._owners.pop(session, None)
        self._find_listening()
        for seq in tuple(state.in_flight):
            entry = self._store.get(seq)
            if entry is None or entry.session == session or not state.sessions:
                self._land(state, seq)
        self._line_up(link)
        if not state.sessions:
            self._forget_heard()
            self._store.settle_all()

    def is_guest(self, session: str) -> bool:
        """Tell whether a link of guests has this session."""
        state = self._links.get(self._owners.get(session, -1))
        return state is not None and state.is_of_guests

    def added(self, entry: Entry) -> None:
        """Queue a new message for the links that it concerns."""
        if entry.session is None:
            for link in self.listening:
                self._links[link].todo.append(entry.seq)
        elif (owner := self._owners.get(entry.session)) is not None:
            self._links[owner].todo.append(entry.seq)

    def next_for(self, link: int) -> Entry | None:
        """Return the message to send on this link now, and count it as on its way."""
        state = self._links[link]
        while state.todo:
            entry = self._store.get(state.todo[0])
            if entry is None:
                state.todo.popleft()
                continue
            if state.in_flight and state.in_flight_bytes + entry.size > self._window:
                return None
            state.todo.popleft()
            if entry.session is None:
                state.shown = entry.seq
            state.in_flight[entry.seq] = entry.size
            state.in_flight_bytes += entry.size
            entry.flights += 1
            if entry.flights == 1:
                self._store.in_flight_bytes += entry.size
            return entry
        return None

    def lost(self, link: int, entry: Entry) -> None:
        """Forget a message that cannot be read, so that no link will acknowledge it."""
        self._land(self._links[link], entry.seq)
        self._store.lose(entry)

    def acknowledged(self, link: int, seq: int) -> bool:
        """Note that this link needs a message and all before it no more.

        False for a message that it did not get.
        """
        state = self._links[link]
        if seq not in state.in_flight:
            return False
        for done in tuple(_up_to(state.in_flight, seq)):
            self._land(state, done)
            entry = self._store.get(done)
            if entry is not None:
                self._heard(link, entry)
        return True

    def _heard(self, link: int, entry: Entry) -> None:
        if entry.session is None and self._links[link].is_of_guests:
            return
        if entry.session is not None or self._listening == (link,):
            self._store.remove(entry.seq)
            return
        heard = entry.acknowledged = entry.acknowledged or set()
        heard.add(link)
        if heard.issuperset(self._listening):
            self._store.remove(entry.seq)

    def _forget_heard(self) -> None:
        """Forget the messages that all other links have had: this one listens no more."""
        for entry in [e for e in self._store if e.acknowledged and e.acknowledged.issuperset(self._listening)]:
            self._store.remove(entry.seq)

    def _land(self, state: LinkState, seq: int) -> None:
        state.in_flight_bytes -= state.in_flight.pop(seq)
        entry = self._store.get(seq)
        if entry is not None and entry.flights:
            entry.flights -= 1
            if not entry.flights:
                self._store.in_flight_bytes -= entry.size

    def _line_up(self, link: int) -> None:
        state = self._links[link]
        state.todo = deque(entry.seq for entry in self._store if self._is_for(link, state, entry))

    def _is_for(self, link: int, state: LinkState, entry: Entry) -> bool:
        if entry.seq in state.in_flight or (entry.acknowledged and link in entry.acknowledged):
            return False
        if entry.session is not None:
            return entry.session in state.sessions
        return bool(state.sessions) and not (state.is_of_guests and entry.seq <= state.shown)

    def _find_listening(self) -> None:
        busy = {link: state.is_of_guests for link, state in self._links.items() if state.sessions}
        self._listening = tuple(link for link, is_of_guests in busy.items() if not is_of_guests)
        self._watching = tuple(link for link, is_of_guests in busy.items() if is_of_guests)


def _up_to(in_flight: dict[int, int], seq: int) -> Sequence[Any]:
    passed = []
    for sent in in_flight:
        passed.append(sent)
        if sent == seq:
            break
    return passed
