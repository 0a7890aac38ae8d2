"""The choice of kernels that leave so that a request gets what it is owed. Pure.

A team takes its quota back from teams that borrow it; a request takes back the capacity of kernels
that were started ahead of it. A kernel leaves by swap-out: it keeps its state, and waits for its GPU.
A kernel that cannot be swapped out ends only where its team's policy says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from jupyter_aliquot.gateway.scheduling.capacity import Capacity, Held
from jupyter_aliquot.gateway.scheduling.ledger import Holding, LedgerSnapshot
from jupyter_aliquot.gateway.scheduling.resize import held_of
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.provisioner.resources import WorkloadClass

from .backfill import backfilled_before
from .team_order import ranked
from .team_quotas import Claimant, TeamQuotas

# A kernel that may leave, and whether it does for a quota.
Candidate = tuple[Holding, bool]
# The team of a kernel, and the models of its devices.
Kind = tuple[str, tuple[str, ...]]
# The most kernels that are tried as the first to leave.
_MOST_TRIES = 8


@dataclass(frozen=True)
class Evict:
    """A decision that a kernel leaves its GPU, for the kernel *wanted_by*.

    With ``is_ended`` it ends where it cannot be swapped out.
    """

    kernel_id: str
    wanted_by: str
    is_ended: bool = False
    is_for_quota: bool = True


@dataclass(frozen=True)
class Reclaim:
    """The kernels that leave for one request, and the parts that it gets once they are gone.

    ``leavers`` are their grants.
    """

    evictions: tuple[Evict, ...]
    parts: tuple[Part, ...]
    leavers: tuple[Holding, ...]

    @property
    def set_aside(self) -> tuple[Held, ...]:
        """The parts of the kernels that are swapped out, of which the host keeps copies."""
        return tuple(held_of(one.grant) for one in self.leavers if not one.stays_because)


@dataclass(frozen=True)
class State:
    """The state of a plan when a request does not fit.

    The kernels ``taken`` leave for an earlier request. ``kinds`` has the team and the models of each
    kernel that a plan has looked at, and ``groups`` the kernels of each kind that may leave, once they are known.
    """

    snapshot: LedgerSnapshot
    capacity: Capacity
    quotas: TeamQuotas | None
    now: float
    taken: frozenset[str] = frozenset()
    kinds: dict[str, Kind] = field(default_factory=dict)
    groups: dict[Kind, list[Holding]] = field(default_factory=dict)

    def group(self, quotas: TeamQuotas) -> dict[Kind, list[Holding]]:
        """Return the kernels of each kind that may leave for a quota, also those taken, in the ledger's order."""
        if not self.groups:
            for one in self.snapshot.holdings.values():
                members = self.groups.setdefault(self.kind_of(quotas, one), [])
                if _may_leave(self, one) and _has_run(self, quotas, one):
                    members.append(one)
        return self.groups

    def kind_of(self, quotas: TeamQuotas, holding: Holding) -> Kind:
        """Return the team of a kernel, and the models of its devices."""
        kernel_id = holding.grant.kernel_id
        if kernel_id not in self.kinds:
            team = quotas.team_of(holding.grant.owner, holding.requester.teams)
            self.kinds[kernel_id] = (team, tuple(use.model for use in quotas.uses_of(holding)))
        return self.kinds[kernel_id]


def reclaim(state: State, kernel_id: str, claimant: Claimant, since: float) -> Reclaim | None:
    """Return the kernels whose leaving makes the request fit; None if no such set is found.

    Kernels that leave already count first. Those that turn out not to be needed stay.
    """
    if not state.snapshot.has_evicting_nodes:
        return None
    candidates = _candidates(state, kernel_id, claimant, since)
    for first in range(min(len(candidates), _MOST_TRIES)):
        # A team that borrows little stops to borrow with its first kernel: another one may be needed.
        chosen = _choose(state, claimant, [candidates[first], *candidates[:first], *candidates[first + 1 :]])
        if chosen is not None:
            kernels, parts = chosen
            leavers = tuple(holding for holding, _ in kernels)
            return Reclaim(tuple(_evict(state, *one, kernel_id) for one in kernels), parts, leavers)
    return None


