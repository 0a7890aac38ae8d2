"""Run one loop for a thousand relays, the relay's own with timers.

The module knows no kernels.
"""

from __future__ import annotations

import heapq
import itertools
import time
import traceback
from collections.abc import Callable
from typing import Any

from jupyter_aliquot.provisioner.relay.server.poll_loop import READ, Loop

_MOST_SECONDS = 1.0


class TimedLoop(Loop):
    """The relay's loop, with timers."""

    def __init__(self) -> None:
        super().__init__()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call this once, so many seconds from now."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), call))

    def run(self) -> None:
        """Run for ever."""
        while True:
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                self._guarded(heapq.heappop(self._timers)[2])
            wait = min(_MOST_SECONDS, self._timers[0][0] - now) if self._timers else _MOST_SECONDS
            self.turn(wait)

    def _guarded(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception:
            traceback.print_exc()


class FlushingLoop:
    """The loop of one of many relays: what it said is sent after each handler.

    A relay's own loop sends at the end of its turn; a turn of the loop here serves a thousand.
    """

    def __init__(self, loop: TimedLoop) -> None:
        self._loop = loop
        self.flush: Callable[[], None] = lambda: None

    def watch(self, target: Any, handler: Callable[[int], object], events: int = READ) -> None:
        """Watch a descriptor; ``target`` is its number."""
        self._loop.watch(target, lambda found: self._flushed(lambda: handler(found)), events)

    def forget(self, target: Any) -> None:
        """Forget a descriptor before its owner closes it. Idempotent."""
        self._loop.forget(target)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call this once, so many seconds from now."""
        self._loop.later(seconds, lambda: self._flushed(call))

    def _flushed(self, call: Callable[[], object]) -> None:
        try:
            call()
        finally:
            self.flush()
