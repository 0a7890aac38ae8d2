"""Simulated time: events in order, the same order for the same calls.

The module reads no clock of the machine.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class Clockwork:
    """A simulated clock. ``now`` is in seconds from the start of the trace."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(time, self.now), next(self._order), action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.at(self.now + seconds, action)

    def run(self, step: Callable[[float], None] | None = None) -> None:
        """Run all events. ``step`` gets the time that passes before each event."""
        while self._events:
            time, _, action = heapq.heappop(self._events)
            if step is not None:
                step(time - self.now)
            self.now = time
            action()
