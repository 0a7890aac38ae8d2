"""The fair shares of all teams in a plan, and the order of teams that follows from what they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .engine import Engine
from .entries import Entry
from .rules import Rules, TeamOrder
from .team_queues import Key
from .team_tree import TeamTree, fair_shares

# The ratio of a team that holds something and has no share, by device.
_NO_SHARE = 1000.0


class Shares:
    """Fair share by team and model. The engine knows what teams hold meanwhile."""

    def __init__(self, engine: Engine, entries: Sequence[Entry], rules: Rules) -> None:
        self._tree, self._accounts, self._rules = engine.tree, engine.accounts, rules
        self.capacity: dict[str, int] = {}
        for model, pool in engine.pools.items():
            dimension = self._tree.dimension(model)
            self.capacity[dimension] = self.capacity.get(dimension, 0) + pool.milli
        self._models = list(engine.pools)
        self._choices: dict[tuple[str, ...], tuple[str, ...]] = {}
        wanted = self._wanted(entries)
        self._shares = {
            dimension: fair_shares(self._tree, dimension, total, wanted[dimension], rules.usage_factor)
            for dimension, total in self.capacity.items()
        }
        self._order = {name: float(at) for at, name in enumerate(_by_age(self._tree))}

    def of(self, team: str, dimension: str) -> int:
        """Return the fair share of a team, milli."""
        return self._shares[dimension].get(team, 0)

    def all(self) -> dict[tuple[str, str], int]:
        """Return (model, team) to fair share."""
        return {
            (dimension, team): share for dimension, shares in self._shares.items() for team, share in shares.items()
        }

    def ratio(self, team: str, dimension: str, more: int = 0) -> float:
        """Return what a team holds, and so much more, by its share."""
        held, share = self._accounts.held(team, dimension) + more, self.of(team, dimension)
        share = max(share, min(self._tree.quota(team, dimension).nominal or 0, self.capacity[dimension]))
        return held / share if share else held * _NO_SHARE

    def key(self, team: str, entry: Entry) -> Key:
        """Return the key of a team whose next request this is; the smallest is served next."""
        if self._rules.team_order is TeamOrder.FIFO:
            return entry.key
        dimension, milli = self.dimensions(entry.request.models)[0], entry.milli
        if self._rules.team_order is TeamOrder.DRF:
            return (self._dominant(team, dimension, milli), self._order[team])
        held = self._accounts.held(team, dimension)
        nominal = self._tree.quota(team, dimension).nominal
        return (
            held >= self.of(team, dimension),
            nominal is not None and held + milli > nominal,
            -self._tree.teams[team].priority,
            self.ratio(team, dimension, milli),
            milli,
            self._order[team],
        )

    def over_served(self, team: str, dimension: str) -> Key:
        """Return a key that is largest for the team from which the first GPU is taken."""
        held, nominal = self._accounts.held(team, dimension), self._tree.quota(team, dimension).nominal
        return (
            held > self.of(team, dimension),
            nominal is not None and held > nominal,
            -self._tree.teams[team].priority,
            self.ratio(team, dimension),
            self._order[team],
        )

    def dimensions(self, models: tuple[str, ...]) -> tuple[str, ...]:
        """Return the quotas that a choice of models may count for, in its order."""
        found = self._choices.get(models)
        if found is None:
            known = [self._tree.dimension(model) for model in models or self._models if model in self._models]
            found = self._choices[models] = tuple(dict.fromkeys(known)) or ("",)
            for dimension in found:
                self.capacity.setdefault(dimension, 0)
        return found

    def _dominant(self, team: str, dimension: str, milli: int) -> float:
        """Return the largest part that the team would hold of any GPU model, by its weight."""
        parts = [
            (self._accounts.held(team, one) + (milli if one == dimension else 0)) / (total or 1)
            for one, total in self.capacity.items()
        ]
        return max(parts) / (self._tree.teams[team].weight or 1e-9)

    def _wanted(self, entries: Sequence[Entry]) -> dict[str, dict[str, int]]:
        """Return model to team to what it holds and waits for, within its limit."""
        pending: dict[tuple[str, str], int] = {}
        for entry in entries:
            request = entry.request
            for dimension in self.dimensions(request.models):
                key = (request.team, dimension)
                pending[key] = pending.get(key, 0) + request.milli
        found: dict[str, dict[str, int]] = {dimension: {} for dimension in self.capacity}
        for dimension, wanted in found.items():
            self._want(dimension, pending, wanted)
        return found

    def _want(self, dimension: str, pending: Mapping[tuple[str, str], int], wanted: dict[str, int]) -> None:
        below: dict[str, int] = {}
        for team in sorted(self._tree.paths, key=lambda one: -len(self._tree.paths[one])):
            own = self._accounts.held(team, dimension) - sum(
                self._accounts.held(child.name, dimension) for child in self._tree.children.get(team, [])
            )
            total = own + pending.get((team, dimension), 0) + below.get(team, 0)
            limit = self._tree.quota(team, dimension).limit
            wanted[team] = total if limit is None else min(total, limit)
            parent = self._tree.teams[team].parent
            below[parent] = below.get(parent, 0) + wanted[team]


def _by_age(tree: TeamTree) -> list[str]:
    return sorted(tree.teams, key=lambda name: (tree.teams[name].order, name))
