"""Requests that a plan has to decide alike: of those that wait, the first one decides for all. Pure.

While a plan is made, capacity and quotas only shrink. So a request waits if one of the same size, of the same
team, waits already. A kernel that changes its size may free some: then all are decided anew.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import TYPE_CHECKING, NamedTuple

from jupyter_aliquot.gateway.planning.colocation import NO_LOADS

if TYPE_CHECKING:
    from jupyter_aliquot.gateway.scheduling.capacity import Capacity
    from jupyter_aliquot.gateway.scheduling.ledger import LedgerSnapshot
    from jupyter_aliquot.gateway.scheduling.lending.team_quotas import Shortage, TeamQuotas
    from jupyter_aliquot.gateway.scheduling.planner import Pending


class Alike:
    """A kind of requests that a plan decides alike, and how the first of them waits; None: none is known to."""

    __slots__ = ("blocked", "joined")

    def __init__(self) -> None:
        self.blocked: Blocked | None = None
        # How many joined it since what is set aside for them was claimed last.
        self.joined = 0

    def claimed(self) -> Claim:
        """Return what is set aside for all that joined it; none of them counts from now on."""
        assert self.blocked is not None
        assert self.blocked.claim is not None
        claim, joined = self.blocked.claim, self.joined
        self.joined = 0
        return claim._replace(more=joined * claim.more)

    def waits(self, capacity: Capacity, ahead: Sized) -> Blocked | None:
        """Return how its first request waits, with this capacity and these sizes ahead; None if none is known to."""
        found = self.blocked
        if found is None or found.capacity is None:
            return found
        return found if found.capacity is capacity and found.sizes == len(ahead) else None


class Claim(NamedTuple):
    """The share that is set aside for a request that waits: the team, the models that it takes, and hundredths."""

    team: str
    models: Sequence[str]
    more: int


class Blocked(NamedTuple):
    """The first request of its kind that waits: for its team's quota, or for room.

    One that has room, which it may not take before those ahead, waits while the ``capacity`` is the same, and so
    many ``sizes`` are ahead. ``claim``: what is set aside for each; None without quotas. It ``is_fixed`` where the
    request takes one model: of several, the one of which it is taken depends on what others have.
    """

    shortage: Shortage | None
    claim: Claim | None
    is_fixed: bool
    capacity: Capacity | None = None
    sizes: int = 0


class AlikeRequests:
    """The kinds of requests of one plan, and those of which one waits."""

    def __init__(self, snapshot: LedgerSnapshot, quotas: TeamQuotas | None, now: float, *, by_owner: bool) -> None:
        self._quotas, self._now, self._by_owner = quotas, now, by_owner
        self._has_loads = snapshot.loads is not NO_LOADS
        self._locality_seconds = 0.0 if snapshot.quotas is None else snapshot.quotas.locality_seconds
        # By who asks, as far as that matters; the size; the kernelspec, where it tells a load; whether it is new.
        self._kinds: dict[tuple[str, str, str, bool], Alike] = {}
        # The same by the text of a request's kind: of those that are new, and of the others.
        self._new: dict[str, Alike] = {}
        self._old: dict[str, Alike] = {}

    def kind_of(self, entry: Pending) -> Alike | None:
        """Return the kind of a request for new devices; None for another one, and at its deadline."""
        text, deadline = entry.kind, entry.deadline
        if not text or (deadline is not None and self._now >= deadline):
            return None
        is_new = self._now - entry.since < self._locality_seconds
        known = self._new if is_new else self._old
        kind = known.get(text)
        if kind is None:
            kind = known[text] = self._kind_of(entry, is_new=is_new)
        return kind

    def forget(self) -> None:
        """Decide about all anew."""
        for kind in self._kinds.values():
            kind.blocked = None

    def _kind_of(self, entry: Pending, *, is_new: bool) -> Alike:
        team = "" if self._quotas is None else self._quotas.team_of(entry.owner, entry.teams)
        asker = f"{team}\n{entry.owner}" if self._by_owner or self._has_loads else team
        key = (asker, entry.alike, entry.kernelspec if self._has_loads else "", is_new)
        return self._kinds.setdefault(key, Alike())
