"""The turns of one kernel's running cell: how long it has had its devices, and how its last turn ended.

The keeper's records and the density simulation write them; ``decide`` reads them in a view. The
module decides nothing.
"""

from __future__ import annotations

from .views import NEVER


class Turns:
    """The turns of a kernel. Times are monotonic.

    ``since`` is when its turn began: when it became busy, or came in, whichever is later.
    ``last_seconds`` is the length of the turn that the running cell lost last; NEVER: none.
    """

    def __init__(self, now: float, *, is_here: bool = True) -> None:
        self.since = now
        self.last_seconds = NEVER
        self._before_seconds = 0.0  # of the running cell, in earlier turns
        self._is_here = is_here

    def begin_cell(self, now: float) -> None:
        """Begin a cell: the turns of the one before it count no more."""
        self.since = now
        self.last_seconds, self._before_seconds = NEVER, 0.0

    def enter(self, now: float) -> None:
        """Begin a turn: the kernel came in."""
        self.since, self._is_here = now, True

    def leave(self, now: float, *, is_busy: bool) -> None:
        """End the turn: the kernel leaves its devices. An idle kernel loses no turn."""
        if is_busy and self._is_here:
            self.last_seconds = max(0.0, now - self.since)
            self._before_seconds += self.last_seconds
        self._is_here = False

    def ran_seconds(self, until: float) -> float:
        """Return how long the running cell has had the devices, up to a moment of its turn."""
        return self._before_seconds + (max(0.0, until - self.since) if self._is_here else 0.0)
