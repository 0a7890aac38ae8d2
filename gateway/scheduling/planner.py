"""Who goes next: pure ``plan(snapshot, pending, now)``. No I/O, no clock, the same answer for the same arguments.

First come, first served: the head of the queue that does not fit now blocks those behind it, so that a large request
is not starved by small ones. A running kernel that is to grow blocks its own devices alone: room elsewhere is none of
its. One that is to shrink makes room, and waits for nobody. One that comes in the place of another counts on its room.
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

from .capacity import Held, Room
from .ledger import LedgerSnapshot
from .resize import check_devices, needs_room
from .wait_reason import WaitReason, lacking, replaced_kernel


@dataclass(frozen=True)
class Pending:
    """One request in the queue, in order of arrival. ``deadline``: until when its asker waits; None: for ever.

    ``held``: what it has already, of a running kernel that is to change its size.
    """

    kernel_id: str
    owner: str
    request: Request
    since: float
    deadline: float | None = None
    held: Held | None = None
    # Of its owner, when the kernel was asked for.
    teams: frozenset[str] = frozenset()
    # Kernels of the same owner in whose place it comes; they end when it is certain to have room.
    replaces: frozenset[str] = frozenset()
    # They were asked to end for it: their room is promised to it.
    is_promised: bool = False

    @property
    def more(self) -> int:
        """Hundredths beyond what it holds already."""
        held = sum(part.hundredths for part in self.held.parts) if self.held else 0
        return max(0, self.request.gpus.hundredths - held)


@dataclass(frozen=True)
class Admit:
    """Reserve this, here."""

    kernel_id: str
    parts: tuple[Part, ...]

    def placement(self) -> dict[str, int]:
        """uuid → hundredths, as the agent takes it."""
        return {part.uuid: part.hundredths for part in self.parts}


@dataclass(frozen=True)
class Wait:
    """Stay in the queue at this position, for this reason."""

    kernel_id: str
    position: int
    reason: WaitReason


@dataclass(frozen=True)
class Refuse:
    """Leave the queue with this error."""

    kernel_id: str
    error: AliquotError


@dataclass(frozen=True)
class Plan:
    """What to do with each pending request: every one of them is in exactly one of the first three."""

    admissions: tuple[Admit, ...] = ()
    waiting: tuple[Wait, ...] = ()
    refusals: tuple[Refuse, ...] = ()
    # Of those that wait: they have room as soon as those have ended in whose place they come.
    promised: tuple[str, ...] = ()


def plan(snapshot: LedgerSnapshot, pending: Sequence[Pending], now: float) -> Plan:
    """Admit the heads that fit, in order; refuse what can never fit or has waited too long; let the rest wait."""
    served = _serve(snapshot, pending, now)
    reasons = _Reasons(served.room, frozenset(served.promised))
    waiting = tuple(Wait(one.kernel_id, place, reasons.of(one)) for place, one in enumerate(served.blocked, 1))
    return Plan(tuple(served.admissions), waiting, tuple(served.refusals), tuple(served.promised))


@dataclass(frozen=True)
class _Served:
    """A plan before anybody asks why the ``blocked`` wait. ``room``: what is left to them."""

    room: Room
    admissions: Sequence[Admit]
    blocked: Sequence[Pending]
    refusals: Sequence[Refuse]
    promised: Sequence[str]


def _serve(snapshot: LedgerSnapshot, pending: Sequence[Pending], now: float) -> _Served:
    room = snapshot.room()
    admissions: list[Admit] = []
    blocked: list[Pending] = []
    refusals: list[Refuse] = []
    promised: list[str] = []
    is_blocked = False
    for entry in queue_order(snapshot, pending):
        error = never_fits(room, entry.request, entry.held)
        if error is not None:
            refusals.append(Refuse(entry.kernel_id, error))
            continue
        placed = None if is_blocked else room.place(entry.request, entry.held)
        if isinstance(placed, tuple):
            admissions.append(Admit(entry.kernel_id, placed))
            room = room if entry.held is None else room.give_back(entry.held)
            room = room.take(placed, entry.request.workload_class)
        elif not is_blocked and (left := _room_in_place(snapshot, room, entry)) is not None:
            promised.append(entry.kernel_id)
            blocked.append(entry)
            # What it waits for is not free yet, so that nobody else can be placed there.
            room, is_blocked = left, True
        elif entry.deadline is not None and now >= entry.deadline:
            refusals.append(Refuse(entry.kernel_id, _waited_too_long(room, entry, len(blocked) + 1, now)))
        else:
            blocked.append(entry)
            is_blocked = is_blocked or entry.held is None
            room = room if entry.held is None else room.close(entry.held.parts)
    return _Served(room, admissions, blocked, refusals, promised)


# More of a queue, and more ends, are not foreseen: the answer is asked for each second.
_MOST_FORESEEN = 16


def expected_starts(
    snapshot: LedgerSnapshot, pending: Sequence[Pending], ends: Mapping[str, float], now: float
) -> dict[str, float]:
    """Return the first moment at which each request fits, by kernel id: plan again when a kernel or a patience ends.

    ``ends``: kernels that hold something, and when they end; a moment before *now* counts as now. Requests that fit at
    no such moment are left out, and those behind the first 16 of the queue.
    """
    found: dict[str, float] = {}
    left = queue_order(snapshot, pending)[:_MOST_FORESEEN]
    for one in left:
        ends = {**ends, **dict.fromkeys(one.replaces if one.is_promised else (), now)}
    known = {kernel_id: max(now, at) for kernel_id, at in ends.items() if kernel_id in snapshot.holdings}
    patience = {one.deadline for one in left if one.deadline is not None and one.deadline > now}
    for moment in sorted({now, *known.values(), *patience})[: 2 * _MOST_FORESEEN]:
        gone = [kernel_id for kernel_id, at in known.items() if at == moment]
        snapshot, left = _ended(snapshot, gone), [one for one in left if one.kernel_id not in gone]
        is_settled = False
        while left and not is_settled:
            served = _serve(snapshot, left, moment)
            requests = {one.kernel_id: one for one in left}
            for admit in served.admissions:
                found[admit.kernel_id] = moment
                snapshot = snapshot.with_parts(admit.kernel_id, requests[admit.kernel_id].request, admit.parts)
            # It asks those to end in whose place it comes, and starts as soon as they have.
            for kernel_id in served.promised:
                snapshot = _ended(snapshot, requests[kernel_id].replaces)
            left, is_settled = list(served.blocked), not served.promised
    return found


def _ended(snapshot: LedgerSnapshot, kernel_ids: Iterable[str]) -> LedgerSnapshot:
    for kernel_id in kernel_ids:
        snapshot = snapshot.without(kernel_id)
    return snapshot


def queue_order(snapshot: LedgerSnapshot, pending: Sequence[Pending]) -> list[Pending]:
    """The order in which a plan serves them: the only rule for a position in the queue.

    Those come first whose room is promised, then those that make room, then all others as they arrived.
    """
    room = snapshot.room()
    return sorted(pending, key=lambda entry: (not entry.is_promised, not _makes_room(snapshot, room, entry)))


def _makes_room(snapshot: LedgerSnapshot, room: Room, entry: Pending) -> bool:
    """Whether it changes its size, or comes in the place of another, and takes no more of any device: these go before
    all others.
    """
    given_up = snapshot.held_in_place_of(entry.replaces)
    held = given_up[0] if len(given_up) == 1 else entry.held
    if held is None or never_fits(room, entry.request, held) is not None:
        return False
    return not needs_room(room, held, entry.request)


def _room_in_place(snapshot: LedgerSnapshot, room: Room, entry: Pending) -> Room | None:
    """What is left once it has replaced others; None where their room is not enough, or none is."""
    given_up = snapshot.held_in_place_of(entry.replaces)
    for held in given_up:
        room = room.give_back(held)
    placed = room.place(entry.request) if given_up else None
    return room.take(placed, entry.request.workload_class) if isinstance(placed, tuple) else None


def never_fits(room: Room, request: Request, held: Held | None = None) -> AliquotError | None:
    """The error of a request that waiting cannot help; None for one that fits the empty node, where ``held`` is."""
    try:
        if held is not None:
            check_devices(held, request)
    except AliquotError as error:
        return error
    empty = room.emptied()
    if held is not None:
        empty = empty.take(held.parts, held.workload_class)
    placed = empty.place(request, held)
    if isinstance(placed, tuple):
        return None
    if placed.code == BAD_REQUEST:
        return RequestError(placed.message)
    if placed.code == DEVICE_LOST or isinstance(empty.found().place(request, held), tuple):
        return DeviceLostError(placed.message)
    return NeverFitsError(placed.message)


class _Reasons:
    """Why the requests of one plan wait. Requests of one size have one reason, which is worked out once."""

    def __init__(self, room: Room, promised: frozenset[str]) -> None:
        self._room = room
        self._promised = promised
        self._found: dict[tuple[Request, str, Held | None], WaitReason] = {}

    def of(self, entry: Pending) -> WaitReason:
        if entry.kernel_id in self._promised:
            return replaced_kernel(entry.request)
        size = (entry.request, entry.request.residency, entry.held)
        if size not in self._found:
            self._found[size] = lacking(self._room, entry.request, entry.held)
        return self._found[size]


def _waited_too_long(room: Room, entry: Pending, position: int, now: float) -> QueueTimeoutError:
    ahead = f"{position - 1} {'request' if position == 2 else 'requests'}" if position > 1 else "no request"
    return QueueTimeoutError(
        f"{lacking(room, entry.request, entry.held).sentence}. The request waited {now - entry.since:.0f} s in the "
        f"queue, with {ahead} ahead of it. Choose a smaller size, end a kernel that is not needed, or try again"
    )
