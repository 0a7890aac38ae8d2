"""The GPUs that each team may still take: nominal quotas, borrowing and lending over the tree. Pure.

A team first uses its own quota. What it does not use, up to its lending limit, goes to the team above
it, from which it and its siblings borrow. The organization has all GPUs that no team is owed. It is
the arithmetic of Kueue's cohorts, with the organization as the root.

Amounts are hundredths of a GPU, by GPU model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from jupyter_aliquot.gateway.planning.hierarchy import TOP
from jupyter_aliquot.gateway.planning.surplus import surplus_parts

from .values import Amounts, Quotas, Team

# The organization, above all teams.
ROOT = TOP


@dataclass(frozen=True)
class Use:
    """A team's GPUs of one model that one kernel holds."""

    team: str
    model: str
    hundredths: int


@dataclass(frozen=True)
class TeamTree:
    """The quotas, the GPUs that there are by model, and what each team's own kernels hold.

    ``usage`` is what teams had over quota before, as a part of the GPUs (``planning.surplus``).
    """

    quotas: Quotas
    gpus: Amounts
    own: dict[tuple[str, str], int] = field(default_factory=dict)
    usage: Mapping[str, float] = field(default_factory=dict)
    # The quotas that were computed, by team and model. They depend on the file and the GPUs alone.
    _known: dict[tuple[str, str], int] = field(default_factory=dict, compare=False, repr=False)
    _most: dict[tuple[str, str], int] = field(default_factory=dict, compare=False, repr=False)
    # The teams above a team, itself first, and what each lends none of.
    _ways: dict[tuple[str, str], tuple[tuple[str, int], ...]] = field(default_factory=dict, compare=False, repr=False)
    # What teams use, as far as it was computed.
    _used: dict[tuple[str, str], int] = field(default_factory=dict, compare=False, repr=False)

    def plus(self, uses: Iterable[Use], sign: int = 1) -> TeamTree:
        """Return the tree with more held; ``sign`` -1: with less."""
        tree = self.draft()
        for use in uses:
            tree.add(use.team, use.model, sign * use.hundredths)
        return tree

    def draft(self) -> TeamTree:
        """Return a copy, to which its owner may ``add`` until others see it."""
        return replace(self, own=dict(self.own), _used=dict(self._used))

    def with_gpus(self, model: str, more: int) -> TeamTree:
        """Return the tree with more GPUs of a model, of which teams are owed none."""
        known = {key: quota for key, quota in self._known.items() if key != (ROOT, model)}
        gpus = {**self.gpus, model: self.gpus.get(model, 0) + more}
        return replace(self, gpus=gpus, _known=known, _most={})

    def add(self, team: str, model: str, more: int) -> None:
        """Count so much more for a team, and for those above it, in place. Only for the owner of a draft."""
        self.own[team, model] = self.own.get((team, model), 0) + more
        used = self._used
        for above, kept in self._kept_on_way(team, model):
            before = used.get((above, model))
            if before is None:
                return  # it was never computed, and so neither was that of those above
            used[above, model] = before + more
            if kept:
                more = max(0, before + more - kept) - max(0, before - kept)
            elif before + more < 0 or before < 0:
                more = max(0, before + more) - max(0, before)

    def nominal(self, team: str, model: str) -> int:
        """Return the team's own nominal quota; of the organization, what no team is owed."""
        if team != ROOT:
            return self.quotas.teams[team].nominal.get(model, 0)
        owed = sum(one.nominal.get(model, 0) for one in self.quotas.teams.values())
        return max(0, self.gpus.get(model, 0) - owed)

    def quota(self, team: str, model: str) -> int:
        """Return what the team and those below it are owed, without what these do not lend."""
        found = self._known.get((team, model))
        if found is None:
            lent = (self._lends(child.name, model) for child in self.quotas.children(team))
            found = self._known[team, model] = self.nominal(team, model) + sum(lent)
        return found

    def used(self, team: str, model: str) -> int:
        """Return what the team's kernels hold, and what the teams below it hold of the team's quota."""
        found = self._used.get((team, model))
        if found is None:
            below = (self._used_above(child, model) for child in self.quotas.children(team))
            found = self._used[team, model] = self.own.get((team, model), 0) + sum(below)
        return found

    def borrowed(self, team: str, model: str) -> int:
        """Return what the team holds beyond its quota."""
        return max(0, self.used(team, model) - self.quota(team, model))

    def lent(self, team: str, model: str) -> int:
        """Return what others could use of the team's quota now: the unused part that it lends."""
        unused = max(0, self.quota(team, model) - self.used(team, model))
        return min(unused, self._lends(team, model))

    def available(self, team: str, model: str) -> int:
        """Return how much more the team may take; below 0 where a reload took more than that away."""
        if team == ROOT:
            return self.quota(ROOT, model) - self.used(ROOT, model)
        one, quota, used = self.quotas.teams[team], self.quota(team, model), self.used(team, model)
        kept = quota - self._lends(team, model)
        above = self.available(one.parent, model)
        if one.borrowing is not None:
            in_parent = max(0, used - kept)
            above = min(above, quota - kept - in_parent + one.borrowing.get(model, 0))
        return max(0, kept - used) + above

    def within_quota(self, team: str, model: str) -> int:
        """Return how much more the team may take without borrowing."""
        return max(0, self.quota(team, model) - self.used(team, model))

    def most(self, team: str, model: str) -> int:
        """Return the most that the team could ever hold, while all others hold nothing."""
        if (team, model) not in self._most:
            empty = replace(self, own={}, _used={})
            self._most[team, model] = empty.available(team, model)
        return self._most[team, model]

    def over_quota(self, team: str) -> float:
        """Return the team's largest part of a model's GPUs beyond its quota."""
        models = self.quotas.models
        if len(models) == 1:
            return self.borrowed(team, models[0]) / max(1, self.gpus.get(models[0], 0))
        return max((self.borrowed(team, one) / max(1, self.gpus.get(one, 0)) for one in models), default=0.0)

    def surplus_parts(self, teams: Iterable[str]) -> dict[str, float]:
        """Return the part of what no team uses that each of these teams may have: by weight and past use."""
        return surplus_parts({team: self.weight(team) for team in teams}, self.usage)

    def dominant_share(self, team: str, parts: Mapping[str, float]) -> float:
        """Return what the team borrows of a model's GPUs at most, by its part of ``surplus_parts``.

        Of teams that all borrow, the one with the least is served next, and one without a part last.
        Source: Ghodsi et al., "Dominant Resource Fairness", NSDI 2011, over GPU models.
        """
        return self.over_quota(team) / parts[team] if parts[team] else math.inf

    def used_share(self, team: str) -> float:
        """Return the team's largest part of a model's GPUs, by its weight."""
        parts = (self.used(team, one) / max(1, self.gpus.get(one, 0)) for one in self.quotas.models)
        return max(parts, default=0.0) / self.weight(team)

    def may_reclaim(self, team: str, victim: str, model: str, more: int) -> bool:
        """Return whether so much more for the team may be taken from a team that borrows.

        Below the nearest team above both, the one side has to stay within its quota, and each team
        of the other side has to borrow.
        """
        mine, theirs = self.quotas.hierarchy.apart(team, victim)
        if not mine or not theirs:
            return False  # a team takes nothing from those above and below it
        if self.used(mine[-1], model) + more > self.quota(mine[-1], model):
            return False
        return all(self.borrowed(one, model) > 0 for one in theirs)

    def weight(self, team: str) -> float:
        return self.quotas.teams[team].weight if team in self.quotas.teams else 1.0

    def _kept_on_way(self, team: str, model: str) -> tuple[tuple[str, int], ...]:
        """Return the team, those above it, and the organization, with the part of its quota that each does not lend."""
        if (team, model) not in self._ways:
            above = [*self.quotas.hierarchy.way(team)]
            kept = [(one, self.quota(one, model) - self._lends(one, model)) for one in above]
            self._ways[team, model] = (*kept, (ROOT, 0))
        return self._ways[team, model]

    def _lends(self, team: str, model: str) -> int:
        """Return what the team lends of its quota at most."""
        quota = self.quota(team, model)
        lending = self.quotas.teams[team].lending
        return quota if lending is None else min(quota, lending.get(model, 0))

    def _used_above(self, team: Team, model: str) -> int:
        """Return what the team holds of that which it lends or borrows."""
        kept = self.quota(team.name, model) - self._lends(team.name, model)
        return max(0, self.used(team.name, model) - kept)
