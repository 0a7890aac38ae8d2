"""The placing of one step of a request: its quota, its models in order, and nodes close together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jupyter_aliquot.gateway.planning.node import Demand

from .decisions import Kind, WaitReason
from .engine import Engine, Place, demands_of
from .entries import Entry
from .node_states import Allowed, NodeStates
from .snapshot import Locality

# Reasons that lie in the nodes, and not in the quota of a team.
OF_NODES = (Kind.CAPACITY, Kind.FRAGMENTED, Kind.LOCALITY, Kind.NEVER, Kind.AHEAD)


class Placed(NamedTuple):
    """The places of a step, by member; they are taken."""

    places: dict[int, Place]


def refusal(engine: Engine, entry: Entry) -> WaitReason | None:
    """Return why the quotas refuse the next step on each of its models; None if one allows it."""
    found: WaitReason | None = None
    request = entry.request
    for model in request.models or engine.pools:
        if model in engine.pools:
            found = _refusal_of(engine, entry, model)
            if found is None:
                return None
    return found


def is_allowed_everywhere(engine: Engine, entry: Entry) -> bool:
    """Return whether the quotas allow the next step on each of its models, so that only nodes can refuse it."""
    models = entry.request.models or engine.pools
    return all(_refusal_of(engine, entry, model) is None for model in models if model in engine.pools)


def _refusal_of(engine: Engine, entry: Entry, model: str) -> WaitReason | None:
    request, dimension = entry.request, engine.tree.dimension(model)
    free = engine.free_in(dimension)
    return engine.accounts.refusal(request.team, dimension, entry.milli, free, is_preemptible=request.is_preemptible)


def place(engine: Engine, entry: Entry) -> Placed | WaitReason:
    """Take places for the next step of an entry, all or none. Returns why it has to wait, else."""
    reason: WaitReason | None = None
    request = entry.request
    if entry.is_too_small:
        return WaitReason(Kind.NEVER, entry.milli)
    for model in request.models or engine.pools:
        pool = engine.pools.get(model)
        if pool is None:
            continue
        found = _refusal_of(engine, entry, model)
        placed = _in_pool(engine, entry, model, pool) if found is None else found
        if isinstance(placed, Placed):
            return placed
        if reason is None or reason.kind is Kind.NEVER:
            reason = placed
    return reason or WaitReason(Kind.NEVER, entry.milli)


def _in_pool(engine: Engine, entry: Entry, model: str, pool: NodeStates) -> Placed | WaitReason:
    milli = entry.milli
    if milli > pool.free_milli:
        kind = Kind.NEVER if milli > pool.milli else Kind.CAPACITY
        return WaitReason(kind, milli, pool.free_milli)
    wanted = demands_of(entry.request, entry.step)
    in_one_link = entry.locality is Locality.LINK
    for allowed in _groups(engine, entry.locality, pool, milli, len(wanted)):
        placed = _all(engine, entry, model, wanted, allowed, in_one_link=in_one_link)
        if placed is not None:
            return Placed(placed)
    if not all(pool.could_hold(demand) for _, demand in wanted):
        return WaitReason(Kind.NEVER, milli, pool.free_milli)
    return WaitReason(Kind.LOCALITY if entry.locality else Kind.FRAGMENTED, milli, pool.free_milli)


def _groups(engine: Engine, locality: Locality, pool: NodeStates, milli: int, count: int) -> Iterator[Allowed]:
    """Yield the sets of nodes to try, the closest first; fewest nodes are tried though none are asked."""
    if count == 1 and locality is not Locality.DOMAIN:
        yield None
        return
    yield from pool.nodes_with(milli)
    if locality >= Locality.NODE:
        return
    if engine.domains > 1:
        yield from (nodes for free, nodes in _domains(engine, pool) if free >= milli)
    if locality is Locality.ANY or engine.domains <= 1:
        yield None


def _domains(engine: Engine, pool: NodeStates) -> list[tuple[int, Sequence[int]]]:
    """Return the free milli and the nodes of each network domain, the fullest domain first."""
    found: dict[str, list[int]] = {}
    for at, node in enumerate(pool.nodes):
        found.setdefault(engine.nodes[node.name].domain, []).append(at)
    free = {domain: sum(pool.nodes[at].free_milli for at in nodes) for domain, nodes in found.items()}
    return [(free[domain], nodes) for domain, nodes in sorted(found.items(), key=lambda item: (free[item[0]], item[0]))]


def _all(
    engine: Engine,
    entry: Entry,
    model: str,
    wanted: Sequence[tuple[int, Demand]],
    allowed: Allowed,
    *,
    in_one_link: bool,
) -> dict[int, Place] | None:
    pool, request, mark = engine.pools[model], entry.request, engine.mark()
    found: dict[int, Place] = {}
    for index, demand in wanted:
        best = pool.best(demand, in_one_link=in_one_link, allowed=allowed)
        if best is None:
            engine.undo(mark)
            return None
        place = Place(model, best[0], demand, best[1])
        engine.take(request.team, place, is_preemptible=request.is_preemptible)
        found[index] = place
    return found
