"""The habits of one kernel: how long its cells run, and how long its user thinks between them.

The module counts durations in a fixed number of buckets, whatever runs. It knows nothing of what a
cell contains, and decides nothing.
"""

from __future__ import annotations

import math

_SHORTEST_SECONDS = 0.125  # the upper end of the first bucket; each further one is twice as long
_BUCKETS = 24  # the last begins after more than five days
_KEPT = 0.95  # the weight of an observation when the next one comes: some twenty count
_LEAST_WEIGHT = 1e-6  # of longer ones: less is rounding
_FEWEST = 3.0  # observations before anything is expected of a kernel


class Durations:
    """Durations of one sort, the newest with the most weight. Memory does not grow with them."""

    def __init__(self) -> None:
        self._weights = [0.0] * _BUCKETS
        self._count = 0.0  # of observations; it counts no further than is needed

    def add(self, seconds: float) -> None:
        """Add a duration."""
        self._weights = [weight * _KEPT for weight in self._weights]
        self._weights[_bucket(seconds)] += 1.0
        self._count = min(_FEWEST, self._count + 1.0)

    def chance_within(self, seconds: float, lasted: float = 0.0) -> float | None:
        """Return the chance (0 … 1) that one which has lasted so long ends within ``seconds``.

        None: too few were seen, or none that lasted as long.
        """
        beyond = self._beyond(lasted)
        if self._count < _FEWEST or beyond < _LEAST_WEIGHT:
            return None
        return min(1.0, max(0.0, 1.0 - self._beyond(lasted + max(0.0, seconds)) / beyond))

    def expected_rest(self, lasted: float = 0.0) -> float | None:
        """Return how much longer one that has lasted so long goes on, in the median; None as above."""
        if self._count < _FEWEST:
            return None
        beyond = self._beyond(lasted)
        if beyond < _LEAST_WEIGHT:
            return None
        for bucket in range(_bucket(lasted), _BUCKETS):
            if self._beyond(_end(bucket)) <= beyond / 2:
                return max(0.0, self._when(beyond / 2, bucket) - lasted)
        return None

    def _beyond(self, seconds: float) -> float:
        """Return the weight of the longer ones. In a bucket durations are spread evenly."""
        place = _bucket(seconds)
        start, end = _start(place), _end(place)
        part = min(1.0, max(0.0, (end - seconds) / (end - start)))
        return self._weights[place] * part + sum(self._weights[place + 1 :])

    def _when(self, weight: float, bucket: int) -> float:
        """Return the duration in a bucket that so much weight exceeds."""
        beyond = sum(self._weights[bucket + 1 :])
        part = (weight - beyond) / self._weights[bucket] if self._weights[bucket] else 0.0
        return _end(bucket) - part * (_end(bucket) - _start(bucket))


class Habits:
    """The habits of one kernel. Only its lease record writes them; times are monotonic."""

    def __init__(self) -> None:
        self.cells = Durations()
        self.pauses = Durations()
        self._busy_since: float | None = None
        self._idle_since: float | None = None

    def note(self, idle_since: float | None, now: float) -> None:
        """Note since when the kernel is idle (None: it is busy); call it at each look."""
        if idle_since is None:
            if self._idle_since is not None:
                self.pauses.add(now - self._idle_since)
            if self._busy_since is None:
                self._busy_since = now
            self._idle_since = None
            return
        if self._busy_since is not None:
            self.cells.add(idle_since - self._busy_since)
        self._busy_since, self._idle_since = None, idle_since

    def expected_rest(self, now: float) -> float | None:
        """Return how much longer its cell, or its pause, goes on; None: unknown."""
        if self._idle_since is not None:
            return self.pauses.expected_rest(max(0.0, now - self._idle_since))
        return None if self._busy_since is None else self.cells.expected_rest(max(0.0, now - self._busy_since))


def _bucket(seconds: float) -> int:
    if seconds < _SHORTEST_SECONDS:
        return 0
    return min(_BUCKETS - 1, 1 + int(math.log2(seconds / _SHORTEST_SECONDS)))


def _start(bucket: int) -> float:
    return 0.0 if bucket == 0 else _SHORTEST_SECONDS * 2.0 ** (bucket - 1)


def _end(bucket: int) -> float:
    return _SHORTEST_SECONDS * 2.0**bucket
