"""The agent's file descriptors, split among kernels so that one kernel cannot take those of others.

A kernel may have as many as are left when it has them (dynamic thresholds: Choudhury and Hahne,
"Dynamic queue length thresholds for shared-memory packet switches", 1998): alone at most half of
all, and whatever it does, others find some.
"""

from __future__ import annotations

import resource
from collections import Counter

OF_A_SESSION = 8  # connection, pidfd, mappings of three pages; during the welcome, the pages' descriptors instead
OF_AN_UNREGISTERED = 2  # connection, pidfd
OF_A_WATCH = 1  # pidfd of a process that left, whose loan or host copy the agent remembers
OF_A_SEGMENT = 1  # of a host copy
_OWN_FRACTION = 8  # the agent keeps an eighth: control connections, its log, its driver's
_ALWAYS = 4 * OF_A_SESSION  # a kernel's first processes are accepted as long as there are any left


class Descriptors:
    """The descriptors that kernels' processes cost.

    ``limit`` is how many the agent may open; callers give back what they took.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit - limit // _OWN_FRACTION
        self._taken: Counter[str] = Counter()

    @classmethod
    def of_this_process(cls) -> Descriptors:
        """Return as many descriptors as this process may open now."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls(soft if soft != resource.RLIM_INFINITY else 1 << 20)

    @property
    def limit(self) -> int:
        """Return how many descriptors all kernels may have together."""
        return self._limit

    def held(self, kernel_id: str) -> int:
        """Return how many descriptors one kernel has."""
        return self._taken[kernel_id]

    def take(self, kernel_id: str, count: int, beyond: int = 0) -> bool:
        """Take descriptors for a kernel; return False if it may not have them.

        It may pass its part by ``beyond``.
        """
        left = self._limit - self._taken.total()
        wanted = self._taken[kernel_id] + count
        if count > left or (wanted > _ALWAYS and wanted > left + beyond):
            return False
        self._taken[kernel_id] = wanted
        return True

    def add(self, kernel_id: str, count: int) -> None:
        """Add descriptors that replace those which their kernel gave back a moment ago."""
        self._taken[kernel_id] += count

    def give_back(self, kernel_id: str, count: int) -> None:
        """Give back closed descriptors."""
        self._taken[kernel_id] -= count
        if self._taken[kernel_id] <= 0:
            del self._taken[kernel_id]
