"""Teams as a tree, checked, and the fair share of each: what its quota and its weight give it now.

Source of the division: KAI-Scheduler's description of fair share (docs of v0.17), as the notes on
scheduling give it: first what is owed, then the surplus by priority and weight in whole devices.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from jupyter_aliquot.gateway.planning.hierarchy import TOP, Fault, Hierarchy, HierarchyError
from jupyter_aliquot.gateway.planning.jobs import DEVICE
from jupyter_aliquot.gateway.planning.surplus import surplus_parts

from .rules import PlanningError
from .snapshot import ANY_MODEL, Quota, Team

_NO_QUOTA = Quota()


class TeamTree:
    """The teams by name, with their children and the path to the top. Raises PlanningError if they are no tree."""

    def __init__(self, teams: Iterable[Team]) -> None:
        self.teams: dict[str, Team] = {}
        for team in teams or (Team("", quotas={ANY_MODEL: Quota(None)}),):
            if team.name in self.teams:
                raise PlanningError(f"The team {team.name!r} occurs twice. Give each team a name of its own")
            _check(team)
            self.teams[team.name] = team
        try:
            self.hierarchy = Hierarchy({team.name: team.parent for team in self.teams.values()})
        except HierarchyError as error:
            raise _no_tree(error.fault) from error
        self.paths = self.hierarchy.ways
        # Those of None are at the top, which has no team.
        self.children: dict[str | None, list[Team]] = {None: self._below(TOP)}
        self.children |= {name: below for name in self.paths if name != TOP and (below := self._below(name))}
        # The models that have a quota of their own.
        self.models = {model for team in self.teams.values() for model in team.quotas} | {ANY_MODEL}

    def dimension(self, model: str) -> str:
        """Return the model whose quota a GPU of this model counts for."""
        return model if model in self.models else ANY_MODEL

    def quota(self, team: str, dimension: str) -> Quota:
        """Return the quota of a team; one of nothing if it has none."""
        return self.teams[team].quotas.get(dimension, _NO_QUOTA)

    def min_runtime(self, victim: str, other: str) -> float:
        """Return the seconds for which the work of *victim* is safe from the other team."""
        found, _ = self.hierarchy.apart(victim, other)
        shared = self.paths[victim][len(found) :]
        for name in (*found[-1:], *shared):
            runtime = self.teams[name].reclaim_min_runtime
            if runtime is not None:
                return runtime
        return 0.0

    def preempt_min_runtime(self, team: str) -> float:
        """Return the seconds for which the work of a team is safe from its own team."""
        found = (self.teams[name].preempt_min_runtime for name in self.paths[team])
        return next((one for one in found if one is not None), 0.0)

    def _below(self, name: str) -> list[Team]:
        if name == TOP and name in self.teams:
            return [self.teams[name]]
        below = (self.teams[one] for one in self.hierarchy.children(name))
        return sorted(below, key=lambda one: (one.order, one.name))


def _no_tree(fault: Fault) -> PlanningError:
    if fault.cycle:
        way = " → ".join(fault.cycle)
        return PlanningError(f"The teams are a cycle: {way}. Give one of them another parent, or none")
    return PlanningError(f"The parent {fault.parent!r} of the team {fault.name!r} is no team. Add it, or remove it")


def _check(team: Team) -> None:
    if not 0 <= team.weight < math.inf:
        raise PlanningError(f"The weight of the team {team.name!r} is {team.weight}. Give it 0 or more")
    if not 0 <= team.usage < math.inf:
        raise PlanningError(f"The usage of the team {team.name!r} is {team.usage}. Give it 0 or more")
    for model, quota in team.quotas.items():
        for name in ("nominal", "borrowing_limit", "lending_limit"):
            value = getattr(quota, name)
            if value is not None and value < 0:
                of = f" for {model}" if model else ""
                raise PlanningError(
                    f"The {name} of the team {team.name!r}{of} is {value}. Give it 0 or more, or none at all"
                )


def fair_shares(
    tree: TeamTree, dimension: str, capacity: int, wanted: Mapping[str, int], usage_factor: float = 0.0
) -> dict[str, int]:
    """Return team to fair share, milli. *wanted* is what each team holds and waits for, up to its limit."""
    found: dict[str, int] = {}

    def divide(parent: str | None, total: int) -> None:
        siblings = tree.children.get(parent, [])
        found.update(_divide(tree, dimension, siblings, total, wanted, usage_factor))
        for team in siblings:
            divide(team.name, found[team.name])

    divide(None, capacity)
    return found


def _divide(
    tree: TeamTree, dimension: str, teams: Sequence[Team], total: int, wanted: Mapping[str, int], factor: float
) -> dict[str, int]:
    shares: dict[str, int] = {}
    for team in teams:
        nominal = tree.quota(team.name, dimension).nominal
        shares[team.name] = min(total if nominal is None else nominal, wanted.get(team.name, 0))
    left = total - sum(shares.values())
    for priority in sorted({team.priority for team in teams}, reverse=True):
        if left <= 0:
            break
        bucket = [team for team in teams if team.priority == priority and team.weight > 0]
        left = _surplus(bucket, left, shares, wanted, factor)
    return shares


def _surplus(teams: Sequence[Team], left: int, shares: dict[str, int], wanted: Mapping[str, int], factor: float) -> int:
    """Give the surplus to teams that want more, by weight in whole devices; return what is left."""
    rests: dict[str, float] = {}
    again = True
    while again and left > 0:
        again = False
        hungry = [team for team in teams if wanted.get(team.name, 0) > shares[team.name]]
        usage = {team.name: team.usage for team in hungry}
        parts = surplus_parts({team.name: team.weight for team in hungry}, usage, factor)
        rests = {}
        given = 0
        for team in hungry:
            part = parts[team.name] * left
            more = wanted[team.name] - shares[team.name]
            if more <= part:
                give, again = more, again or more < part
            else:
                give = min(int(part + 1e-6) // DEVICE * DEVICE, left - given)
                rests[team.name] = part - give
            give = min(give, left - given)
            shares[team.name] += give
            given += give
        left -= given
        again = again and given > 0
    for name in sorted(rests, key=lambda one: -rests[one]):
        give = min(DEVICE, left, wanted[name] - shares[name])
        if give > 0:
            shares[name] += give
            left -= give
    return left
