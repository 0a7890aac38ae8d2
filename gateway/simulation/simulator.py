"""A simulation of a cluster: jobs arrive, an order ranks them, a pool holds them. Pure; no clock.

Time goes from event to event: an arrival, an end, or a change of the order itself. After each event
one pass gives the GPUs to the jobs that come first. The orders and the choice of nodes are those of
``planning``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from jupyter_aliquot.gateway.planning.jobs import Job, Progress
from jupyter_aliquot.gateway.planning.queue_orders import QueueOrder

from .pools import Pool

# Ends closer than this, relative to their time, are one event.
SAME = 1e-9
EVENTS_PER_REPORT = 1000


class Overhead(str, Enum):
    """The rule by which a running job loses its start overhead.

    ``EACH_EVENT`` is the rule of the simulator behind Muri's and Tiresias' published tables: a job
    loses it in every interval between two events, though it ran before. It is here to reproduce
    them.
    """

    NONE = "none"
    AT_START = "start"
    EACH_EVENT = "event"


@dataclass(frozen=True)
class Run:
    """The times of one job, seconds. ``stops`` is how often it had to stop for another."""

    job: Job
    start: float
    end: float
    stops: int = 0

    @property
    def completion_seconds(self) -> float:
        """Job completion time: from submission to the end."""
        return self.end - self.job.submit


@dataclass(frozen=True)
class Outcome:
    """The result of a simulation.

    ``use`` is time to thousandths of a device in use from then on, where it changes. ``never`` are
    the jobs that are larger than the cluster.
    """

    runs: tuple[Run, ...]
    use: tuple[tuple[float, int], ...]
    milli: int
    never: tuple[Job, ...] = ()

    @property
    def makespan(self) -> float:
        """The end of the last job, seconds."""
        return max((run.end for run in self.runs), default=0.0)

    @property
    def utilization(self) -> float:
        """The share of all GPU time that was in use, from the first submission to the last end."""
        end = self.makespan
        used = sum(milli * (until - at) for (at, milli), (until, _) in zip(self.use, self.use[1:], strict=False))
        span = end - self.use[0][0] if self.use else 0.0
        return used / (span * self.milli) if span > 0 and self.milli else 0.0


class Simulation:
    """One run of a trace. Each instance runs once."""

    def __init__(
        self,
        jobs: Sequence[Job],
        pool: Pool,
        order: QueueOrder,
        overhead: Overhead = Overhead.AT_START,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self._pool = pool
        self._order = order
        self._overhead = overhead
        self._on_progress = on_progress
        self._never = tuple(job for job in jobs if not pool.could_hold(job))
        arrivals = sorted((job for job in jobs if pool.could_hold(job)), key=lambda job: job.submit)
        self._arrivals = [Progress(job, at) for at, job in enumerate(arrivals)]
        self._arrived = 0
        self._running: list[Progress] = []
        self._runs: list[Run] = []
        self._stops: dict[int, int] = {}
        # The seconds of start overhead that a running job has still to lose.
        self._debt: dict[int, float] = {}
        self._use: list[tuple[float, int]] = []
        self._now = self._arrivals[0].job.submit if self._arrivals else 0.0

    def run(self) -> Outcome:
        """Simulate until the last job has ended."""
        events = 0
        while len(self._runs) < len(self._arrivals):
            self._step()
            events += 1
            if events % EVENTS_PER_REPORT == 0:
                self._on_progress(len(self._runs), len(self._arrivals))
        self._on_progress(len(self._runs), len(self._arrivals))
        runs = sorted(self._runs, key=lambda run: (run.job.submit, run.job.name))
        return Outcome(tuple(runs), tuple(self._use), self._pool.milli, self._never)

    def _step(self) -> None:
        end, ending = self._next_ends()
        arrival = self._arrivals[self._arrived].job.submit if self._arrived < len(self._arrivals) else math.inf
        at = min(end, arrival, self._order.next_change(self._now))
        if math.isinf(at):
            raise RuntimeError(f"{len(self._arrivals) - len(self._runs)} jobs wait, and nothing will happen")
        # An order whose next change is now, by rounding, must not stop the clock.
        at = at if at > self._now or at in (end, arrival) else math.nextafter(self._now, math.inf)
        self._advance(at)
        if end <= at or abs(end - at) <= SAME * abs(at):
            for job in ending:
                self._end(job)
        while self._arrived < len(self._arrivals) and self._arrivals[self._arrived].job.submit <= at:
            self._order.arrive(self._arrivals[self._arrived], at)
            self._arrived += 1
        self._order.advance(at)
        self._serve()

    def _next_ends(self) -> tuple[float, list[Progress]]:
        """Return when the first running jobs end, and which they are."""
        first, found = math.inf, list[Progress]()
        now, debt, within = self._now, self._debt, math.inf
        for job in self._running:
            at = now + job.left + debt.get(job.order, 0.0) if debt else now + job.left
            if at > within:
                continue
            if found and abs(at - first) <= SAME * abs(first):
                found.append(job)
            elif at < first:
                first, found = at, [job]
                within = first + 2 * SAME * abs(first)
        return first, found

    def _advance(self, at: float) -> None:
        now, passed = self._now, at - self._now
        is_plain = self._overhead is not Overhead.EACH_EVENT and not self._debt
        for job in self._running:
            job.left -= passed if is_plain else self._worked(job, passed)
            # In this order of additions a job reaches its queue's limit exactly when next_change said.
            job.attained = job.attained + at - now
        self._now = at

    def _worked(self, job: Progress, passed: float) -> float:
        if self._overhead is Overhead.EACH_EVENT:
            return max(passed - job.job.start_overhead, 0.0)
        debt = self._debt.get(job.order)
        if debt is None:
            return passed
        if debt > passed:
            self._debt[job.order] = debt - passed
        else:
            del self._debt[job.order]
        return max(0.0, passed - debt)

    def _end(self, job: Progress) -> None:
        self._running.remove(job)
        self._order.leave(job, self._now)
        job.is_running = False
        self._pool.stop(job.job)
        self._debt.pop(job.order, None)
        start = job.job.submit if job.first_start is None else job.first_start
        self._runs.append(Run(job.job, start, self._now, self._stops.pop(job.order, 0)))

    def _serve(self) -> None:
        """Give the GPUs to the jobs that come first, and note the use."""
        if self._order.is_preemptive:
            self._serve_preempting()
        else:
            self._start_all(self._order.ranked())
        self._order.settle()
        used = self._pool.milli - self._pool.free_milli
        if not self._use or self._use[-1][1] != used or len(self._runs) == len(self._arrivals):
            self._use.append((self._now, used))

    def _serve_preempting(self) -> None:
        chosen = list(self._chosen())
        kept = {job.order for job in chosen}
        if len(kept) < len(self._running) or any(job.order not in kept for job in self._running):
            for job in [one for one in self._running if one.order not in kept]:
                self._stop(job)
        self._start_all(job for job in chosen if not job.is_running)
        # Ends at one moment are looked for in the order's own order.
        self._running = [job for job in chosen if job.is_running]

    def _chosen(self) -> Iterator[Progress]:
        """Yield the jobs that get GPUs, as far as counting tells."""
        left = self._pool.milli
        for job in self._order.ranked():
            if job.milli <= left:
                left -= job.milli
                yield job
            elif not self._order.is_backfilling:
                return
            if not left:
                return

    def _start_all(self, jobs: Iterable[Progress]) -> None:
        for job in jobs:
            if self._pool.start(job.job):
                self._start(job)
            elif not self._order.is_backfilling:
                return

    def _start(self, job: Progress) -> None:
        job.is_running = True
        job.changed_at = self._now
        if job.first_start is None:
            job.first_start = self._now
        if self._overhead is Overhead.AT_START and job.job.start_overhead:
            self._debt[job.order] = job.job.start_overhead
        self._running.append(job)

    def _stop(self, job: Progress) -> None:
        job.is_running = False
        job.changed_at = self._now
        self._pool.stop(job.job)
        self._running.remove(job)
        self._debt.pop(job.order, None)
        self._stops[job.order] = self._stops.get(job.order, 0) + 1