def _choose(
    state: State, claimant: Claimant, candidates: Iterable[Candidate]
) -> tuple[list[Candidate], tuple[Part, ...]] | None:
    """Return the first kernels that suffice, without those that are not needed together with the others."""
    chosen: list[Candidate] = []
    capacity, quotas = state.capacity, state.quotas
    kinds, known = state.kinds, dict[Kind, bool]()
    # The models that the team may take, while the request fits on no node; None: it may fit anywhere.
    fits_none_of = None if _parts(capacity, quotas, claimant) is not None else _allowed(quotas, claimant)
    for holding, is_for_quota in candidates:
        if is_for_quota:
            kind = kinds[holding.grant.kernel_id]
            if kind not in known:
                known[kind] = _may_be_taken(quotas, claimant, kind)
            if not known[kind]:
                continue
        known.clear()  # the answers are those of while no kernel more is chosen
        chosen.append((holding, is_for_quota))
        capacity, quotas = _without(state, capacity, quotas, [holding])
        where, allowed = capacity, _allowed(quotas, claimant)
        fits_none_of, before = allowed, fits_none_of
        if _lacks_quota(quotas, claimant, allowed):
            continue
        if allowed == before and claimant.devices is None:
            node = capacity.node_of(state.snapshot.held(holding).parts)  # empty: its device is on no node any more
            where = capacity.of_node(node) if node in capacity.nodes else capacity  # no other node changed
        if _parts(where, quotas, claimant) is not None and (parts := _parts(capacity, quotas, claimant)) is not None:
            return _needed(state, claimant, chosen, parts, quotas)
    return None


def _needed(
    state: State, claimant: Claimant, chosen: list[Candidate], parts: tuple[Part, ...], quotas: TeamQuotas | None
) -> tuple[list[Candidate], tuple[Part, ...]]:
    """Return the chosen kernels that are needed together with the others, and the parts once they are gone.

    *parts* and *quotas* are those once all of the chosen are gone.
    """
    rest = list(chosen)
    for one in chosen:
        fewer = [each for each in rest if each is not one]
        staying = None if quotas is None else quotas.with_grant(one[0])
        if one[0].is_leaving or _lacks_quota(staying, claimant, _allowed(staying, claimant)):
            continue
        if not _keeps(state, claimant, parts, one[0], staying):
            left = _without(state, state.capacity, state.quotas, [holding for holding, _ in fewer])
            found = _parts(*left, claimant)
            if found is None:
                continue
            parts = found
        rest, quotas = fewer, staying
    if len(rest) < len(chosen):
        left = _without(state, state.capacity, state.quotas, [holding for holding, _ in rest])
        parts = _parts(*left, claimant) or parts
    return rest, parts


def _keeps(
    state: State, claimant: Claimant, parts: Sequence[Part], holding: Holding, staying: TeamQuotas | None
) -> bool:
    """Return whether the request has its parts also while a kernel stays, which is on another node.

    *staying* are the quotas then: its team may still take these models.
    """
    nodes = [state.capacity.node_of(those) for those in (parts, state.snapshot.held(holding).parts)]
    if claimant.devices is not None or nodes[0] == nodes[1]:
        return False
    return staying is None or staying.may_take(claimant, [part.uuid for part in parts])


def _lacks_quota(quotas: TeamQuotas | None, claimant: Claimant, allowed: Collection[str]) -> bool:
    """Return whether the claimant's team may take enough of no model, whatever is free."""
    return quotas is not None and not allowed and bool(quotas.models_for(claimant))


def _allowed(quotas: TeamQuotas | None, claimant: Claimant) -> frozenset[str]:
    """Return the models of which the claimant's team may take what it needs."""
    return frozenset() if quotas is None else frozenset(quotas.allowed(claimant))


def _parts(capacity: Capacity, quotas: TeamQuotas | None, claimant: Claimant) -> tuple[Part, ...] | None:
    """Return what the request gets of this capacity, within these quotas; None if it does not fit."""
    placed = claimant.place(capacity) if quotas is None else quotas.place(capacity, claimant)
    return placed if isinstance(placed, tuple) else None


