"""Queue orders: which of the jobs that want GPUs come first. Pure: no clock, no I/O.

An order ranks; it does not place. It is told of arrivals and ends, and of time that has passed, and
yields the jobs that want GPUs, first the ones to serve first. A preemptive order may rank a job that
waits before one that runs; the simulator and the planner then stop the one for the other.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain, takewhile
from typing import Protocol

from .jobs import Progress


class QueueOrder(Protocol):
    """The order in which jobs get GPUs."""

    is_preemptive: bool
    # A job that does not fit lets smaller ones behind it pass.
    is_backfilling: bool

    def arrive(self, job: Progress, now: float) -> None:
        """Add a job that was submitted."""
        ...

    def leave(self, job: Progress, now: float) -> None:
        """Remove a job that ended."""
        ...

    def advance(self, now: float) -> None:
        """Note that the progress of running jobs was brought up to *now*."""
        ...

    def ranked(self) -> Iterable[Progress]:
        """Return the jobs to serve, first the ones to serve first.

        A preemptive order returns running jobs, too; another one only jobs that wait.
        """
        ...

    def settle(self) -> None:
        """Note that each job's ``is_running`` is up to date after a pass."""
        ...

    def next_change(self, now: float) -> float:
        """Return when the order changes though no job arrives or ends; infinity for never."""
        ...


class FirstComeFirstServed:
    """First come, first served: running jobs stay, and the first that does not fit blocks the rest."""

    is_preemptive = False

    is_backfilling = False

    def __init__(self) -> None:
        self._running: dict[int, Progress] = {}
        self._waiting: dict[int, Progress] = {}

    def arrive(self, job: Progress, now: float) -> None:
        self._waiting[job.order] = job

    def leave(self, job: Progress, now: float) -> None:
        self._running.pop(job.order, None)
        self._waiting.pop(job.order, None)

    def advance(self, now: float) -> None:
        """Nothing depends on the time."""

    def ranked(self) -> Iterable[Progress]:
        return self._waiting.values()

    def settle(self) -> None:
        """Called after the pass, when the ranked jobs are no longer iterated over."""
        started = list(takewhile(lambda job: job.is_running, self._waiting.values()))
        for job in started:
            self._running[job.order] = self._waiting.pop(job.order)

    def next_change(self, now: float) -> float:
        return math.inf


class ShortestRemaining:
    """Shortest remaining time first; with *by_service*, shortest remaining GPU time (SRTF, SRSF).

    The order needs an estimate of each job's running time. Of equal jobs the earlier goes first.
    """

    is_preemptive = True
    is_backfilling = True

    def __init__(self, *, by_service: bool = False) -> None:
        self._by_service = by_service
        # What remains of a waiting job does not change: they stay sorted.
        self._waiting: list[tuple[float, int, Progress]] = []
        self._running: list[Progress] = []
        # Waiting jobs that the present pass has seen.
        self._offered: list[tuple[float, int, Progress]] = []

    def arrive(self, job: Progress, now: float) -> None:
        insort(self._waiting, self._keyed(job))

    def leave(self, job: Progress, now: float) -> None:
        if job in self._running:
            self._running.remove(job)
        else:
            self._waiting.remove(self._keyed(job))

    def advance(self, now: float) -> None:
        """Each pass sorts the running jobs by what remains then."""

    def ranked(self) -> Iterator[Progress]:
        self._offered = []
        running = sorted(self._keyed(job) for job in self._running)
        for keyed in merge(running, self._waiting):
            if not keyed[2].is_running:
                self._offered.append(keyed)
            yield keyed[2]

    def settle(self) -> None:
        started = [keyed for keyed in self._offered if keyed[2].is_running]
        for keyed in started:
            del self._waiting[bisect_left(self._waiting, keyed)]
        for job in [one for one in self._running if not one.is_running]:
            self._running.remove(job)
            insort(self._waiting, self._keyed(job))
        self._running += [job for _, _, job in started]

    def next_change(self, now: float) -> float:
        return math.inf

    def _keyed(self, job: Progress) -> tuple[float, int, Progress]:
        return (job.left * job.job.gpus if self._by_service else job.left, job.order, job)


