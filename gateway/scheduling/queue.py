"""The queue: the requests that have no grant yet, in order of arrival.

A request leaves it exactly once.

Admission alone writes it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from jupyter_aliquot.gateway.sizes.grammar import base_of
from jupyter_aliquot.gpu_hook.waiting import until_first
from jupyter_aliquot.provisioner.errors import AliquotError, WithdrawnError
from jupyter_aliquot.provisioner.resources import Grant, Request

from .ledger import Holding, KernelRef
from .planner import Pending
from .resize import held_of
from .wait_reason import WaitCode, WaitReason, not_planned


@dataclass(frozen=True)
class Prediction:
    """The times between which a request probably starts, seconds since the epoch: four of five start by ``latest``."""

    earliest: float
    latest: float


@dataclass(frozen=True)
class QueueEntry:
    """One waiting request for users, at ``position`` of ``length``. One that no cycle has planned yet counts last.

    Times in seconds since the epoch.

    ``expected_start`` is when it gets capacity if kernels end as announced; None where that is not
    known. ``predicted`` is learned from kernels that ended; None where too few did.
    """

    kernel_id: str
    owner: str
    request: Request
    label: str
    position: int
    length: int
    why: WaitReason
    since: float
    # The kernel runs, and waits for a larger size; or it is evicted, and waits to return.
    is_growth: bool = False
    is_return: bool = False
    expected_start: float | None = None
    predicted: Prediction | None = None

    @property
    def reason(self) -> str:
        """The reason why it waits, as one sentence."""
        return self.why.sentence


@dataclass
class Waiting:
    """One request in the queue. Admission writes ``why`` after each cycle."""

    requester: KernelRef
    pending: Pending
    shown_since: float
    future: asyncio.Future[Grant]
    why: WaitReason
    # Ends the kernels that it replaces. Called once, when it lacks nothing but their capacity.
    on_room_reserved: Callable[[], None] = lambda: None
    # Set when a cycle has planned it and has not granted it.
    looked_at: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_growth(self) -> bool:
        """Return whether the kernel runs, and is to change its size or to return to its devices."""
        return self.pending.devices is not None

    @property
    def is_return(self) -> bool:
        """Return whether the kernel is evicted, and is to return to its devices."""
        return self.pending.returns_to is not None

    def promised(self, node: str) -> Holding:
        """Return the grant that it may get on a node, without parts."""
        asked = self.pending
        grant = Grant(asked.kernel_id, asked.owner, asked.request, node, (), "", ())
        return Holding(grant, self.requester, self.shown_since)

    async def until_looked_at(self) -> None:
        """Wait until a cycle has planned it, or it has its grant or its error."""
        await until_first(self.looked_at.wait(), asyncio.wait({self.future}))


def pending_of(requester: KernelRef, request: Request, since: float, deadline: float | None) -> Pending:
    """Return the request of a kernel that is to start, for the planner."""
    of, wish = (requester.kernel_id, requester.owner), requester.wish
    who, kernelspec = (requester.teams, requester.replaces), base_of(requester.kernelspec)
    return Pending(*of, request, since, deadline, None, *who, wish=wish, kernelspec=kernelspec)


def growth_of(holding: Holding, request: Request, since: float, shown_since: float) -> Waiting:
    """Return the request of a running kernel for another size."""
    held, teams, wish = held_of(holding.grant), holding.requester.teams, holding.requester.wish
    pending = Pending(holding.grant.kernel_id, holding.grant.owner, request, since, held=held, teams=teams, wish=wish)
    return Waiting(holding.requester, pending, shown_since, _unheard(), not_planned(request))


def return_of(holding: Holding, since: float, shown_since: float) -> Waiting:
    """Return the request of an evicted kernel for its devices, at the place of its first request."""
    grant, teams = holding.grant, holding.requester.teams
    pending = Pending(grant.kernel_id, grant.owner, grant.request, since, teams=teams, returns_to=held_of(grant))
    return Waiting(holding.requester, pending, shown_since, _unheard(), not_planned(grant.request))


def _unheard() -> asyncio.Future[Grant]:
    """Return a future whose error asyncio does not report where no caller waits for it."""
    future: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda done: done.exception() if not done.cancelled() else None)
    return future


class RequestQueue:
    """Requests in order of arrival. ``outcomes`` counts how they left the queue."""

    def __init__(self) -> None:
        self._waiting: dict[str, Waiting] = {}
        # Kernel id to its place in the planner's order, which admission tells after each cycle.
        self._order: dict[str, int] = {}
        # Kernel id to its position, counted at the first use: a status report asks for each kernel.
        self._places: dict[str, int] | None = None
        self._planned = 0  # how many of them a cycle has planned
        self.outcomes: Counter[str] = Counter(submitted=0, granted=0, refused=0, withdrawn=0, resized=0)

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(list(self._waiting.values()))

    def __contains__(self, kernel_id: str) -> bool:
        return kernel_id in self._waiting

    def get(self, kernel_id: str) -> Waiting | None:
        return self._waiting.get(kernel_id)

    def add(self, waiting: Waiting) -> None:
        """Add it at its place by time.

        A request that an earlier gateway queued comes before later ones.
        """
        self._places = None
        later = [other for other in self._waiting.values() if other.pending.since > waiting.pending.since]
        self._waiting[waiting.requester.kernel_id] = waiting
        for other in later:
            self._waiting[other.requester.kernel_id] = self._waiting.pop(other.requester.kernel_id)
        if not waiting.is_growth:
            self.outcomes["submitted"] += 1

    def grant(self, waiting: Waiting, grant: Grant) -> bool:
        """Hand the grant over. Return False if the request was withdrawn meanwhile."""
        if self._waiting.get(waiting.requester.kernel_id) is not waiting or waiting.future.done():
            return False
        self._leave(waiting, "granted")
        waiting.future.set_result(grant)
        return True

    def refuse(self, waiting: Waiting, error: AliquotError) -> None:
        if self._waiting.get(waiting.requester.kernel_id) is waiting:
            self._leave(waiting, "refused")
            if not waiting.future.done():
                waiting.future.set_exception(error)

    def withdraw(self, kernel_id: str, reason: str) -> bool:
        """Take a request out, and return whether it was there."""
        waiting = self._waiting.get(kernel_id)
        if waiting is None:
            return False
        self._leave(waiting, "withdrawn")
        if not waiting.future.done():
            asked = waiting.pending.request.gpus
            waiting.future.set_exception(WithdrawnError(f"The request for {asked} GPU was withdrawn: {reason}"))
        return True

    def preempt(self, waiting: Waiting) -> None:
        """End the kernels that it replaces, once: it has capacity as soon as they have ended.

        One that left the queue while it was planned ends none.
        """
        is_here = self._waiting.get(waiting.requester.kernel_id) is waiting
        if is_here and not waiting.pending.is_preempting:
            waiting.pending = replace(waiting.pending, is_preempting=True)
            waiting.on_room_reserved()

    def pending(self, without: Collection[str] = ()) -> tuple[Pending, ...]:
        """Return the requests for the planner, in order, except those of the kernels *without*."""
        return tuple(
            waiting.pending for waiting in self._waiting.values() if waiting.requester.kernel_id not in without
        )

    def rank(self, order: Iterable[Pending]) -> None:
        """Show the queue in this order from now on.

        A later request is shown last until it is ranked.
        """
        self._order = {pending.kernel_id: place for place, pending in enumerate(order)}
        self._places = None

    def entries(self) -> tuple[QueueEntry, ...]:
        """Return the queue in the planner's order, frozen."""
        self._places = None  # since they were counted, an agent may have refused a request that was to start
        return tuple(self._entry(self._waiting[kernel_id], place) for kernel_id, place in self._ranked().items())

    def entry(self, kernel_id: str) -> QueueEntry | None:
        """Return the entry of a kernel; None for a kernel that does not wait."""
        waiting = self._waiting.get(kernel_id)
        if waiting is None:
            return None
        return self._entry(waiting, self._ranked()[kernel_id])

    def _ranked(self) -> dict[str, int]:
        if self._places is None:
            last = len(self._order)
            unplanned = {one for one, waiting in self._waiting.items() if waiting.why.code is WaitCode.NOT_PLANNED}
            ids = sorted(self._waiting, key=lambda one: (one in unplanned, self._order.get(one, last)))
            self._places = {each: place for place, each in enumerate(ids, 1)}
            self._planned = len(ids) - len(unplanned)
        return self._places

    def _leave(self, waiting: Waiting, outcome: str) -> None:
        del self._waiting[waiting.requester.kernel_id]
        self._places = None
        if not waiting.is_growth:
            self.outcomes[outcome] += 1
        elif outcome == "granted" and not waiting.is_return:
            self.outcomes["resized"] += 1

    def _entry(self, waiting: Waiting, position: int) -> QueueEntry:
        return QueueEntry(
            kernel_id=waiting.requester.kernel_id,
            owner=waiting.requester.owner,
            request=waiting.pending.request,
            label=waiting.requester.label,
            position=position,
            length=max(position, self._planned),
            why=waiting.why,
            since=waiting.shown_since,
            is_growth=waiting.is_growth,
            is_return=waiting.is_return,
        )
