"""The plan of what starts next: ``plan(snapshot, pending, now)``. Pure: no I/O, no clock.

First come, first served: a head of the queue that does not fit now blocks the requests behind it,
so that small requests do not starve a large one. A running kernel that is to grow blocks its own
devices alone: it gets no capacity elsewhere. A kernel that is to shrink frees capacity, and waits
for no other request. A kernel that replaces another counts on its capacity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.placement.placement import BAD_REQUEST, DEVICE_LOST, Part
from jupyter_aliquot.provisioner.errors import (
    AliquotError,
    DeviceLostError,
    NeverFitsError,
    QueueTimeoutError,
    RequestError,
)
from jupyter_aliquot.provisioner.resources import Request

from .capacity import Capacity, Held
from .ledger import LedgerSnapshot
from .resize import check_devices, needs_capacity
from .wait_reason import WaitReason, lacking, replaced_kernel


@dataclass(frozen=True)
class Pending:
    """One request in the queue, in order of arrival.

    It waits until ``deadline``; without one, for ever.

    ``held`` are the parts of a running kernel that is to change its size.
    """

    kernel_id: str
    owner: str
    request: Request
    since: float
    deadline: float | None = None
    held: Held | None = None
    # The owner's teams when the kernel was requested.
    teams: frozenset[str] = frozenset()
    # Kernels of the same owner that it replaces. They end when it is certain to have capacity.
    replaces: frozenset[str] = frozenset()
    # The replaced kernels were told to end: their capacity is for this request.
    is_preempting: bool = False

    @property
    def more(self) -> int:
        """The hundredths beyond those that it holds already."""
        held = sum(part.hundredths for part in self.held.parts) if self.held else 0
        return max(0, self.request.gpus.hundredths - held)


@dataclass(frozen=True)
class Admit:
    """A decision to reserve these parts for a kernel."""

    kernel_id: str
    parts: tuple[Part, ...]

    def placement(self) -> dict[str, int]:
        """Return uuid → hundredths, as the agent takes it."""
        return {part.uuid: part.hundredths for part in self.parts}


@dataclass(frozen=True)
class Wait:
    """A decision to let a request wait at this position, for this reason."""

    kernel_id: str
    position: int
    reason: WaitReason


@dataclass(frozen=True)
class Refuse:
    """A decision to end a request with this error."""

    kernel_id: str
    error: AliquotError


@dataclass(frozen=True)
class Plan:
    """The decisions about all pending requests.

    Each request is in exactly one of the first three fields.
    """

    admissions: tuple[Admit, ...] = ()
    waiting: tuple[Wait, ...] = ()
    refusals: tuple[Refuse, ...] = ()
    # The waiting requests that lack nothing but the capacity of the kernels that they replace.
    preempting: tuple[str, ...] = ()


def plan(snapshot: LedgerSnapshot, pending: Sequence[Pending], now: float) -> Plan:
    """Admit the heads that fit, in order.

    Refuse requests that never fit or waited too long. Let the rest wait.
    """
    served = _serve(snapshot, pending, now)
    reasons = _Reasons(served.capacity, frozenset(served.preempting))
    waiting = tuple(Wait(one.kernel_id, place, reasons.of(one)) for place, one in enumerate(served.blocked, 1))
    return Plan(tuple(served.admissions), waiting, tuple(served.refusals), tuple(served.preempting))


@dataclass(frozen=True)
class _Served:
    """A plan without the reasons of the ``blocked`` requests, to which ``capacity`` is left."""

    capacity: Capacity
    admissions: Sequence[Admit]
    blocked: Sequence[Pending]
    refusals: Sequence[Refuse]
    preempting: Sequence[str]


def _serve(snapshot: LedgerSnapshot, pending: Sequence[Pending], now: float) -> _Served:
    capacity = snapshot.capacity()
    admissions: list[Admit] = []
    blocked: list[Pending] = []
    refusals: list[Refuse] = []
    preempting: list[str] = []
    is_blocked = False
    for entry in queue_order(snapshot, pending):
        error = never_fits(capacity, entry.request, entry.held)
        if error is not None:
            refusals.append(Refuse(entry.kernel_id, error))
            continue
        placed = None if is_blocked else capacity.place(entry.request, entry.held)
        if isinstance(placed, tuple):
            admissions.append(Admit(entry.kernel_id, placed))
            capacity = capacity if entry.held is None else capacity.give_back(entry.held)
            capacity = capacity.take(placed, entry.request.workload_class)
        elif not is_blocked and (left := _capacity_in_place(snapshot, capacity, entry)) is not None:
            preempting.append(entry.kernel_id)
            blocked.append(entry)
            # The capacity that it waits for is not free yet, so that no other request can be placed
            # there.
            capacity, is_blocked = left, True
        elif entry.deadline is not None and now >= entry.deadline:
            refusals.append(Refuse(entry.kernel_id, _waited_too_long(capacity, entry, len(blocked) + 1, now)))
        else:
            blocked.append(entry)
            is_blocked = is_blocked or entry.held is None
            capacity = capacity if entry.held is None else capacity.close(entry.held.parts)
    return _Served(capacity, admissions, blocked, refusals, preempting)


# Bounds of the forecast, which is made anew each second: so many requests, and twice so many ends.
_MOST_FORESEEN = 16


def expected_starts(
    snapshot: LedgerSnapshot, pending: Sequence[Pending], ends: Mapping[str, float], now: float
) -> dict[str, float]:
    """Return the first moment at which each request fits, by kernel id.

    The forecast plans again at each end of a kernel and at each deadline of a request. *ends* are
    the ends of kernels that hold a grant; an end before *now* counts as now. Requests that fit at
    no such moment are left out, and those behind the first 16 of the queue.
    """
    found: dict[str, float] = {}
    left = queue_order(snapshot, pending)[:_MOST_FORESEEN]
    for one in left:
        ends = {**ends, **dict.fromkeys(one.replaces if one.is_preempting else (), now)}
    known = {kernel_id: max(now, at) for kernel_id, at in ends.items() if kernel_id in snapshot.holdings}
    patience = {one.deadline for one in left if one.deadline is not None and one.deadline > now}
    for moment in sorted({now, *known.values(), *patience})[: 2 * _MOST_FORESEEN]:
        gone = [kernel_id for kernel_id, at in known.items() if at == moment]
        snapshot, left = _ended(snapshot, gone), [one for one in left if one.kernel_id not in gone]
        is_settled = False
        while left and not is_settled:
            served = _serve(snapshot, left, moment)
            found |= {admit.kernel_id: moment for admit in served.admissions}
            snapshot = carried_out(snapshot, left, served)
            left, is_settled = list(served.blocked), not served.preempting
    return found


def carried_out(snapshot: LedgerSnapshot, pending: Sequence[Pending], planned: Plan | _Served) -> LedgerSnapshot:
    """Return the ledger once the admitted kernels hold their parts, and replaced ones have ended.

    The replaced kernels of a preempting request are told to end, and it starts when they have.
    """
    requests = {one.kernel_id: one for one in pending}
    for admit in planned.admissions:
        snapshot = snapshot.with_parts(admit.kernel_id, requests[admit.kernel_id].request, admit.parts)
    for kernel_id in planned.preempting:
        snapshot = _ended(snapshot, requests[kernel_id].replaces)
    return snapshot


def _ended(snapshot: LedgerSnapshot, kernel_ids: Iterable[str]) -> LedgerSnapshot:
    for kernel_id in kernel_ids:
        snapshot = snapshot.without(kernel_id)
    return snapshot


def queue_order(snapshot: LedgerSnapshot, pending: Sequence[Pending]) -> list[Pending]:
    """Return the order in which a plan serves the requests, and thus their places in the queue.

    No other rule gives a place. Requests whose replaced kernels are ending come first, then those
    that free capacity, then all others as they arrived.
    """
    capacity = snapshot.capacity()
    return sorted(pending, key=lambda entry: (not entry.is_preempting, not _frees_capacity(snapshot, capacity, entry)))


def _frees_capacity(snapshot: LedgerSnapshot, capacity: Capacity, entry: Pending) -> bool:
    """Return whether it changes its size or replaces a kernel, and takes no more of any device.

    Such requests go before all others.
    """
    given_up = snapshot.held_in_place_of(entry.replaces)
    held = given_up[0] if len(given_up) == 1 else entry.held
    if held is None or never_fits(capacity, entry.request, held) is not None:
        return False
    return not needs_capacity(capacity, held, entry.request)


def _capacity_in_place(snapshot: LedgerSnapshot, capacity: Capacity, entry: Pending) -> Capacity | None:
    """Return the capacity that is left once the request has replaced its kernels.

    None if theirs is not enough, or none ends.
    """
    given_up = snapshot.held_in_place_of(entry.replaces)
    for held in given_up:
        capacity = capacity.give_back(held)
    placed = capacity.place(entry.request) if given_up else None
    return capacity.take(placed, entry.request.workload_class) if isinstance(placed, tuple) else None


def never_fits(capacity: Capacity, request: Request, held: Held | None = None) -> AliquotError | None:
    """Return the error of a request that waiting cannot help.

    None if it fits the empty node with *held* on it.
    """
    try:
        if held is not None:
            check_devices(held, request)
    except AliquotError as error:
        return error
    placed = capacity.place_alone(request, held)
    if isinstance(placed, tuple):
        return None
    if placed.code == BAD_REQUEST:
        return RequestError(placed.message)
    if placed.code == DEVICE_LOST or isinstance(capacity.found().place_alone(request, held), tuple):
        return DeviceLostError(placed.message)
    return NeverFitsError(placed.message)


class _Reasons:
    """The reasons why the requests of one plan wait.

    Requests of one size share a reason, which is found once.
    """

    def __init__(self, capacity: Capacity, preempting: frozenset[str]) -> None:
        self._capacity = capacity
        self._promised = preempting
        self._found: dict[tuple[Request, str, Held | None], WaitReason] = {}

    def of(self, entry: Pending) -> WaitReason:
        if entry.kernel_id in self._promised:
            return replaced_kernel(entry.request)
        size = (entry.request, entry.request.residency, entry.held)
        if size not in self._found:
            self._found[size] = lacking(self._capacity, entry.request, entry.held)
        return self._found[size]


def _waited_too_long(capacity: Capacity, entry: Pending, position: int, now: float) -> QueueTimeoutError:
    ahead = f"{position - 1} {'request' if position == 2 else 'requests'}" if position > 1 else "no request"
    return QueueTimeoutError(
        f"{lacking(capacity, entry.request, entry.held).sentence}. The request waited {now - entry.since:.0f} s in the "
        f"queue, with {ahead} ahead of it. Choose a smaller size, end a kernel that is not needed, or try again"
    )
