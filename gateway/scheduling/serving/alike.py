"""Requests that a plan has to decide alike: of those that wait, the first one decides for all. Pure.

While a plan is made, capacity and quotas only shrink. So a request waits if one of the same size, of the same
team, waits already. A kernel that changes its size may free some: then all are decided anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from jupyter_aliquot.gateway.planning.colocation import NO_LOADS

if TYPE_CHECKING:
    from jupyter_aliquot.gateway.scheduling.capacity import Capacity
    from jupyter_aliquot.gateway.scheduling.ledger import LedgerSnapshot
    from jupyter_aliquot.gateway.scheduling.lending.team_quotas import Shortage, TeamQuotas
    from jupyter_aliquot.gateway.scheduling.planner import Pending

# Who asks, as far as that matters; the size; the kernelspec, where it tells a load; whether it is new.
Alike = tuple[str, str, str, bool]


class Claim(NamedTuple):
    """The share that is set aside for a request that waits: the team, the models that it takes, and hundredths."""

    team: str
    models: Sequence[str]
    more: int


class Blocked(NamedTuple):
    """The first request of its kind that waits: for its team's quota, or for room.

    One that has room, which it may not take before those ahead, waits while the ``capacity`` is the same, and so
    many ``sizes`` are ahead. ``claim``: what is set aside for each; None without quotas.
    """

    shortage: Shortage | None
    claim: Claim | None
    capacity: Capacity | None = None
    sizes: int = 0


class AlikeRequests:
    """The kinds of requests of one plan, and those of which one waits."""

    def __init__(self, snapshot: LedgerSnapshot, quotas: TeamQuotas | None, now: float, *, by_owner: bool) -> None:
        self._quotas, self._now, self._by_owner = quotas, now, by_owner
        self._has_loads = snapshot.loads is not NO_LOADS
        self._locality_seconds = 0.0 if snapshot.quotas is None else snapshot.quotas.locality_seconds
        self._askers: dict[tuple[str, frozenset[str]], str] = {}
        self._blocked: dict[Alike, Blocked] = {}

    def kind_of(self, entry: Pending) -> Alike | None:
        """Return the kind of a request for new devices; None for another one, and at its deadline."""
        if entry.returns_to is not None or entry.held is not None or entry.replaces or entry.is_preempting:
            return None
        if entry.deadline is not None and self._now >= entry.deadline:
            return None
        asker = self._askers.get((entry.owner, entry.teams))
        if asker is None:
            asker = self._askers[entry.owner, entry.teams] = self._asker(entry)
        is_new = self._now - entry.since < self._locality_seconds
        return asker, entry.alike, entry.kernelspec if self._has_loads else "", is_new

    def blocked(self, kind: Alike, capacity: Capacity, sizes: int) -> Blocked | None:
        """Return how the first request of a kind waits; None if none is known to wait."""
        found = self._blocked.get(kind)
        if found is None or found.capacity is None:
            return found
        return found if found.capacity is capacity and found.sizes == sizes else None

    def note(self, kind: Alike, found: Blocked) -> None:
        """Note that a request of a kind waits."""
        self._blocked[kind] = found

    def forget(self) -> None:
        """Decide about all anew."""
        self._blocked.clear()

    def _asker(self, entry: Pending) -> str:
        team = "" if self._quotas is None else self._quotas.team_of(entry.owner, entry.teams)
        return f"{team}\n{entry.owner}" if self._by_owner or self._has_loads else team
