"""Reclaim between teams and preemption within one: which running work leaves for a request."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from jupyter_aliquot.gateway.planning.cluster.engine import Engine
from jupyter_aliquot.gateway.planning.cluster.entries import Entry
from jupyter_aliquot.gateway.planning.cluster.placing import Placed, place
from jupyter_aliquot.gateway.planning.cluster.rules import Rules
from jupyter_aliquot.gateway.planning.cluster.shares import Shares

from .withdrawing import Taken, Unit, can_take, free, settle, units


def preempt_for(engine: Engine, shares: Shares, entry: Entry, rules: Rules, now: float) -> Taken | None:
    """Withdraw preemptible work of lower priority of the same team, the lowest and youngest first."""
    request = entry.request
    runtime = engine.tree.preempt_min_runtime(request.team)
    found = [
        work
        for work in engine.works_by_team.get(request.team, [])
        if work.running.name != request.name and work.running.priority < request.priority and can_take(work, rules)
    ]
    mark, freed = engine.mark(), list[Unit]()
    for unit in units(found, lambda work: now - work.running.started < runtime)[: rules.most_victims]:
        free(engine, unit)
        freed.append(unit)
        before = engine.mark()
        if isinstance(place(engine, entry), Placed):
            engine.undo(before)
            return settle(engine, entry, freed, mark, may_move=rules.may_move_victims)
    engine.undo(mark)
    return None


def reclaim_for(engine: Engine, shares: Shares, entry: Entry, rules: Rules, now: float) -> Taken | None:
    """Withdraw work that is over its team's share, the most over-served team first."""
    for dimension in shares.dimensions(entry.request.models):
        found = _Reclaim(engine, shares, entry, rules, now, dimension).run()
        if found is not None:
            return found
    return None


class _Reclaim:
    """The search for one request and one model's quota."""

    def __init__(self, engine: Engine, shares: Shares, entry: Entry, rules: Rules, now: float, dimension: str) -> None:
        self._engine, self._shares, self._entry = engine, shares, entry
        self._rules, self._now, self._dimension = rules, now, dimension
        self._team, self._milli = entry.request.team, entry.milli
        self._path = engine.tree.paths[self._team]

    def run(self) -> Taken | None:
        if not self._may_reclaim():
            return None
        mark, freed = self._engine.mark(), list[Unit]()
        for unit in self._victims():
            free(self._engine, unit)
            freed.append(unit)
            before = self._engine.mark()
            if isinstance(place(self._engine, self._entry), Placed):
                self._engine.undo(before)
                taken = settle(self._engine, self._entry, freed, mark, may_move=self._rules.may_move_victims)
                if taken is not None and self._is_fair(taken):
                    return taken
                break
            if len(freed) >= self._rules.most_victims:
                break
        self._engine.undo(mark)
        return None

    def _may_reclaim(self) -> bool:
        """Return whether the team stays within its share with the request. Quotas bound the rest."""
        held = self._engine.accounts.held(self._team, self._dimension)
        is_preemptible = self._entry.request.is_preemptible
        return not is_preemptible or held + self._milli <= self._shares.of(self._team, self._dimension)

    def _victims(self) -> Iterator[Unit]:
        """Yield units of other teams while they are over-served; shares change as the caller frees them.

        Freeing lowers keys alone, so that the first key that is still true when it comes up is the largest.
        """
        heap: list[tuple[_Last, str]] = []
        for team in self._engine.works_by_team:
            if team != self._team and self._is_over(*self._branches(team)):
                heap.append((_Last(self._order_of(team)), team))
        heapify(heap)
        queues: dict[str, Iterator[Unit]] = {}
        while heap:
            key, team = heappop(heap)
            now = _Last(self._order_of(team))
            if key < now:
                heappush(heap, (now, team))
                continue
            if team not in queues:
                queues[team] = self._queue(team)
            unit = next(queues[team], None) if self._is_over(*self._branches(team)) else None
            if unit is not None:
                yield unit
                heappush(heap, (now, team))

    def _queue(self, team: str) -> Iterator[Unit]:
        """Yield the units of one team in their order."""
        tree, entry = self._engine.tree, self._entry
        runtime = tree.min_runtime(team, self._team)
        found = [
            work
            for work in self._engine.works_by_team[team]
            if can_take(work, self._rules)
            and work.running.name != entry.request.name
            and any(tree.dimension(place.model) == self._dimension for place in work.places.values())
        ]
        return iter(units(found, lambda work: self._now - work.running.started < runtime))

    def _order_of(self, team: str) -> tuple[object, ...]:
        path = self._engine.tree.paths[team]
        return tuple(self._shares.over_served(name, self._dimension) for name in reversed(path))

    def _branches(self, team: str) -> tuple[str, str]:
        """Return the teams at which the two paths part: the victim's and the request's."""
        own, other = list(reversed(self._path)), list(reversed(self._engine.tree.paths[team]))
        at = 0
        while at < len(own) - 1 and at < len(other) - 1 and own[at] == other[at]:
            at += 1
        return other[at], own[at]

    def _is_over(self, victim: str, own: str) -> bool:
        held = self._engine.accounts.held(victim, self._dimension)
        if held > self._shares.of(victim, self._dimension):
            return True
        nominal = self._engine.tree.quota(victim, self._dimension).nominal
        return nominal is not None and held > nominal and self._is_owed(own)

    def _is_owed(self, own: str) -> bool:
        """Return whether the request is within the nominal quota of the team where the paths part."""
        nominal = self._engine.tree.quota(own, self._dimension).nominal
        return nominal is None or self._engine.accounts.held(own, self._dimension) + self._milli <= nominal

    def _is_fair(self, taken: Taken) -> bool:
        """Return whether a team above its share is still less above it than those that gave."""
        for unit in taken.withdrawn:
            victim, own = self._branches(unit.work.running.team)
            ratio = self._shares.ratio(own, self._dimension)
            if ratio > 1 and ratio * self._rules.victim_margin >= self._shares.ratio(victim, self._dimension):
                return False
        return True


class _Last:
    """A key that sorts the other way round."""

    def __init__(self, key: tuple[object, ...]) -> None:
        self._key = key

    def __lt__(self, other: _Last) -> bool:
        return bool(other._key < self._key)
