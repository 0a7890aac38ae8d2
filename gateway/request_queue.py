"""Who waits: the requests that have no grant yet, in order of arrival. A request leaves it exactly once.

Written by admission alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from aliquot.provisioner.errors import AliquotError, WithdrawnError
from aliquot.provisioner.resources import Grant, Request

from .ledger import Asker
from .planner import Pending


@dataclass(frozen=True)
class QueueEntry:
    """One waiting request, as people see it. ``since`` is in seconds since the epoch."""

    kernel_id: str
    owner: str
    request: Request
    label: str
    position: int
    reason: str
    since: float
    # It runs, and waits for a larger size.
    is_growth: bool = False


@dataclass
class Waiting:
    """One request in the queue. ``reason`` is written by admission after each cycle."""

    asker: Asker
    pending: Pending
    shown_since: float
    future: asyncio.Future[Grant]
    reason: str = "waiting for its turn"
    # Ends those in whose place it comes: called once, when that is all that it waits for.
    make_way: Callable[[], None] = lambda: None
    # Set when a cycle has looked at it and has not granted it.
    looked_at: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_growth(self) -> bool:
        """Whether it runs, and is to change its size."""
        return self.pending.held is not None

    async def until_looked_at(self) -> None:
        """Until a cycle has looked at it, or it has its answer."""
        looked = asyncio.ensure_future(self.looked_at.wait())
        waits: set[asyncio.Future[Any]] = {self.future, looked}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            looked.cancel()


class RequestQueue:
    """Requests in order of arrival. ``outcomes`` counts how they left."""

    def __init__(self) -> None:
        self._waiting: dict[str, Waiting] = {}
        # By kernel id, counted when somebody asks: a place in the queue is asked for each kernel that is shown.
        self._places: dict[str, int] | None = None
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
        """At its place by time: one that a gateway before us had queued comes before those who came since."""
        self._places = None
        later = [other for other in self._waiting.values() if other.pending.since > waiting.pending.since]
        self._waiting[waiting.asker.kernel_id] = waiting
        for other in later:
            self._waiting[other.asker.kernel_id] = self._waiting.pop(other.asker.kernel_id)
        if not waiting.is_growth:
            self.outcomes["submitted"] += 1

    def grant(self, waiting: Waiting, grant: Grant) -> bool:
        """Hand the grant over; False when its asker had left meanwhile."""
        if self._waiting.get(waiting.asker.kernel_id) is not waiting or waiting.future.done():
            return False
        self._leave(waiting, "granted")
        waiting.future.set_result(grant)
        return True

    def refuse(self, waiting: Waiting, error: AliquotError) -> None:
        if self._waiting.get(waiting.asker.kernel_id) is waiting:
            self._leave(waiting, "refused")
            if not waiting.future.done():
                waiting.future.set_exception(error)

    def withdraw(self, kernel_id: str, reason: str) -> bool:
        """Take a request out; tells whether it was there."""
        waiting = self._waiting.get(kernel_id)
        if waiting is None:
            return False
        self._leave(waiting, "withdrawn")
        if not waiting.future.done():
            asked = waiting.pending.request.gpus
            waiting.future.set_exception(WithdrawnError(f"asked {asked} GPU; withdrawn: {reason}"))
        return True

    def promise(self, waiting: Waiting) -> None:
        """It has room as soon as those have ended in whose place it comes: they are asked to, once."""
        if not waiting.pending.is_promised:
            waiting.pending = replace(waiting.pending, is_promised=True)
            waiting.make_way()

    def pending(self, without: Collection[str] = ()) -> tuple[Pending, ...]:
        """What the planner is asked with, in order. ``without``: kernels that are about to be replaced."""
        return tuple(waiting.pending for waiting in self._waiting.values() if waiting.asker.kernel_id not in without)

    def entries(self) -> tuple[QueueEntry, ...]:
        """The queue, frozen."""
        return tuple(_entry(waiting, place) for place, waiting in enumerate(self._waiting.values(), 1))

    def entry(self, kernel_id: str) -> QueueEntry | None:
        """One of them; None for a kernel that does not wait."""
        waiting = self._waiting.get(kernel_id)
        if waiting is None:
            return None
        if self._places is None:
            self._places = {each: place for place, each in enumerate(self._waiting, 1)}
        return _entry(waiting, self._places[kernel_id])

    def _leave(self, waiting: Waiting, outcome: str) -> None:
        del self._waiting[waiting.asker.kernel_id]
        self._places = None
        if not waiting.is_growth:
            self.outcomes[outcome] += 1
        elif outcome == "granted":
            self.outcomes["resized"] += 1


def _entry(waiting: Waiting, position: int) -> QueueEntry:
    return QueueEntry(
        kernel_id=waiting.asker.kernel_id,
        owner=waiting.asker.owner,
        request=waiting.pending.request,
        label=waiting.asker.label,
        position=position,
        reason=waiting.reason,
        since=waiting.shown_since,
        is_growth=waiting.is_growth,
    )
