"""GPUs that are kept for requests that do not fit: so that smaller ones that pass do not delay them.

Where the ends of the running work are known, this is conservative backfill: a request that waits
has the first place and time at which it fits, and a later one uses that place only until then.
Where they are not, a request that waited long gets the devices that lack least, as they become free.

Source of the rule: Mu'alem and Feitelson, IEEE TPDS 12(6), 2001; for devices in place of a count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from jupyter_aliquot.gateway.planning.jobs import DEVICE
from jupyter_aliquot.gateway.planning.node import Demand, Parts

from .decisions import Kind, Reservation, WaitReason
from .engine import Device, Engine, Place, demands_of
from .entries import Entry
from .node_states import NodeStates
from .placing import Placed, place as place_step
from .rules import Rules

_WORTH_HOLDING = (Kind.CAPACITY, Kind.FRAGMENTED, Kind.LOCALITY, Kind.AHEAD)
# End of the work on a device, and its milli.
_Ends = list[tuple[float, int]]


@dataclass(eq=False)
class _Hold:
    """The devices of one request, and what is taken of them so that no other request starts there."""

    entry: Entry
    at: float
    wanted: list[tuple[int, str, int, Parts]]
    taken: list[Place]

    def devices(self) -> list[Device]:
        return [(model, at, device) for _, model, at, parts in self.wanted for device, _ in parts]


class Holds:
    """The holds of one plan, in the order in which they were made."""

    def __init__(self, engine: Engine, rules: Rules, now: float) -> None:
        self._engine, self._rules, self._now = engine, rules, now
        self._holds: list[_Hold] = []
        self._held = set[Device]()
        self._ends: dict[Device, _Ends] | None = None
        self._started: list[tuple[Place, float]] = []
        self._has_ends = any(work.running.end is not None for work in engine.works.values())

    @property
    def are_timed(self) -> bool:
        """Whether something is held from a known time on, so that short work may use it until then."""
        return self._has_ends and bool(self._holds)

    def place_beside(self, entry: Entry) -> Placed | WaitReason:
        """Place a step where nothing is held, or where it ends before the hold begins."""
        found = place_step(self._engine, entry)
        estimate = entry.request.estimate
        if isinstance(found, WaitReason) and self._holds and found.kind in _WORTH_HOLDING:
            free = [] if estimate is None else [one for one in self._holds if self._now + estimate <= one.at < math.inf]
            for hold in free:
                self._open(hold)
            if free:
                found = place_step(self._engine, entry)
            for hold in free:
                self._close(hold)
            if isinstance(found, WaitReason):
                found = self._ahead(found)
        if isinstance(found, Placed):
            end = math.inf if estimate is None else self._now + estimate
            self._note(found, end)
        return found

    def hold_for(self, entry: Entry, reason: WaitReason) -> bool:
        """Keep GPUs for a request that does not fit, if it is due. Returns whether it was done."""
        if len(self._holds) >= self._rules.most_holds or reason.kind not in _WORTH_HOLDING:
            return False
        is_due = self._now - entry.request.submitted >= self._rules.hold_after
        if not is_due and not self._has_ends:
            return False
        hold = self._earliest(entry)
        if hold is None or (math.isinf(hold.at) and not is_due):
            return False
        self._close(hold)
        self._holds.append(hold)
        self._held.update(hold.devices())
        entry.reason = WaitReason(Kind.RESERVED, entry.milli, sum(one.demand.milli for one in hold.taken))
        return True

    def has(self, entry: Entry) -> bool:
        """Return whether something is kept for this request."""
        return any(hold.entry is entry for hold in self._holds)

    def open_for(self, entry: Entry) -> None:
        """Give back what is kept for this request, while it is tried to place it otherwise."""
        for hold in self._holds:
            if hold.entry is entry:
                self._open(hold)

    def close_for(self, entry: Entry) -> None:
        """Keep it again, or nothing more once the members that it was kept for were placed."""
        for hold in [one for one in self._holds if one.entry is entry]:
            if entry.placed > hold.wanted[0][0]:
                self._open(hold)
                self._holds.remove(hold)
            else:
                self._close(hold)

    def reservations(self) -> list[Reservation]:
        """Return what is kept for requests that got nothing else."""
        return [
            Reservation(
                hold.entry.request.name,
                member,
                self._engine.pools[model].nodes[at].name,
                parts,
                (),
                None if math.isinf(hold.at) else hold.at,
            )
            for hold in self._holds
            if not hold.entry.is_complete
            for member, model, at, parts in hold.wanted
        ]

    def _ahead(self, reason: WaitReason) -> WaitReason:
        """Return the reason of a request that would fit if nothing was held."""
        held = sum(one.demand.milli for hold in self._holds for one in hold.taken)
        return reason._replace(kind=Kind.AHEAD) if held >= reason.milli else reason

    def _open(self, hold: _Hold) -> None:
        for one in hold.taken:
            self._engine.unhold(one)
        hold.taken = []

    def _close(self, hold: _Hold) -> None:
        """Take all that is free of the hold's devices."""
        for _, model, at, parts in hold.wanted:
            free = self._engine.pools[model].nodes[at].free
            taken = tuple((device, free[device]) for device, _ in parts if free[device] > 0)
            if taken:
                one = Place(model, at, Demand(sum(milli for _, milli in taken)), taken)
                self._engine.hold(one)
                hold.taken.append(one)

    def _earliest(self, entry: Entry) -> _Hold | None:
        """Return the place at which the step fits first; of equal ones the one that lacks least."""
        request = entry.request
        for model in request.models or self._engine.pools:
            pool = self._engine.pools.get(model)
            if pool is None:
                continue
            at, wanted, used = -math.inf, list[tuple[int, str, int, Parts]](), set[Device]()
            for member, demand in demands_of(request, entry.step):
                found = self._first(model, pool, demand, used)
                if found is None:
                    break
                at = max(at, found[0])
                wanted.append((member, model, found[1], found[2]))
                used.update((model, found[1], device) for device, _ in found[2])
            else:
                return _Hold(entry, at, wanted, [])
        return None

    def _first(
        self, model: str, pool: NodeStates, demand: Demand, used: set[Device]
    ) -> tuple[float, int, Parts] | None:
        best: tuple[tuple[float, int, int], Parts] | None = None
        for at in range(len(pool.nodes)) if self._has_ends else pool.one_of_each_state(self._used_nodes(model, used)):
            node = pool.nodes[at]
            if node.milli < demand.milli or self._engine.nodes[node.name].is_cordoned:
                continue
            devices = [
                (self._frees((model, at, device), demand.part if not demand.whole else DEVICE), -free, device)
                for device, free in enumerate(node.free)
                if (model, at, device) not in self._held and (model, at, device) not in used
            ]
            count = demand.whole + bool(demand.part)
            if len(devices) < count:
                continue
            chosen = sorted(devices)[:count]
            parts = [DEVICE] * demand.whole + [demand.part] * bool(demand.part)
            lacks = sum(max(0, milli + minus) for (_, minus, _), milli in zip(chosen, parts, strict=True))
            key = (chosen[-1][0], lacks, at)
            if best is None or key < best[0]:
                best = (key, tuple((device, milli) for (_, _, device), milli in zip(chosen, parts, strict=True)))
        return None if best is None else (best[0][0], best[0][2], best[1])

    def _used_nodes(self, model: str, used: set[Device]) -> set[int]:
        return {device[1] for device in (*self._held, *used) if device[0] == model}

    def _frees(self, key: Device, milli: int) -> float:
        """Return when so much of a device is free, as far as the ends of its work are known."""
        free = self._engine.pools[key[0]].nodes[key[1]].free[key[2]]
        if free >= milli:
            return self._now
        if not self._has_ends:
            return math.inf
        for end, part in sorted(self._known_ends().get(key, [])):
            free += part
            if free >= milli:
                return max(end, self._now)
        return math.inf

    def _known_ends(self) -> dict[Device, _Ends]:
        if self._ends is None:
            self._ends = {}
            for work in self._engine.works.values():
                end = math.inf if work.running.end is None else work.running.end
                for one in work.places.values():
                    self._add_end(one, end)
            for one, end in self._started:
                self._add_end(one, end)
        return self._ends

    def _note(self, placed: Placed, end: float) -> None:
        for one in placed.places.values():
            self._started.append((one, end))
            if self._ends is not None:
                self._add_end(one, end)

    def _add_end(self, one: Place, end: float) -> None:
        ends = self._ends if self._ends is not None else {}
        for device, milli in one.parts:
            ends.setdefault((one.model, one.at, device), []).append((end, milli))
