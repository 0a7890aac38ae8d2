"""Dry run of a request: what the planner and the checks of admission would do with it now. Pure.

A dry run changes nothing and reserves nothing, so its result is true of this moment only. It words
nothing by itself: the reason of a wait is the planner's, and that of a refusal is the error that
admission would raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from jupyter_aliquot.gateway.sizes.wish import NO_WISH, Wish
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.provisioner.errors import AliquotError, DeviceLostError, GrantError, LimitError, NeverFitsError
from jupyter_aliquot.provisioner.resources import GpuShare, Grant, Request

from .capacity import Held
from .checks import check_request
from .foreseeing.ends import carried_out
from .ledger import KernelRef, LedgerSnapshot
from .memory_sharing import MemorySharing, memory_sharing
from .planner import Pending, Plan, plan
from .quotas import GpuCaps
from .resize import held_of
from .wait_reason import WaitReason, agent_unavailable

LARGEST = GpuShare(9999_99)
# No kernel has this id, under which the candidate joins the queue.
_CANDIDATE = ""
# The names of refusals for places with room for a few words only.
_LABELS: tuple[tuple[type[AliquotError], str], ...] = (
    (NeverFitsError, "never fits"),
    (DeviceLostError, "GPU lost"),
    (LimitError, "over limit"),
    (GrantError, "not on its GPUs"),
)


class Outcome(str, Enum):
    """The outcome of a dry run.

    For a running kernel, ``starts`` means that its size changes at once.
    """

    STARTS = "starts"
    QUEUED = "queued"
    NEVER = "never"


@dataclass(frozen=True)
class QueueState:
    """The state that a dry run depends on.

    ``problem``: why the node agent does not answer; empty while it does. ``status``: its last one.
    """

    ledger: LedgerSnapshot
    pending: tuple[Pending, ...] = ()
    caps: GpuCaps = field(default_factory=GpuCaps)
    largest: GpuShare = LARGEST
    problem: str = ""
    status: NodeStatus | None = None


@dataclass(frozen=True)
class Candidate:
    """The request to try.

    ``before``: the grant of a running kernel. ``refusal``: why its owner may not have this class.
    ``is_queued``: whether it may wait here; a kernel that another program started may not.
    ``replaces``: the kernels that its start replaces. ``wish``: its GPU models.
    """

    owner: str
    request: Request
    before: Grant | None = None
    refusal: AliquotError | None = None
    is_queued: bool = True
    teams: frozenset[str] = frozenset()
    replaces: frozenset[str] = frozenset()
    wish: Wish = NO_WISH

    @property
    def held(self) -> Held | None:
        """Return what a running kernel holds, as the planner takes it."""
        return None if self.before is None else held_of(self.before)


@dataclass(frozen=True)
class DryRun:
    """The result of a dry run. ``sharing``: the kernels with which a new one would take turns.

    ``position``: its place in the queue. ``quota_bytes``: the memory limit that it would have; None
    if no device is known, or none can hold it.
    """

    request: Request
    outcome: Outcome
    message: str
    position: int | None = None
    quota_bytes: int | None = None
    sharing: MemorySharing | None = None


def dry_run(state: QueueState, candidate: Candidate, now: float) -> DryRun:
    """Return what admission would do with the candidate."""
    request, before = candidate.request, candidate.before
    # A replaced kernel that waits itself ends with the request.
    gone = {one.kernel_id for one in state.pending if one.kernel_id in candidate.replaces and one.held is None}
    gone |= set() if before is None else {before.kernel_id}
    others = [one for one in state.pending if one.kernel_id not in gone]
    alone = state.ledger.capacity().place_alone(request, candidate.held, candidate.wish.models)
    quota = _quota(alone) if isinstance(alone, tuple) else None
    if candidate.refusal is not None:
        return DryRun(request, Outcome.NEVER, f"not allowed: {_clause(candidate.refusal)}", quota_bytes=quota)
    try:
        _check(state, candidate, others)
    except AliquotError as error:
        return _refused(request, error, quota)
    if before is not None and before.request == request:
        return DryRun(request, Outcome.STARTS, "it has this size", quota_bytes=_quota(held_of(before).parts))
    if state.problem:
        return _queued(candidate, len(others) + 1, agent_unavailable(request, state.problem), quota)
    return _planned(state, candidate, others, now, quota)


def _check(state: QueueState, candidate: Candidate, others: Sequence[Pending]) -> None:
    """Raise the error with which admission would refuse the request at once.

    The node's capacity is checked before the limits of the server's settings.
    """
    request = candidate.request
    caps = state.caps if candidate.is_queued else GpuCaps()
    requester = KernelRef(
        _CANDIDATE, candidate.owner, teams=candidate.teams, replaces=candidate.replaces, wish=candidate.wish
    )
    check_request(state.ledger, others, caps, requester, request, candidate.before)
    if request.gpus > state.largest:
        raise NeverFitsError(
            f"Requested {request.gpus} GPU, but this server grants at most {state.largest} GPU. Choose a smaller size"
        )


def _planned(
    state: QueueState, candidate: Candidate, others: Sequence[Pending], now: float, quota: int | None
) -> DryRun:
    request = candidate.request
    planned = _plan_until_settled(state.ledger, [*others, _pending(candidate, now)], now)
    for admit in planned.admissions:
        if admit.kernel_id == _CANDIDATE:
            if candidate.before is not None:
                return DryRun(request, Outcome.STARTS, "changes at once", quota_bytes=_quota(admit.parts))
            sharing = memory_sharing(admit.parts, state.status, candidate.replaces)
            quota = _quota(admit.parts)
            return DryRun(request, Outcome.STARTS, "starts at once", quota_bytes=quota, sharing=sharing)
    for wait in planned.waiting:
        if wait.kernel_id == _CANDIDATE:
            return _queued(candidate, wait.position, wait.reason, quota)
    refused = next(one for one in planned.refusals if one.kernel_id == _CANDIDATE)
    return _refused(request, refused.error, quota)


def _pending(candidate: Candidate, now: float) -> Pending:
    return Pending(
        _CANDIDATE,
        candidate.owner,
        candidate.request,
        now,
        held=candidate.held,
        teams=candidate.teams,
        replaces=candidate.replaces,
        wish=candidate.wish,
    )


def _plan_until_settled(ledger: LedgerSnapshot, queue: Sequence[Pending], now: float) -> Plan:
    """Return the plan, or the next one if the candidate lacks only what the replaced kernels hold.

    Admission tells these to end, and plans again when they have.
    """
    planned = plan(ledger, queue, now)
    if _CANDIDATE not in planned.preempting:
        return planned
    ledger = carried_out(ledger, queue, planned)
    waiting = {one.kernel_id for one in planned.waiting}
    ended = frozenset[str]().union(*(one.replaces for one in queue if one.kernel_id in planned.preempting))
    left = [one for one in queue if one.kernel_id in waiting - ended]
    return plan(ledger, [replace(one, is_preempting=one.kernel_id in planned.preempting) for one in left], now)


def _queued(candidate: Candidate, position: int, why: WaitReason, quota: int | None) -> DryRun:
    if not candidate.is_queued:
        return DryRun(candidate.request, Outcome.NEVER, f"not now: {why.clause}", quota_bytes=quota)
    ahead = f"queued, {position - 1} ahead" if position > 1 else "queued"
    return DryRun(candidate.request, Outcome.QUEUED, f"{ahead}: {why.clause}", position, quota)


def _refused(request: Request, error: AliquotError, quota: int | None) -> DryRun:
    label = next((label for kind, label in _LABELS if isinstance(error, kind)), "not possible")
    return DryRun(request, Outcome.NEVER, f"{label}: {_clause(error)}", quota_bytes=quota)


def _clause(error: AliquotError) -> str:
    text = str(error)
    return text[:1].lower() + text[1:]


def _quota(parts: Sequence[Part]) -> int:
    return sum(part.quota_bytes for part in parts)
