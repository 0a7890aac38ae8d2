"""Weighted fair share between teams: the team that has least of its share is served next.

With GPUs as the only resource it is max-min fairness, and so dominant-resource fairness (Ghodsi et
al., NSDI 2011).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush

from .jobs import Progress


class FairShare:
    """Serve the team with the least GPUs by weight; in a team, first come, first served.

    The next job of that team blocks all others while it does not fit, so that no job starves. A
    team without a weight has 1.
    """

    is_preemptive = False
    is_backfilling = False

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights = dict(weights or {})
        bad = [team for team, weight in self._weights.items() if not 0 < weight < math.inf]
        if bad:
            raise ValueError(f"The weight of {bad[0]!r} is {self._weights[bad[0]]}, and has to be above 0")
        self._waiting: dict[str, dict[int, Progress]] = {}
        self._used: dict[str, int] = {}

    def arrive(self, job: Progress, now: float) -> None:
        self._waiting.setdefault(job.job.team, {})[job.order] = job

    def leave(self, job: Progress, now: float) -> None:
        if self._waiting.get(job.job.team, {}).pop(job.order, None) is None:
            self._used[job.job.team] -= job.job.milli

    def advance(self, now: float) -> None:
        """Nothing depends on the time."""

    def ranked(self) -> Iterator[Progress]:
        """Yield the next job of the neediest team, as jobs start while the caller goes on."""
        queues = {team: iter(jobs.values()) for team, jobs in self._waiting.items()}
        used = dict(self._used)
        heads = [
            (self._share(team, used), job.order, team, job) for team in queues if (job := next(queues[team], None))
        ]
        heapify(heads)
        while heads:
            _, _, team, job = heappop(heads)
            yield job
            used[team] = used.get(team, 0) + job.job.milli
            following = next(queues[team], None)
            if following is not None:
                heappush(heads, (self._share(team, used), following.order, team, following))

    def settle(self) -> None:
        for team, jobs in self._waiting.items():
            for job in [one for one in jobs.values() if one.is_running]:
                del jobs[job.order]
                self._used[team] = self._used.get(team, 0) + job.job.milli

    def next_change(self, now: float) -> float:
        return math.inf

    def _share(self, team: str, used: Mapping[str, int]) -> float:
        return used.get(team, 0) / self._weights.get(team, 1.0)
