"""What would happen if a size were asked for now: pure, by the planner and the checks that admission itself uses.

It changes nothing and reserves nothing, so what it tells is true of this moment only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.provisioner.errors import AliquotError, GrantError, LimitError, NeverFitsError
from jupyter_aliquot.provisioner.resources import GpuShare, Grant, Request

from . import dry_run_messages as words
from .capacity import Held
from .checks import check_request
from .ledger import Asker, LedgerSnapshot
from .planner import Pending, plan
from .quotas import GpuCaps, claims_of, first_exceeded
from .resize import held_of
from .room_limits import alone
from .wait_reason import agent_unavailable

LARGEST = GpuShare(9999_99)
# No kernel has this id: the planner needs one for what is only thought of.
_ASKED = ""


class Outcome(str, Enum):
    """For a kernel that runs, ``starts``: it changes at once."""

    STARTS = "starts"
    QUEUED = "queued"
    NEVER = "never"


@dataclass(frozen=True)
class Moment:
    """All that the answer depends on. ``problem``: why the node agent does not answer; empty while it does."""

    ledger: LedgerSnapshot
    pending: tuple[Pending, ...] = ()
    caps: GpuCaps = field(default_factory=GpuCaps)
    largest: GpuShare = LARGEST
    problem: str = ""


@dataclass(frozen=True)
class Outlook:
    """``quota_bytes``: the limit that it would have; None where no device is known, or none can have it.

    ``position``: its place in the queue.
    """

    request: Request
    outcome: Outcome
    message: str
    position: int | None = None
    quota_bytes: int | None = None


@dataclass(frozen=True)
class Question:
    """Who asks for what; ``before``: of a kernel that runs, what it has. ``refusal``: what somebody else has decided.

    ``is_queued``: whether it may wait here; a kernel that another program started may not. ``whose``: for words.
    """

    owner: str
    request: Request
    before: Grant | None = None
    refusal: AliquotError | None = None
    is_queued: bool = True
    whose: str = "your"
    teams: frozenset[str] = frozenset()

    @property
    def held(self) -> Held | None:
        """As the planner takes it."""
        return None if self.before is None else held_of(self.before)


def foresee(moment: Moment, question: Question, now: float) -> Outlook:
    """What admission would say."""
    request, before = question.request, question.before
    others = [one for one in moment.pending if before is None or one.kernel_id != before.kernel_id]
    quota = _quota(alone(moment.ledger.room(), request, question.held))
    error = _refusal(moment, question, others)
    if error is not None:
        return _never(moment, question, others, error, quota)
    if before is not None and before.request == request:
        return Outlook(request, Outcome.STARTS, words.SAME_SIZE, quota_bytes=_quota(held_of(before).parts))
    if moment.problem:
        place, why = len(others) + 1, agent_unavailable(request, moment.problem)
        return Outlook(request, Outcome.QUEUED, words.queued(place, why.clause), place, quota)
    return _planned(moment, question, others, now, quota)


def _planned(moment: Moment, question: Question, others: Sequence[Pending], now: float, quota: int | None) -> Outlook:
    request = question.request
    asked = Pending(_ASKED, question.owner, request, now, held=question.held)
    planned = plan(moment.ledger, [*others, asked], now)
    for admit in planned.admissions:
        if admit.kernel_id == _ASKED:
            message = words.NOW_KERNEL if question.before is None else words.NOW_SIZE
            return Outlook(request, Outcome.STARTS, message, quota_bytes=_quota(admit.parts))
    for wait in planned.waiting:
        if wait.kernel_id == _ASKED:
            why = wait.reason.clause
            if not question.is_queued:
                return Outlook(request, Outcome.NEVER, words.not_now(why), quota_bytes=quota)
            return Outlook(request, Outcome.QUEUED, words.queued(wait.position, why), wait.position, quota)
    refused = next(one for one in planned.refusals if one.kernel_id == _ASKED)
    return _never(moment, question, others, refused.error, quota)


def _refusal(moment: Moment, question: Question, others: Sequence[Pending]) -> AliquotError | None:
    """What admission would refuse at once."""
    if question.refusal is not None:
        return question.refusal
    if question.request.gpus > moment.largest:
        return NeverFitsError(f"asked {question.request.gpus} GPU; at most {moment.largest} may be asked for here")
    caps = moment.caps if question.is_queued else GpuCaps()
    asker = Asker(_ASKED, question.owner, teams=question.teams)
    try:
        check_request(moment.ledger, others, caps, asker, question.request, question.before)
    except AliquotError as error:
        return error
    return None


def _never(
    moment: Moment, question: Question, others: Sequence[Pending], error: AliquotError, quota: int | None
) -> Outlook:
    room, request, held = moment.ledger.room(), question.request, question.held
    message = str(error)
    if isinstance(error, LimitError) and error is question.refusal:
        message = words.CLASS
    elif isinstance(error, LimitError):
        message = _over_quota(moment, question, others) or message
    elif isinstance(error, NeverFitsError):
        message = words.too_large(room, request, held, moment.largest)
    elif isinstance(error, GrantError) and held is not None:
        message = words.other_devices(held)
    return Outlook(request, Outcome.NEVER, message, quota_bytes=quota)


def _over_quota(moment: Moment, question: Question, others: Sequence[Pending]) -> str:
    """Which cap it is that leaves no room; empty: none does."""
    more = question.request.gpus.hundredths - (question.before.request.gpus.hundredths if question.before else 0)
    use = first_exceeded(
        moment.caps,
        claims_of(moment.ledger, others, moment.caps, question.owner, question.teams),
        question.owner,
        question.teams,
        more,
    )
    return "" if use is None else words.over_quota(question.whose, use)


def _quota(parts: Sequence[Part] | None) -> int | None:
    return None if parts is None else sum(part.quota_bytes for part in parts)
