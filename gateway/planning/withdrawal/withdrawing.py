"""Units of running work that leave or move together, and the smallest set of them for a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from jupyter_aliquot.gateway.planning.cluster.decisions import Cause
from jupyter_aliquot.gateway.planning.cluster.draft import Draft
from jupyter_aliquot.gateway.planning.cluster.engine import Engine, Place, Work
from jupyter_aliquot.gateway.planning.cluster.entries import Entry
from jupyter_aliquot.gateway.planning.cluster.placing import Placed, place
from jupyter_aliquot.gateway.planning.cluster.rules import Rules


class Unit(NamedTuple):
    """Members of running work that leave together: one that is not needed, or all that are."""

    work: Work
    members: tuple[int, ...]


def can_take(work: Work, rules: Rules) -> bool:
    """Return whether running work may be withdrawn at all."""
    running = work.running
    can_leave = running.is_preemptible and (running.can_swap or rules.may_end)
    return can_leave and not work.is_ending and not work.has_moved and bool(work.places)


def victim_order(work: Work) -> tuple[float, float, str]:
    """Return the key of what leaves or moves first: the lowest priority, then the youngest."""
    return (work.running.priority, -work.running.submitted, work.running.name)


def units(works: Iterable[Work], is_protected: Callable[[Work], bool]) -> list[Unit]:
    """Return the units of work in the order in which they leave.

    In a priority the members beyond a least number leave first, one by one, and then whole gangs.
    Protected work loses only the former.
    """
    found: list[tuple[tuple[float, int, float, str], Unit]] = []
    for work in works:
        members = sorted(work.places)
        running = work.running
        surplus = max(0, len(members) - running.min_members)
        for number, member in enumerate(reversed(members[len(members) - surplus :])):
            found.append(
                ((running.priority, number - len(members), -running.submitted, running.name), Unit(work, (member,)))
            )
        if not is_protected(work) and len(members) > surplus:
            core = Unit(work, tuple(members[: len(members) - surplus]))
            found.append(((running.priority, 1, -running.submitted, running.name), core))
    return [unit for _, unit in sorted(found, key=lambda item: item[0])]


def free(engine: Engine, unit: Unit) -> None:
    """Give back the parts of a unit."""
    running = unit.work.running
    for member in unit.members:
        engine.give_back(running.team, unit.work.places[member], is_preemptible=running.is_preemptible)


def place_elsewhere(engine: Engine, unit: Unit, entry: Entry, placed: Placed) -> dict[int, Place] | None:
    """Take parts of the same GPU model for all members of a unit; None if that cannot be.

    A member stays where it is if the request was placed elsewhere. What the request got has to stay lent.
    """
    mark, running = engine.mark(), unit.work.running
    found: dict[int, Place] = {}
    for member in unit.members:
        old = unit.work.places[member]
        new = _new_place(engine, old) if _may_have(engine, unit.work, old) else None
        if new is None:
            engine.undo(mark)
            return None
        engine.take(running.team, new, is_preemptible=running.is_preemptible)
        found[member] = new
    if all(_is_lent(engine, entry, place) for place in placed.places.values()):
        return found
    engine.undo(mark)
    return None


def _new_place(engine: Engine, old: Place) -> Place | None:
    pool = engine.pools[old.model]
    if pool.is_free(old.at, old.demand, old.parts):
        return old
    best = pool.best(old.demand)
    return None if best is None else Place(old.model, best[0], old.demand, best[1])


def _is_lent(engine: Engine, entry: Entry, place: Place) -> bool:
    """Return whether the quotas still allow what the request has got."""
    request, dimension = entry.request, engine.tree.dimension(place.model)
    free = engine.free_in(dimension)
    return engine.accounts.refusal(request.team, dimension, 0, free, is_preemptible=request.is_preemptible) is None


def _may_have(engine: Engine, work: Work, place: Place) -> bool:
    """Return whether work may move at all, and its team's quota, which a request may have got, still allows it."""
    running = work.running
    dimension, milli = engine.tree.dimension(place.model), place.demand.milli
    return running.can_move and (
        engine.accounts.refusal(
            running.team, dimension, milli, engine.free_in(dimension), is_preemptible=running.is_preemptible
        )
        is None
    )


class Taken(NamedTuple):
    """A request that was placed, and what leaves or moves for it."""

    placed: Placed
    withdrawn: list[Unit]
    moved: list[tuple[Unit, dict[int, Place]]]

    def commit(self, draft: Draft, entry: Entry, cause: Cause) -> None:
        """Note all of it in the draft."""
        for unit in self.withdrawn:
            draft.withdraw(unit.work, unit.members, entry, cause)
        for unit, places in self.moved:
            for member, new in places.items():
                if new != unit.work.places[member]:
                    draft.move(unit.work, member, new, entry)
        left = [unit.work.running.name for unit in (*self.withdrawn, *(unit for unit, _ in self.moved))]
        draft.start(entry, self.placed, tuple(dict.fromkeys(left)))


def needed(engine: Engine, entry: Entry, freed: Sequence[Unit], mark: int) -> tuple[Placed, list[Unit]] | None:
    """Return the request's places and the units without which it does not fit; all others keep theirs.

    All are free when it is called. The engine goes back to the mark, and frees what is needed. Units
    that leave last are kept first.
    """
    first = place(engine, entry)
    if not isinstance(first, Placed):
        return None
    nodes = {(one.model, one.at) for one in first.places.values()}
    kept = [unit for unit in freed if any((one.model, one.at) in nodes for one in _places(unit))]
    placed = _place_with(engine, entry, kept, mark)
    if placed is None:
        kept = list(freed)
    for unit in reversed(kept[:]):
        fewer = [one for one in kept if one is not unit]
        found = _place_with(engine, entry, fewer, mark)
        if found is not None:
            kept, placed = fewer, found
    placed = _place_with(engine, entry, kept, mark)
    return None if placed is None else (placed, kept)


def _places(unit: Unit) -> list[Place]:
    return [unit.work.places[member] for member in unit.members]


def _place_with(engine: Engine, entry: Entry, freed: Sequence[Unit], mark: int) -> Placed | None:
    engine.undo(mark)
    for unit in freed:
        free(engine, unit)
    placed = place(engine, entry)
    return placed if isinstance(placed, Placed) else None


def settle(engine: Engine, entry: Entry, freed: Sequence[Unit], mark: int, *, may_move: bool) -> Taken | None:
    """Give back what the request does not need; move what fits elsewhere, the last one first."""
    found = needed(engine, entry, freed, mark)
    if found is None:
        return None
    withdrawn: list[Unit] = []
    moved: list[tuple[Unit, dict[int, Place]]] = []
    for unit in reversed(found[1]):
        places = place_elsewhere(engine, unit, entry, found[0]) if may_move else None
        if places is None:
            withdrawn.append(unit)
        else:
            moved.append((unit, places))
    return Taken(found[0], _joined(withdrawn), moved)


def _joined(found: Sequence[Unit]) -> list[Unit]:
    members: dict[str, tuple[Work, list[int]]] = {}
    for unit in found:
        members.setdefault(unit.work.running.name, (unit.work, []))[1].extend(unit.members)
    return [Unit(work, tuple(sorted(one))) for work, one in members.values()]
