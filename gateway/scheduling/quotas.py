"""How many GPUs one user, and one team together, may hold and wait for: the one rule that admission refuses by. Pure.

It counts what it is given, and knows no queue, no clock and no one's name but those asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jupyter_aliquot.provisioner.errors import LimitError
from jupyter_aliquot.provisioner.resources import GpuShare

from .ledger import Asker, LedgerSnapshot
from .planner import Pending

# A server of another kind asks for the new kernel before it ends the old one: nobody can tell that it is a change.
_WHAT_TO_DO = (
    "Ask for less, end a kernel that is not needed, or, to change the size of one that runs, resize it or end it first"
)


@dataclass(frozen=True)
class GpuCaps:
    """``everybody``: of each user whom ``users`` does not name; None: no cap. 0 in ``users`` or ``teams``: no GPU."""

    everybody: GpuShare | None = None
    users: Mapping[str, GpuShare | None] = field(default_factory=dict)
    teams: Mapping[str, GpuShare] = field(default_factory=dict)

    def of_user(self, name: str) -> GpuShare | None:
        """None: no cap."""
        return self.users.get(name, self.everybody)

    def teams_of(self, teams: Iterable[str]) -> tuple[str, ...]:
        """Those of these teams that have a cap, by name."""
        return tuple(sorted(team for team in set(teams) if team in self.teams))


@dataclass(frozen=True)
class Claim:
    """What one kernel holds, or waits for beyond that. ``teams``: those of its owner when it was asked for."""

    owner: str
    teams: frozenset[str]
    held: int = 0
    waits: int = 0


@dataclass(frozen=True)
class CapUse:
    """One cap and what of it is taken; ``team`` empty: the user's own. ``limit`` None: no cap."""

    limit: GpuShare | None
    held: GpuShare
    waits: GpuShare
    team: str = ""

    @property
    def left(self) -> GpuShare | None:
        """None: no cap."""
        if self.limit is None:
            return None
        return GpuShare(max(0, self.limit.hundredths - self.held.hundredths - self.waits.hundredths))

    def has_no_room_for(self, more: int) -> bool:
        """For so many hundredths more. To take less, or the same, is never too much."""
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
    """What is held and waited for, as far as it counts for this user's caps. Of a thousand kernels a few do.

    ``without``: kernels that are about to be replaced.
    """
    capped = caps.teams_of(teams)
    held = [
        Claim(h.grant.owner, h.asker.teams, held=h.grant.request.gpus.hundredths)
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
    """Hundredths that it waits for beyond what it has, and what those have whose place it takes.

    Those count that are held in all of these teams: its owner may have been in others when they were asked for.
    """
    given_up = (ledger.holdings[one_id] for one_id in one.replaces - without if one_id in ledger.holdings)
    return max(0, one.more - sum(h.grant.request.gpus.hundredths for h in given_up if teams <= h.asker.teams))


def cap_uses(caps: GpuCaps, claims: Collection[Claim], name: str, teams: Iterable[str]) -> tuple[CapUse, ...]:
    """The user's own, and then those of the user's teams that have a cap, by name."""
    own = _use(caps.of_user(name), [claim for claim in claims if claim.owner == name])
    of_teams = (_use(caps.teams[team], [c for c in claims if team in c.teams], team) for team in caps.teams_of(teams))
    return (own, *of_teams)


def first_exceeded(
    caps: GpuCaps, claims: Collection[Claim], name: str, teams: Iterable[str], more: int
) -> CapUse | None:
    """The first cap that so many hundredths more would exceed."""
    uses = cap_uses(caps, claims, name, teams)
    return next((use for use in uses if use.has_no_room_for(more)), None)


def check_caps(caps: GpuCaps, claims: Collection[Claim], asker: Asker, asked: GpuShare, before: GpuShare) -> None:
    """Raises LimitError. ``before``: what the kernel holds already of what is asked.

    It tells the asker's own figures and the team's sum, and nothing of who else is in it.
    """
    use = first_exceeded(caps, claims, asker.owner, asker.teams, asked.hundredths - before.hundredths)
    if use is None:
        return
    if not use.team:
        raise LimitError(
            f"asked {asked} GPU; {asker.owner} holds {use.held}, waits for {use.waits} and may have {use.limit} in "
            f"all. {_WHAT_TO_DO}"
        )
    own = _use(None, [claim for claim in claims if claim.owner == asker.owner])
    raise LimitError(
        f"asked {asked} GPU; the team {use.team} holds {use.held}, waits for {use.waits} and may have {use.limit} "
        f"together; of its own {asker.owner} holds {own.held} and waits for {own.waits}. {_WHAT_TO_DO}; or try again "
        "when the team has less"
    )


def _use(limit: GpuShare | None, claims: Iterable[Claim], team: str = "") -> CapUse:
    held = waits = 0
    for claim in claims:
        held, waits = held + claim.held, waits + claim.waits
    return CapUse(limit, GpuShare(held), GpuShare(waits), team)


def quota_report(
    caps: GpuCaps, ledger: LedgerSnapshot, pending: Iterable[Pending], name: str, teams: Iterable[str]
) -> dict[str, Any]:
    """``UserQuota`` of api/openapi.yaml. What waits is counted as admission counts it: it is left for nobody else."""
    claims = claims_of(ledger, pending, caps, name, teams)
    own, *of_teams = cap_uses(caps, claims, name, teams)
    return {**_report(own), "teams": [{"name": use.team, **_report(use)} for use in of_teams]}


def _report(use: CapUse) -> dict[str, Any]:
    return {
        "gpus": None if use.limit is None else float(use.limit),
        "held_gpus": float(use.held),
        "waiting_gpus": float(use.waits),
        "left_gpus": None if use.left is None else float(use.left),
    }
