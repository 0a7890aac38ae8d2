"""Decide which link gets which message, and when a message may be forgotten. `LinkServer` sends.

A reply belongs to one session, and the session to the link that attached it last; iopub goes to
every link that has a session. Output is kept until each link that has a session of the kernel's
owner acknowledged it. A link says which messages only collaborators were shown: those it needs no
more, and they are kept for the owner. Each link has at most a window of bytes on its way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from .output_store import Entry, Store

WINDOW_BYTES = 8 << 20


class LinkState:
    """One link: its sessions, and its messages in order.

    The messages are those to come, and those sent and not acknowledged. ``sessions``: each with
    whether it is a collaborator's. ``shown``: its last iopub message; collaborators alone get none
    twice.
    """

    __slots__ = ("in_flight", "in_flight_bytes", "sessions", "shown", "todo")

    def __init__(self) -> None:
        self.sessions: dict[str, bool] = {}
        self.todo: deque[int] = deque()
        self.in_flight: dict[int, int] = {}
        self.in_flight_bytes = 0
        self.shown = 0

    @property
    def has_owner(self) -> bool:
        """Tell whether the link has a session of the kernel's owner."""
        return not all(self.sessions.values())


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
        self._holders: dict[str, int] = {}  # session to link

    @property
    def listening(self) -> tuple[int, ...]:
        """The links that have a session; those with the owner's first."""
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

    def attach(self, link: int, session: str, *, is_collaborator: bool = False) -> None:
        """Give a session to this link. With its first session of the owner, the link begins anew.

        It gets all that is kept, in order: what it was sent before, collaborators alone were shown.
        """
        before = self._holders.get(session)
        if before is not None and before != link:
            self.detach(before, session)
        state = self._links[link]
        if not is_collaborator and not state.has_owner:
            for seq in tuple(state.in_flight):
                self._land(state, seq)
        self._holders[session] = link
        state.sessions[session] = is_collaborator
        self._find_listening()
        self._line_up(link)

    def detach(self, link: int, session: str) -> None:
        """Take a session from this link. A link without sessions gets nothing."""
        state = self._links[link]
        if session not in state.sessions:
            return
        del state.sessions[session]
        self._holders.pop(session, None)
        self._find_listening()
        for seq in tuple(state.in_flight):
            entry = self._store.get(seq)
            if entry is None or entry.session == session or not state.sessions:
                self._land(state, seq)
        self._line_up(link)
        if not state.has_owner:
            self._forget_heard()
        if not state.sessions:
            self._store.settle_all()

    def is_collaborator(self, session: str) -> bool:
        """Tell whether this session is a collaborator's."""
        state = self._links.get(self._holders.get(session, -1))
        return state is not None and state.sessions[session]

    def added(self, entry: Entry) -> None:
        """Queue a new message for the links that it concerns."""
        if entry.session is None:
            for link in self.listening:
                self._links[link].todo.append(entry.seq)
        elif (holder := self._holders.get(entry.session)) is not None:
            self._links[holder].todo.append(entry.seq)

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
                state.shown = max(state.shown, entry.seq)
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

    def acknowledged(self, link: int, seq: int, *, keep: bool = False) -> bool:
        """Note that this link needs a message and all before it no more.

        ``keep``: output among them was shown to collaborators alone, and waits for the owner. False
        for a message that the link did not get.
        """
        state = self._links[link]
        if seq not in state.in_flight:
            return False
        for done in tuple(_up_to(state.in_flight, seq)):
            self._land(state, done)
            entry = self._store.get(done)
            if entry is None:
                continue
            if keep and entry.session is None:
                self._store.settle(entry)
            else:
                self._heard(link, entry)
        return True

    def _heard(self, link: int, entry: Entry) -> None:
        if entry.session is not None or self._listening == (link,):
            self._store.remove(entry.seq)
            return
        heard = entry.acknowledged = entry.acknowledged or set()
        heard.add(link)
        if heard.issuperset(self._listening):
            self._store.remove(entry.seq)

    def _forget_heard(self) -> None:
        """Forget the messages that all other links have had: this one is not the owner's any more."""
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
        shown = 0 if state.has_owner else state.shown
        state.todo = deque(entry.seq for entry in self._store if self._is_for(link, state, entry, shown))

    def _is_for(self, link: int, state: LinkState, entry: Entry, shown: int) -> bool:
        if entry.seq in state.in_flight or (entry.acknowledged and link in entry.acknowledged):
            return False
        if entry.session is not None:
            return entry.session in state.sessions
        return bool(state.sessions) and entry.seq > shown

    def _find_listening(self) -> None:
        busy = {link: state.has_owner for link, state in self._links.items() if state.sessions}
        self._listening = tuple(link for link, has_owner in busy.items() if has_owner)
        self._watching = tuple(link for link, has_owner in busy.items() if not has_owner)


def _up_to(in_flight: dict[int, int], seq: int) -> Sequence[Any]:
    passed = []
    for sent in in_flight:
        passed.append(sent)
        if sent == seq:
            break
    return passed