def _candidates(state: State, kernel_id: str, claimant: Claimant, since: float) -> list[Candidate]:
    """Return the kernels that may leave, the first to leave first, and whether for a quota.

    Backfilled kernels come first: they were started on that condition. Then come kernels of teams
    that borrow: those that can be swapped out before those that end, low priority before normal,
    then the team that borrows most for its weight, then the newest.
    """
    backfilled = [one for one in backfilled_before(state.snapshot, kernel_id, since) if _can_leave(state, one)]
    backfilled = [one for one in backfilled if _returns_after(state.quotas, claimant, one, backfilled)]
    found = [(one, False) for one in backfilled]
    quotas = state.quotas
    if quotas is None:
        return found
    team = quotas.team_of(claimant.owner, claimant.groups)
    # A team that borrows nothing has nothing to give, whichever kernels leave before.
    models, tree = quotas.shown_models, quotas.tree
    borrowing = {one for one in quotas.quotas.teams if any(tree.borrowed(one, model) > 0 for model in models)} - {team}
    if not borrowing:
        return found
    groups = state.group(quotas)
    parts = quotas.tree.surplus_parts(dict.fromkeys(name for name, _ in groups))
    known = state.taken.union(one.grant.kernel_id for one in backfilled)
    others: list[tuple[tuple[bool, bool, bool, float, float, str], Holding]] = []
    for kind, members in groups.items():
        # By the leaving of other teams' kernels no team comes to have more to give, and none to be owed more.
        if kind[0] not in borrowing or (not backfilled and not _may_be_taken(quotas, claimant, kind)):
            continue
        share = quotas.tree.dominant_share(kind[0], parts)
        for one in members:
            if one.grant.kernel_id not in known:
                is_normal = one.grant.request.workload_class is WorkloadClass.PRODUCTION
                rank = (not one.is_leaving, bool(one.stays_because), is_normal)
                others.append(((*rank, -share, -one.granted_at, one.grant.kernel_id), one))
    return found + [(one, True) for _, one in sorted(others, key=itemgetter(0))]


def _returns_after(
    quotas: TeamQuotas | None, claimant: Claimant, holding: Holding, backfilled: Sequence[Holding]
) -> bool:
    """Return whether the kernel's return would be served after the claimant, which it would undo otherwise.

    All backfilled kernels of its team count as gone: the fewer a team has, the sooner it is served.
    """
    if quotas is None:
        return True
    team = quotas.team_of(holding.grant.owner, holding.requester.teams)
    gone = [one for one in backfilled if quotas.team_of(one.grant.owner, one.requester.teams) == team]
    grant = holding.grant
    back = Claimant(grant.owner, holding.requester.teams, grant.request, returns_to=held_of(grant))
    return ranked(quotas.without(gone), [claimant, back]) == [0, 1]


def _can_leave(state: State, holding: Holding) -> bool:
    """Return whether the kernel may leave, and leaves for no earlier request."""
    return holding.grant.kernel_id not in state.taken and _may_leave(state, holding)


def _may_leave(state: State, holding: Holding) -> bool:
    """Return whether the kernel can be swapped out, or its team lets it be ended."""
    node = state.snapshot.node_of(holding.grant)
    if node.is_away or not node.can_evict:
        return False
    is_ended_instead = bool(holding.stays_because) and holding.is_confirmed and not holding.is_evicted
    return holding.can_be_evicted or (is_ended_instead and _may_be_ended(state.quotas, holding))


def _has_run(state: State, quotas: TeamQuotas, holding: Holding) -> bool:
    team = quotas.quotas.team_of(holding.grant.owner, holding.requester.teams)
    least = 0.0 if team is None else team.reclaim_seconds
    return holding.is_leaving or state.now - holding.granted_at >= least


def _may_be_ended(quotas: TeamQuotas | None, holding: Holding) -> bool:
    team = None if quotas is None else quotas.quotas.team_of(holding.grant.owner, holding.requester.teams)
    if team is None or team.may_be_ended == "never":
        return False
    return team.may_be_ended == "any" or holding.grant.request.workload_class is WorkloadClass.OPPORTUNISTIC


def _may_be_taken(quotas: TeamQuotas | None, claimant: Claimant, kind: Kind) -> bool:
    """Return whether the team of a kernel of this kind borrows what the claimant's team is owed."""
    if quotas is None:
        return False
    mine = quotas.team_of(claimant.owner, claimant.groups)
    return any(quotas.tree.may_reclaim(mine, kind[0], model, claimant.more) for model in kind[1])


def _without(
    state: State, capacity: Capacity, quotas: TeamQuotas | None, holdings: Iterable[Holding]
) -> tuple[Capacity, TeamQuotas | None]:
    gone = list(holdings)
    for holding in gone:
        held = state.snapshot.held(holding)
        capacity = capacity.give_back(held)
        if not holding.stays_because:  # it is swapped out: its copy takes host memory
            capacity = capacity.set_aside(held)
    return capacity, None if quotas is None else quotas.without(gone)


def _evict(state: State, holding: Holding, is_for_quota: bool, wanted_by: str) -> Evict:
    is_ended = is_for_quota and bool(holding.stays_because) and _may_be_ended(state.quotas, holding)
    return Evict(holding.grant.kernel_id, wanted_by, is_ended, is_for_quota)
