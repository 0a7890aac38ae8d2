"""Pure functions for admission: the requests that it refuses at once, and its time to sleep."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from jupyter_aliquot.provisioner.errors import AgentUnavailableError, AliquotError, UnknownUseError
from jupyter_aliquot.provisioner.resources import GpuShare, Grant, Request

from .foreseeing.never import never_fits
from .ledger import KernelRef, LedgerSnapshot
from .lending.team_quotas import Claimant, TeamQuotas
from .planner import Pending
from .queue import Waiting
from .quotas import GpuCaps, check_caps, claims_of
from .resize import held_of
from .snapshot import AdmissionSettings


def check_request(
    snapshot: LedgerSnapshot,
    pending: Iterable[Pending],
    caps: GpuCaps,
    requester: KernelRef,
    request: Request,
    before: Grant | None,
) -> None:
    """Refuse a request that waiting cannot help.

    *pending* are all waiting requests, *before* is the size to change.

    Raises NeverFitsError, DeviceLostError, RequestError, LimitError of a limit or a team's quota, and
    GrantError for another number of devices.
    """
    # Before the agent's first answer the node is not known, and the first cycle refuses. While the
    # agent is away, its last answer counts.
    is_known = bool(snapshot.node.name or snapshot.node.devices or snapshot.others)
    error = (
        never_fits(snapshot.capacity(), request, held_of(before) if before else None, requester.wish)
        if is_known
        else None
    )
    quotas = TeamQuotas.unused(snapshot)  # how much is ever allowed, whatever is held now
    if error is None and quotas is not None:
        held_now = held_of(before) if before else None
        error = quotas.refusal(
            Claimant(requester.owner, requester.teams, request, held_now, models=requester.wish.models)
        )
    if error is not None:
        raise error
    held = GpuShare(0) if before is None else before.request.gpus
    snapshot = snapshot.with_renewed([requester.kernel_id])
    claims = claims_of(snapshot, pending, caps, requester.owner, requester.teams, requester.replaces)
    check_caps(caps, claims, requester, request.gpus, held)


def check_budget_again(settings: AdmissionSettings, snapshot: LedgerSnapshot, waiting: Waiting) -> None:
    """Refuse a request whose budget was used up while it waited. Raises LimitError.

    A kernel that returns takes nothing more. A request whose replaced kernels were told to end gets
    their capacity: the user gave them up for it.
    """
    if waiting.is_return or waiting.pending.is_preempting:
        return
    requester = waiting.requester
    holding = snapshot.holdings.get(requester.kernel_id)
    before = None if holding is None else holding.grant.request
    # It was known when the request came: a queue is not lost for a file that is away.
    with suppress(UnknownUseError):
        settings.check_budget(requester.owner, requester.teams, waiting.pending.request, before)


def agent_deadline(waiting: Waiting, away_since: float | None, settings: AdmissionSettings) -> float:
    """Return until when a request waits for an agent that is away.

    A running kernel waits without a bound.
    """
    if waiting.is_growth:
        return float("inf")
    return max(waiting.pending.since, away_since or 0.0) + settings.agent_loss_seconds


def refusal_without_agent(
    waiting: Waiting, away_since: float | None, settings: AdmissionSettings, now: float, error: AliquotError
) -> AgentUnavailableError | None:
    """Return the refusal of a request that has waited long enough for the agent.

    None for one that may still wait. The agent does not answer meanwhile.
    """
    deadline = waiting.pending.deadline
    if away_since is not None:
        deadline = min(agent_deadline(waiting, away_since, settings), deadline or float("inf"))
    if deadline is None or now < deadline:
        return None
    asked, waited = waiting.pending.request.gpus, now - waiting.pending.since
    return AgentUnavailableError(
        f"Requested {asked} GPU and waited {waited:.0f} s, but the node agent is unavailable: {error}"
    )


def seconds_to_next_look(
    queue: Iterable[Waiting], away_since: float | None, settings: AdmissionSettings, now: float
) -> float:
    """Return how long nothing is due, if no event comes meanwhile."""
    waiting = list(queue)
    deadlines = [w.pending.deadline for w in waiting if w.pending.deadline is not None]
    if away_since is not None:
        deadlines += [agent_deadline(one, away_since, settings) for one in waiting]
    return max(0.0, min([deadline - now for deadline in deadlines] + [settings.recheck_seconds]))
