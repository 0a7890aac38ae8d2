"""Consolidation: moves of running work after which a request fits that the free parts would hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jupyter_aliquot.gateway.planning.cluster.engine import Engine, Place, Work
from jupyter_aliquot.gateway.planning.cluster.entries import Entry
from jupyter_aliquot.gateway.planning.cluster.placing import Placed, place
from jupyter_aliquot.gateway.planning.cluster.rules import Rules

from .withdrawing import Taken, Unit, free, needed, place_elsewhere, victim_order

_MOST_NODES = 24  # that are tried for one request


def move_for(engine: Engine, entry: Entry, rules: Rules) -> Taken | None:
    """Place a request by moving others; all that moves has a new place, or nothing is done.

    None also for a request that fits without: it needs no moves.
    """
    request, mark = entry.request, engine.mark()
    if isinstance(place(engine, entry), Placed):
        engine.undo(mark)
        return None
    for model in request.models or engine.pools:
        pool = engine.pools.get(model)
        if pool is None or pool.free_milli < entry.milli:
            continue
        movable = [
            Unit(work, (member,))
            for work in sorted(engine.works.values(), key=victim_order)
            if _can_move(work, entry)
            for member, one in sorted(work.places.items())
            if one.model == model
        ]
        for candidates in _choices(engine, movable, rules):
            found = _try(engine, entry, candidates)
            if found is not None:
                return found
    return None


def _can_move(work: Work, entry: Entry) -> bool:
    running = work.running
    is_movable = running.is_preemptible and running.can_move and not work.has_moved
    return is_movable and running.name != entry.request.name


def _choices(engine: Engine, movable: Sequence[Unit], rules: Rules) -> Iterator[Sequence[Unit]]:
    """Yield the work of single nodes, the one with the least to move first, and then of all."""
    nodes: dict[tuple[str, int], list[Unit]] = {}
    for unit in movable:
        one = _place(unit)
        nodes.setdefault((one.model, one.at), []).append(unit)

    def milli(unit: Unit) -> int:
        return _place(unit).demand.milli

    def order(item: tuple[tuple[str, int], list[Unit]]) -> tuple[object, ...]:
        return (sum(map(milli, item[1])), victim_order(item[1][0].work), item[0])

    by_size = sorted(nodes.items(), key=order)
    for _, members in by_size[:_MOST_NODES]:
        yield sorted(members, key=milli)
    if len(nodes) > 1:
        yield movable[: rules.most_victims]


def _place(unit: Unit) -> Place:
    return unit.work.places[unit.members[0]]


def _try(engine: Engine, entry: Entry, candidates: Sequence[Unit]) -> Taken | None:
    """Free one candidate after the other until the request fits and all of them have new places."""
    start, freed = engine.mark(), list[Unit]()
    for unit in candidates:
        free(engine, unit)
        freed.append(unit)
        mark = engine.mark()
        if isinstance(place(engine, entry), Placed):
            engine.undo(mark)
            found = needed(engine, entry, freed, start)
            moved = None if found is None else _replace(engine, entry, found)
            if found is not None and moved:
                return Taken(found[0], [], moved)
            engine.undo(start)
            for one in freed:
                free(engine, one)
    engine.undo(start)
    return None


def _replace(
    engine: Engine, entry: Entry, found: tuple[Placed, Sequence[Unit]]
) -> list[tuple[Unit, dict[int, Place]]] | None:
    """Return new places for all units, the largest first; None if one has none."""
    placed, freed = found
    moved: list[tuple[Unit, dict[int, Place]]] = []
    for unit in sorted(freed, key=lambda one: -_place(one).demand.milli):
        places = place_elsewhere(engine, unit, entry, placed)
        if places is None:
            return None
        moved.append((unit, places))
    return moved
