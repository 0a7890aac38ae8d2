"""The order in which a plan serves the requests that wait. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jupyter_aliquot.gateway.scheduling.foreseeing.never import never_fits
from jupyter_aliquot.gateway.scheduling.lending.team_order import in_order
from jupyter_aliquot.gateway.scheduling.lending.team_quotas import TeamQuotas
from jupyter_aliquot.gateway.scheduling.queue_policy import by_policy
from jupyter_aliquot.gateway.scheduling.resize import needs_capacity

if TYPE_CHECKING:
    from jupyter_aliquot.gateway.scheduling.capacity import Capacity
    from jupyter_aliquot.gateway.scheduling.ledger import LedgerSnapshot
    from jupyter_aliquot.gateway.scheduling.planner import Pending


def queue_order(
    snapshot: LedgerSnapshot, pending: Sequence[Pending], now: float, quotas: TeamQuotas | None = None
) -> list[Pending]:
    """Return the order in which a plan serves the requests, and thus their places in the queue.

    No other rule gives a place. Requests whose replaced kernels are ending come first, then those
    that free capacity, then all others as they arrived, or as the quota file's policy and quotas have it.
    *quotas* are those of the snapshot, where they are known.
    """
    capacity, quotas = snapshot.capacity(), TeamQuotas.of(snapshot) if quotas is None else quotas
    first: list[Pending] = []
    freeing: list[Pending] = []
    rest: list[Pending] = []
    for one in pending:
        if one.kind:
            rest.append(one)
        elif one.is_preempting:
            first.append(one)
        elif (one.held is not None or one.replaces) and _frees_capacity(snapshot, capacity, one):
            freeing.append(one)
        else:
            rest.append(one)
    if quotas is not None:
        rest = _by_policies(snapshot, quotas, rest, now)
        rest = in_order(quotas, rest)
    return [*first, *freeing, *rest]


def _by_policies(snapshot: LedgerSnapshot, quotas: TeamQuotas, arrived: Sequence[Pending], now: float) -> list[Pending]:
    """Return the requests by the queue's policy; a team with its own has its requests in that, at the same places."""

    def by(policy: str, requests: Sequence[Pending]) -> list[Pending]:
        return by_policy(policy, requests, snapshot.holdings.values(), snapshot.past, now)

    found = by(quotas.quotas.order, arrived)
    for team in quotas.quotas.teams.values():
        if team.queue_order is not None:
            own = by(team.queue_order, [one for one in arrived if quotas.team_of(one.owner, one.teams) == team.name])
            places = [at for at, one in enumerate(found) if quotas.team_of(one.owner, one.teams) == team.name]
            for at, one in zip(places, own, strict=True):
                found[at] = one
    return found


def _frees_capacity(snapshot: LedgerSnapshot, capacity: Capacity, entry: Pending) -> bool:
    """Return whether it changes its size or replaces a kernel, and takes no more of any device.

    Such requests go before all others.
    """
    given_up = snapshot.held_in_place_of(entry.replaces)
    held = given_up[0] if len(given_up) == 1 else entry.held
    if held is None or never_fits(capacity, entry.request, held) is not None:
        return False
    return not needs_capacity(capacity, held, entry.request)
