"""The GPUs that each team holds, by model, while a plan is made, and what its quotas allow."""

from __future__ import annotations

from .decisions import Kind, WaitReason
from .team_tree import TeamTree


class Accounts:
    """The milli that teams hold: all of it, and that of work that is not preemptible.

    A team above others holds what they hold.
    """

    def __init__(self, tree: TeamTree) -> None:
        self._tree = tree
        self._held: dict[tuple[str, str], int] = {}
        self._fixed: dict[tuple[str, str], int] = {}
        self._lends = any(
            quota.lending_limit is not None for team in tree.teams.values() for quota in team.quotas.values()
        )

    def held(self, team: str, dimension: str) -> int:
        """Return what a team holds, preemptible or not."""
        return self._held.get((team, dimension), 0)

    def fixed(self, team: str, dimension: str) -> int:
        """Return what work of the team holds that is not preemptible."""
        return self._fixed.get((team, dimension), 0)

    def add(self, team: str, dimension: str, milli: int, *, is_preemptible: bool) -> None:
        """Count so much more for a team and all above it; less if it is negative."""
        for name in self._tree.paths[team]:
            key = (name, dimension)
            self._held[key] = self._held.get(key, 0) + milli
            if not is_preemptible:
                self._fixed[key] = self._fixed.get(key, 0) + milli

    def refusal(self, team: str, dimension: str, milli: int, free: int, *, is_preemptible: bool) -> WaitReason | None:
        """Return why the team may not have so much more now; None if it may."""
        for name in self._tree.paths[team]:
            quota = self._tree.quota(name, dimension)
            if quota.limit is not None and self.held(name, dimension) + milli > quota.limit:
                return WaitReason(Kind.TEAM_LIMIT, milli, max(0, quota.limit - self.held(name, dimension)), name)
            if is_preemptible or quota.nominal is None:
                continue
            if self.fixed(name, dimension) + milli > quota.nominal:
                return WaitReason(Kind.NOMINAL_QUOTA, milli, max(0, quota.nominal - self.fixed(name, dimension)), name)
        return self._not_lent(team, dimension, milli, free) if self._lends else None

    def _not_lent(self, team: str, dimension: str, milli: int, free: int) -> WaitReason | None:
        nominal = self._tree.quota(team, dimension).nominal
        if nominal is None or self.held(team, dimension) + milli <= nominal:
            return None
        kept = 0
        for name in self._tree.teams:
            if name in self._tree.paths[team] or name in self._tree.children:
                continue
            quota = self._tree.quota(name, dimension)
            if quota.nominal is not None and quota.lending_limit is not None:
                kept += max(0, quota.nominal - quota.lending_limit - self.held(name, dimension))
        return WaitReason(Kind.NOT_LENT, milli, max(0, free - kept), team) if milli > free - kept else None

    def is_within(self, team: str, dimension: str, milli: int) -> bool:
        """Return whether the team and all above it stay within nominal quota with so much more."""
        for name in self._tree.paths[team]:
            nominal = self._tree.quota(name, dimension).nominal
            if nominal is not None and self.held(name, dimension) + milli > nominal:
                return False
        return True
