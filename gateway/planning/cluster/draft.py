"""The plan while it is made: what was decided so far, and the plan that comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .decisions import Cause, Kind, Move, Plan, Reservation, Start, WaitReason, Withdrawal
from .engine import Engine, Place, Work
from .entries import Entry
from .holds import Holds
from .placing import Placed


class Draft:
    """Collects decisions. One plan owns it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._starts: list[Start] = []
        self._reservations: list[Reservation] = []
        self._swap_outs: list[Withdrawal] = []
        self._evictions: list[Withdrawal] = []
        self._moves: list[Move] = []
        self._reserved: dict[str, int] = {}
        # Request to the work that has to leave before the members start without which it is of no use.
        self._before: dict[str, tuple[str, ...]] = {}

    def start(self, entry: Entry, placed: Placed, after: tuple[str, ...] = ()) -> None:
        """Note that a step of an entry was placed. All of it waits if work has to leave for a part of it.

        The work *after* has to leave for its quota, if not for its devices.
        """
        places = placed.places.items()
        leavers = (name for _, place in places for name in self._engine.waits_for(place))
        name = entry.request.name
        after = tuple(dict.fromkeys((*self._before.get(name, ()), *after, *leavers)))
        if after and entry.running + entry.placed < entry.least:
            self._before[name] = after
        for index, place in places:
            node = self._engine.node_name(place)
            if after:
                self._reservations.append(Reservation(name, index, node, place.parts, after))
            else:
                self._starts.append(Start(name, index, node, place.parts))
        if after:
            self._reserved[name] = self._reserved.get(name, 0) + sum(place.demand.milli for _, place in places)
        entry.advance(len(placed.places))

    def withdraw(self, work: Work, members: Sequence[int], entry: Entry, cause: Cause) -> None:
        """Note that members of running work, whose parts were given back, have to leave."""
        found = Withdrawal(work.running.name, tuple(sorted(members)), entry.request.name, cause)
        (self._swap_outs if work.running.can_swap else self._evictions).append(found)
        for member in members:
            self._engine.note_leaving(work.running.name, work.places.pop(member))

    def move(self, work: Work, member: int, place: Place, entry: Entry) -> None:
        """Note that a member of running work, whose parts were given back, moves to this place."""
        old = work.places[member]
        self._engine.note_leaving(work.running.name, old)
        source, node = self._engine.node_name(old), self._engine.node_name(place)
        self._moves.append(Move(work.running.name, member, source, node, place.parts, entry.request.name))
        work.places[member] = place
        work.has_moved = True

    def free_ending(self) -> bool:
        """Give back the parts of members that were told to end; return whether there are any."""
        found = False
        for work in self._engine.works.values() if self._engine.has_ending else ():
            for index, member in enumerate(work.running.members if work.is_ending else ()):
                if member.is_ending and index in work.places:
                    place = work.places.pop(index)
                    running = work.running
                    self._engine.give_back(running.team, place, is_preemptible=running.is_preemptible)
                    self._engine.note_leaving(running.name, place)
                    found = True
        return found

    def finish(self, entries: Sequence[Entry], holds: Holds, shares: Mapping[tuple[str, str], int]) -> Plan:
        """Return the plan."""
        waiting: dict[str, WaitReason] = {}
        for entry in entries:
            name = entry.request.name
            if not entry.is_complete:
                waiting[name] = entry.reason or WaitReason(Kind.CAPACITY, entry.milli)
            elif name in self._reserved:
                waiting[name] = WaitReason(Kind.LEAVING, self._reserved[name])
        return Plan(
            tuple(self._starts),
            (*self._reservations, *holds.reservations()),
            tuple(self._swap_outs),
            tuple(self._evictions),
            tuple(self._moves),
            waiting,
            shares,
        )
