"""The Gittins index of jobs whose running time is not known, from those of past jobs.

Source: Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019, with
the step of its public simulator.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from .jobs import Progress
from .queue_orders import LIMITS, LeastAttainedService

STEP = 3250.0  # GPU-seconds that a job would be given


class GittinsIndex:
    """The chance to end within the next step of service, by the service that the step would cost.

    Args:
        services: GPU-seconds of past jobs, at least one.
        step: GPU-seconds of one step.
    """

    def __init__(self, services: Iterable[float], step: float = STEP) -> None:
        self._services = sorted(services)
        if not self._services:
            raise ValueError("The Gittins index needs the service of at least one past job")
        self._step = step
        self._sums = [0.0]
        for service in self._services:
            self._sums.append(self._sums[-1] + service)

    def of(self, attained: float) -> float:
        """Return the index of a job that has used so many GPU-seconds; larger goes first.

        It is 0 beyond the longest past job.
        """
        count = len(self._services)
        first = bisect_right(self._services, attained)
        if first == count:
            return 0.0
        # As in the public simulator, the longest past job is never within a step.
        last = min(bisect_right(self._services, attained + self._step), count - 1)
        alive = count - first
        chance = (last - first) / alive
        cost = (self._sums[last] - self._sums[first] + self._step * (count - last)) / alive
        return chance / cost if cost > 0 else 0.0


class LargestGittinsIndex(LeastAttainedService):
    """The queues of Tiresias, each sorted by Gittins index (2D-Gittins)."""

    def __init__(
        self, index: GittinsIndex, limits: Sequence[float] = LIMITS, *, promote_after: float | None = None
    ) -> None:
        super().__init__(limits, promote_after=promote_after)
        self._index = index

    def in_order(self, front: Sequence[Progress], rest: Sequence[Progress]) -> Sequence[Progress]:
        """Return one queue, the largest index first; equal ones in the order of the base class."""
        return sorted((*front, *rest), key=lambda job: -self._index.of(job.attained_service))
