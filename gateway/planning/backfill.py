"""Conservative backfill: smaller jobs pass a large one that waits, and no job starts later for it.

Each job gets a reservation when it arrives: the first time at which it fits beside the running jobs
and beside the reservations of all jobs before it. It starts then. So a later job takes only what
leaves each earlier one its start. The ends of jobs have to be known or estimated.

Source: Mu'alem and Feitelson, "Utilization, Predictability, Workloads, and User Runtime Estimates in
Scheduling the IBM SP2 with Backfilling", IEEE TPDS 12(6), 2001.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from heapq import heappop, heappush

from .jobs import Progress
from .queue_orders import FirstComeFirstServed

# Two moments closer than this, relative to their size, are one.
SAME = 1e-9


class FreeCapacity:
    """The free thousandths of a device in total, from now on: a step function of time."""

    def __init__(self, milli: int, since: float = -math.inf) -> None:
        self._times = [since]
        self._free = [milli]

    def earliest(self, milli: int, seconds: float, since: float) -> float:
        """Return the first time, *since* or later, from which so much is free for so long.

        Infinity if it never is.
        """
        at = max(0, bisect_right(self._times, since) - 1)
        start = since
        while at < len(self._times):
            if self._free[at] < milli:
                at += 1
                start = self._times[at] if at < len(self._times) else math.inf
                continue
            end = at
            while end < len(self._times) and self._times[end] < start + seconds and self._free[end] >= milli:
                end += 1
            if end == len(self._times) or self._times[end] >= start + seconds:
                return start
            at = end
        return math.inf

    def take(self, milli: int, start: float, end: float) -> None:
        """Take so much of it from *start* to *end*."""
        for at in range(self._split(start), self._split(end)):
            self._free[at] -= milli

    def forget_before(self, now: float) -> None:
        """Drop the steps that have passed."""
        gone = bisect_right(self._times, now) - 1
        if gone > 0:
            del self._times[:gone], self._free[:gone]

    def _split(self, moment: float) -> int:
        """Return the index of the step that begins at this moment, which is made if there is none."""
        at = bisect_left(self._times, moment)
        if at < len(self._times) and self._times[at] == moment:
            return at
        if math.isinf(moment):
            return len(self._times)
        self._times.insert(at, moment)
        self._free.insert(at, self._free[at - 1] if at else self._free[0])
        return at


class ConservativeBackfill(FirstComeFirstServed):
    """First come, first served with conservative backfill, over *milli* thousandths of a device.

    The order counts GPUs and knows no devices. A job whose time has come, and which fits on no
    device, keeps its turn: all reservations are made again in the order of arrival.
    """

    is_backfilling = True

    def __init__(self, milli: int) -> None:
        super().__init__()
        self._milli = milli
        self._now = -math.inf
        self._capacity = FreeCapacity(milli)
        # Order of a waiting job to its start, of a running one to its end.
        self._starts: dict[int, float] = {}
        self._ends: dict[int, float] = {}
        # The starts, the first one first; those that were replaced since are dropped when they come up.
        self._next: list[tuple[float, int]] = []
        # The time of a job had come, and it fitted on no device.
        self._was_blocked = False

    def arrive(self, job: Progress, now: float) -> None:
        super().arrive(job, now)
        self._now = now
        self._reserve(job)

    def leave(self, job: Progress, now: float) -> None:
        super().leave(job, now)
        self._now = now
        end = self._ends.pop(job.order, None)
        if self._starts.pop(job.order, None) is not None or end is None or not _is_same(end, now):
            self._plan_again()

    def advance(self, now: float) -> None:
        self._now = now
        self._capacity.forget_before(now)

    def ranked(self) -> Iterable[Progress]:
        """Return the jobs whose time has come, in order of arrival."""
        return [self._waiting[order] for order in self._due()]

    def settle(self) -> None:
        is_blocked = False
        for order in self._due():
            job = self._waiting[order]
            if not job.is_running:
                is_blocked = True
                continue
            self._running[order] = self._waiting.pop(order)
            self._ends[order] = self._now + _needs(job)
            del self._starts[order]
        if is_blocked or self._was_blocked:
            self._plan_again()
        self._was_blocked = is_blocked

    def next_change(self, now: float) -> float:
        while self._next and self._starts.get(self._next[0][1]) != self._next[0][0]:
            heappop(self._next)
        return self._next[0][0] if self._next else math.inf

    def start_of(self, job: Progress) -> float:
        """Return when a waiting job starts; infinity if it never does."""
        return self._starts[job.order]

    def _due(self) -> list[int]:
        """Return the waiting jobs whose time has come."""
        found = set[int]()
        while self._is_due(self.next_change(self._now)):
            found.add(heappop(self._next)[1])
        for order in found:
            heappush(self._next, (self._starts[order], order))
        return sorted(found)

    def _is_due(self, start: float) -> bool:
        return start <= self._now or _is_same(start, self._now)

    def _reserve(self, job: Progress) -> None:
        seconds = _needs(job)
        start = self._capacity.earliest(job.job.milli, seconds, self._now)
        if start < math.inf:
            self._capacity.take(job.job.milli, start, start + seconds)
        self._set_start(job, start)

    def _set_start(self, job: Progress, start: float) -> None:
        self._starts[job.order] = start
        heappush(self._next, (start, job.order))

    def _plan_again(self) -> None:
        """Make all reservations anew, in the order of arrival."""
        blocked = set(self._due())
        self._capacity = FreeCapacity(self._milli, self._now)
        for job in self._running.values():
            self._capacity.take(job.job.milli, self._now, self._ends[job.order])
        next_end = min((end for end in self._ends.values() if end > self._now), default=math.inf)
        for job in self._waiting.values():
            self._reserve(job)
            if job.order in blocked and self._is_due(self._starts[job.order]):
                self._set_start(job, next_end)


def _needs(job: Progress) -> float:
    return job.job.start_overhead + job.left


def _is_same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=SAME)
