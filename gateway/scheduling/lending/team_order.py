"""The order in which a plan serves the requests of teams: within quota first, then by what a team borrows. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, NamedTuple

from jupyter_aliquot.gateway.teams.tree import ROOT

from .team_quotas import Claimant, TeamQuotas

if TYPE_CHECKING:
    from jupyter_aliquot.gateway.scheduling.planner import Pending

# The share of a request within its team's quota, in the order by shares: it goes before all that borrow.
_WITHIN = -1.0


def ranked(quotas: TeamQuotas, claimants: Sequence[Claimant]) -> list[int]:
    """Return the order in which to serve these requests, as their places in the sequence.

    Requests within their team's quota come first, as they arrived. Then the team goes next that
    borrows the least for its weight, and for what it borrowed before. With the order ``drf`` the
    weight counts for all requests.
    """
    return _Ranking(quotas, claimants).run()


def in_order(quotas: TeamQuotas, requests: Sequence[Pending]) -> list[Pending]:
    """Return the requests in the order that ``ranked`` gives, which is found at once where teams do not depend."""
    queues = _queues(quotas, requests)
    order = None if queues is None else _by_shares(quotas, queues, len(requests))
    if order is None:
        order = ranked(quotas, [one.claimant for one in requests])
    return [requests[place] for place in order]


class _Queue(NamedTuple):
    """The requests of one team: their places among all, and what each takes."""

    places: list[int]
    mores: list[int]


def _queues(quotas: TeamQuotas, requests: Sequence[Pending]) -> dict[str, _Queue] | None:
    """Return the requests of each team; None where what one team has changes what another may take next.

    So it is with several models, with requests of a team and of one below it, and with those of no team.
    """
    if len(quotas.shown_models) != 1 or quotas.quotas.order == "drf":
        return None
    queues: dict[str, _Queue] = {}
    known: dict[str, tuple[_Queue, int]] = {}  # requests of one kind are of one team, and take as much
    for place, one in enumerate(requests):
        kind = one.kind
        found = known.get(kind)
        if found is None:
            claimant = one.claimant
            if claimant.models and not quotas.models_for(claimant):
                return None
            queue = queues.setdefault(quotas.team_of(claimant.owner, claimant.groups), _Queue([], []))
            found = queue, claimant.more
            if kind:
                known[kind] = found
        queue, more = found
        queue.places.append(place)
        queue.mores.append(more)
    above = {one.name for team in queues for one in quotas.quotas.ancestors(team)[1:]}
    return queues if ROOT not in queues and above.isdisjoint(queues) else None


def _by_shares(quotas: TeamQuotas, queues: dict[str, _Queue], count: int) -> list[int] | None:
    """Return the order by the share that each team has when it has all before; None if a team's shares do not grow.

    Where they grow, each team's next request is always the least of its own, so that to sort all is the same as to
    take the least of the teams' next ones.
    """
    tree, shares = quotas.tree, [0.0] * count
    parts, model = tree.surplus_parts(queues), quotas.shown_models[0]
    gpus = max(1, tree.gpus.get(model, 0))
    for team, queue in queues.items():
        quota, used, part, last = tree.quota(team, model), tree.used(team, model), parts[team], _WITHIN
        for place, more in zip(queue.places, queue.mores, strict=True):
            if more <= quota - used or not more:
                share = _WITHIN
            else:
                share = (used - quota if used > quota else 0) / gpus / part if part else math.inf
            if share < last:
                return None
            shares[place] = last = share
            used += more
    return sorted(range(count), key=shares.__getitem__)


# The key of a team whose next request is that at this place: whether it borrows, its share, the place, the team.
_Key = tuple[bool, float, int, str]


class _Ranking:
    """The requests of each team, and what all teams hold once those that are ranked have their shares."""

    def __init__(self, quotas: TeamQuotas, claimants: Sequence[Claimant]) -> None:
        self._quotas, self._claimants = quotas.drafted(), claimants
        self._more = [one.more for one in claimants]
        self._queues: dict[str, deque[int]] = {}
        teams: dict[tuple[str, frozenset[str]], str] = {}
        for place, one in enumerate(claimants):
            asker = (one.owner, one.groups)
            if asker not in teams:
                teams[asker] = quotas.team_of(*asker)
            self._queues.setdefault(teams[asker], deque()).append(place)
        self._parts = quotas.tree.surplus_parts(self._queues)
        self._is_drf = quotas.quotas.order == "drf"
        shown = quotas.shown_models
        self._only = shown if len(shown) == 1 else None

    def run(self) -> list[int]:
        """Return the order."""
        order, queues, heads = list[int](), self._queues, [self._key(team) for team in self._queues]
        above = {one.name for team in queues for one in self._quotas.quotas.ancestors(team)[1:]}
        heapify(heads)
        while heads:
            team = heads[0][-1]
            # A request of a team below changes what a team holds: its key has grown since.
            if team in above and (now := self._key(team)) != heads[0]:
                heapreplace(heads, now)
                continue
            place = queues[team].popleft()
            order.append(place)
            self._quotas.hold_back(team, self._models(place), self._more[place])
            if queues[team]:
                heapreplace(heads, self._key(team))
            else:
                heappop(heads)
        return order

    def _models(self, place: int) -> Sequence[str]:
        claimant = self._claimants[place]
        return self._only if self._only and not claimant.models else self._quotas.models_for(claimant)

    def _key(self, team: str) -> _Key:
        place, tree = self._queues[team][0], self._quotas.tree
        more = self._more[place]
        is_borrowing = True
        for model in self._models(place) if team != ROOT else ():  # without a team it borrows whatever it takes
            if tree.within_quota(team, model) >= more:
                is_borrowing = False
        if is_borrowing:
            share = tree.dominant_share(team, self._parts)
        else:
            share = tree.used_share(team) if self._is_drf else 0.0
        return is_borrowing, share, place, team