# GPU-seconds after which a job moves to the next queue. Source: the simulator of Tiresias, Gu et al., "Tiresias: A GPU
# Cluster Manager for Distributed Deep Learning", NSDI 2019.
LIMITS = (3250.0, 7200.0)


class LeastAttainedService:
    """Discretized two-dimensional least attained service, of Tiresias (2D-LAS).

    A job begins in the first queue. Once it has used a queue's limit of GPU-seconds, it goes to the
    end of the next. A job that has waited *promote_after* times as long as it ran returns to the
    first queue; None: never. In a queue, running jobs come before waiting ones.

    Source: Gu et al., NSDI 2019.
    """

    is_preemptive = True
    is_backfilling = True

    def __init__(self, limits: Sequence[float] = LIMITS, *, promote_after: float | None = None) -> None:
        self._limits = tuple(limits)
        self._promote_after = promote_after
        # Of each queue: a job's milli to the seconds in which it reaches the limit.
        self._seconds: list[dict[int, int]] = [{} for _ in self._limits]
        levels = range(len(self._limits) + 1)
        # Each queue: the jobs that ran after the last pass, and all others after them.
        self._front: list[list[Progress]] = [[] for _ in levels]
        self._rest: list[list[Progress]] = [[] for _ in levels]
        # Jobs of the rest that the present pass has seen.
        self._offered: list[Progress] = []

    def arrive(self, job: Progress, now: float) -> None:
        self._rest[0].append(job)

    def leave(self, job: Progress, now: float) -> None:
        self._remove(job)

    def advance(self, now: float) -> None:
        due = [
            job
            for queue, limit in zip(self._front, self._limits, strict=False)
            for job in queue
            if job.attained * job.gpus >= limit
        ]
        for job in sorted(due, key=lambda one: one.order):
            while job.level < len(self._limits) and job.attained_service >= self._limits[job.level]:
                self._move(job, job.level + 1)
        if self._promote_after is not None:
            self._promote(now, self._promote_after)

    def ranked(self) -> Iterator[Progress]:
        self._offered = []
        for front, rest in zip(self._front, self._rest, strict=True):
            for job in self.in_order(front, rest):
                if not job.is_running:
                    self._offered.append(job)
                yield job

    def in_order(self, front: Sequence[Progress], rest: Sequence[Progress]) -> Iterable[Progress]:
        """Return one queue in its order: running jobs, then the others as they came into it."""
        return chain(front, rest)

    def settle(self) -> None:
        for job in [one for one in self._offered if one.is_running]:
            self._rest[job.level].remove(job)
            self._front[job.level].append(job)
        for front, rest in zip(self._front, self._rest, strict=True):
            moved = [job for job in rest if job.is_running] if rest and rest[-1].is_running else []
            for job in moved:
                rest.remove(job)
            stopped = [job for job in front if not job.is_running]
            if stopped:
                front[:] = [job for job in front if job.is_running]
                rest[:0] = stopped
            front += moved

    def next_change(self, now: float) -> float:
        """Return when the first running job reaches its queue's limit."""
        found = math.inf
        for queue, limit, seconds in zip(self._front, self._limits, self._seconds, strict=False):
            for job in queue:
                until = seconds.get(job.milli)
                if until is None:
                    until = seconds[job.milli] = math.ceil(limit / job.gpus)
                left = until - job.attained
                if left < found:
                    found = left
        return found + now

    def _promote(self, now: float, promote_after: float) -> None:
        for queue in self._rest[1:]:
            for job in [one for one in queue if not one.is_running and one.attained > 0]:
                if now - job.changed_at >= int(promote_after * job.attained):
                    job.attained = 0.0
                    self._move(job, 0)

    def _move(self, job: Progress, level: int) -> None:
        self._remove(job)
        job.level = level
        self._rest[level].append(job)

    def _remove(self, job: Progress) -> None:
        queue = self._front[job.level]
        (queue if job in queue else self._rest[job.level]).remove(job)
