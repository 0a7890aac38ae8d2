"""The GPU limits of users and teams: how much a user, or a team together, may hold and wait for.

Pure.

Admission refuses requests beyond them. This module counts the values that it is given, without a
queue or a clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from jupyter_aliquot.gateway.reports.status import TeamGpuLimit, UserGpuLimit
from jupyter_aliquot.provisioner.errors import LimitError
from jupyter_aliquot.provisioner.resources import GpuShare

from .ledger import KernelRef, LedgerSnapshot
from .planner import Pending

# A server without Aliquot asks for the new kernel before it ends the old one, and does not say that
# it is a change.
_WHAT_TO_DO = (
    "Choose a smaller size, end a kernel that is not needed, or, to change the size of one that runs, resize it or end "
    "it first"
)


@dataclass(frozen=True)
class GpuCaps:
    """The GPU limits.

    ``each_user`` is for each user whom ``users`` does not name; None: no limit. A limit of 0: no
    GPU.
    """

    each_user: GpuShare | None = None
    users: Mapping[str, GpuShare | None] = field(default_factory=dict)
    teams: Mapping[str, GpuShare] = field(default_factory=dict)

    def of_user(self, name: str) -> GpuShare | None:
        """Return the limit; None for no limit."""
        return self.users.get(name, self.each_user)

    def teams_of(self, teams: Iterable[str]) -> tuple[str, ...]:
        """Return those of these teams that have a limit, by name."""
        return tuple(sorted(team for team in set(teams) if team in self.teams))


@dataclass(frozen=True)
class Claim:
    """The share that one kernel holds, or waits for beyond that.

    ``teams`` are the owner's when it was requested.
    """

    owner: str
    teams: frozenset[str]
    held: int = 0
    waits: int = 0


@dataclass(frozen=True)
class CapUse:
    """One limit and its use.

    An empty ``team`` stands for the user's own limit. ``limit`` None: no limit.
    """

    limit: GpuShare | None
    held: GpuShare
    waits: GpuShare
    team: str = ""

    @property
    def left(self) -> GpuShare | None:
        """The part of the limit that is left; None for no limit."""
        if self.limit is None:
            return None
        return GpuShare(max(0, self.limit.hundredths - self.held.hundredths - self.waits.hundredths))

    def has_no_room_for(self, more: int) -> bool:
        """Return whether so many hundredths more exceed it.

        To take less, or the same, never does.
        """
        taken = self.held.hundredths + self.waits.hundredths
        return self.limit is not None and more > 0 and taken + more > self.limit.hundredths


def claims_of(
    ledger: LedgerSnapshot,
    pending: Iterable[Pending],
    caps: GpuCaps,
    name: str,
    teams: Iterable[str],
    without: frozenset[str] = frozenset(),
) -> tuple[Claim, ...]:
    """Return the claims that count for this user's limits: a few of a thousand kernels.

    The kernels *without* are about to be replaced, and do not count.
    """
    capped = caps.teams_of(teams)
    held = [
        Claim(h.grant.owner, h.requester.teams, held=h.grant.request.gpus.hundredths)
        for h in ledger.held_by(name, capped)
        if h.grant.kernel_id not in without
    ]
    waits = [
        Claim(one.owner, one.teams, waits=_beyond(ledger, one, without, one.teams.intersection(capped)))
        for one in pending
        if one.kernel_id not in without and (one.owner == name or not one.teams.isdisjoint(capped))
    ]
    return (*held, *waits)


def _beyond(ledger: LedgerSnapshot, one: Pending, without: frozenset[str], teams: frozenset[str]) -> int:
    """Return the hundredths that it waits for beyond its own and those of kernels that it replaces.

    A replaced kernel counts if it is held in all of these teams: its owner may have been in others
    when it was requested.
    """
    given_up = (ledger.holdings[one_id] for one_id in one.replaces - without if one_id in ledger.holdings)
    return max(0, one.more - sum(h.grant.request.gpus.hundredths for h in given_up if teams <= h.requester.teams))


def cap_uses(caps: GpuCaps, claims: Collection[Claim], name: str, teams: Iterable[str]) -> tuple[CapUse, ...]:
    """Return the use of the user's own limit, and then of the user's limited teams, by name."""
    own = _use(caps.of_user(name), [claim for claim in claims if claim.owner == name])
    of_teams = (_use(caps.teams[team], [c for c in claims if team in c.teams], team) for team in caps.teams_of(teams))
    return (own, *of_teams)


def first_exceeded(
    caps: GpuCaps, claims: Collection[Claim], name: str, teams: Iterable[str], more: int
) -> CapUse | None:
    """Return the first limit that so many hundredths more would exceed."""
    uses = cap_uses(caps, claims, name, teams)
    return next((use for use in uses if use.has_no_room_for(more)), None)


def check_caps(
    caps: GpuCaps, claims: Collection[Claim], requester: KernelRef, asked: GpuShare, before: GpuShare
) -> None:
    """Refuse a request beyond a limit; the kernel holds *before* of it already. Raises LimitError.

    The message has the user's own figures and the team's sum, and names no other member.
    """
    use = first_exceeded(caps, claims, requester.owner, requester.teams, asked.hundredths - before.hundredths)
    if use is None:
        return
    holds = f"holds {use.held}, waits for {use.waits} and may have {use.limit}"
    if not use.team:
        raise LimitError(f"Requested {asked} GPU, but {requester.owner} {holds} in all. {_WHAT_TO_DO}")
    own = _use(None, [claim for claim in claims if claim.owner == requester.owner])
    raise LimitError(
        f"Requested {asked} GPU, but the team {use.team} {holds} together; of its own {requester.owner} holds "
        f"{own.held} and waits for {own.waits}. {_WHAT_TO_DO}; or try again when the team has less"
    )


def _use(limit: GpuShare | None, claims: Iterable[Claim], team: str = "") -> CapUse:
    held = waits = 0
    for claim in claims:
        held, waits = held + claim.held, waits + claim.waits
    return CapUse(limit, GpuShare(held), GpuShare(waits), team)


def gpu_limit_report(
    caps: GpuCaps, ledger: LedgerSnapshot, pending: Iterable[Pending], name: str, teams: Iterable[str]
) -> UserGpuLimit:
    """Return ``UserGpuLimit`` of api/openapi.yaml.

    Waiting requests count, as they do for admission.
    """
    claims = claims_of(ledger, pending, caps, name, teams)
    own, *of_teams = cap_uses(caps, claims, name, teams)
    return {
        "gpus": None if own.limit is None else float(own.limit),
        "held_gpus": float(own.held),
        "queued_gpus": float(own.waits),
        "left_gpus": None if own.left is None else float(own.left),
        "teams": [_team_report(use) for use in of_teams],
    }


def _team_report(use: CapUse) -> TeamGpuLimit:
    """A team is listed for its limit, so it has one."""
    return {
        "name": use.team,
        "gpus": float(use.limit or GpuShare(0)),
        "held_gpus": float(use.held),
        "queued_gpus": float(use.waits),
        "left_gpus": float(use.left or GpuShare(0)),
    }
