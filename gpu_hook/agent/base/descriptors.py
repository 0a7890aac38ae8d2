"""The agent's file descriptors, shared out among kernels so that one kernel cannot take those of the others.

A kernel may have as many as are left when it has them (dynamic thresholds: Choudhury and Hahne, "Dynamic queue length
thresholds for shared-memory packet switches", 1998): alone at most half of all, and whatever it does, others find some.
"""

from __future__ import annotations

import resource
from collections import Counter

OF_A_SESSION = 8  # connection, pidfd, mappings of three pages; while it is welcomed, the pages' descriptors instead
OF_AN_UNREGISTERED = 2  # connection, pidfd
OF_A_WATCH = 1  # pidfd of a process that left, whose loan or host copy is remembered
OF_A_SEGMENT = 1  # of a host copy
_OWN_FRACTION = 8  # an eighth is the agent's own: control connections, its log, its driver's
_ALWAYS = 4 * OF_A_SESSION  # a kernel's first processes come in as long as there are any left


class Descriptors:
    """``limit``: how many the agent may open. Counts what kernels' processes cost; the caller gives back."""

    def __init__(self, limit: int) -> None:
        self._limit = limit - limit // _OWN_FRACTION
        self._taken: Counter[str] = Counter()

    @classmethod
    def of_this_process(cls) -> Descriptors:
        """As many as this process may open now."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls(soft if soft != resource.RLIM_INFINITY else 1 << 20)

    @property
    def limit(self) -> int:
        """How many all kernels may have together."""
        return self._limit

    def held(self, kernel_id: str) -> int:
        """How many one kernel has."""
        return self._taken[kernel_id]

    def take(self, kernel_id: str, count: int, beyond: int = 0) -> bool:
        """Count so many for a kernel, or tell that it is not to have them; ``beyond``: it may pass its part by this."""
        left = self._limit - self._taken.total()
        wanted = self._taken[kernel_id] + count
        if count > left or (wanted > _ALWAYS and wanted > left + beyond):
            return False
        self._taken[kernel_id] = wanted
        return True

    def add(self, kernel_id: str, count: int) -> None:
        """Count so many that take the place of what its kernel gave back a moment ago."""
        self._taken[kernel_id] += count

    def give_back(self, kernel_id: str, count: int) -> None:
        """They are closed."""
        self._taken[kernel_id] -= count
        if self._taken[kernel_id] <= 0:
            del self._taken[kernel_id]
