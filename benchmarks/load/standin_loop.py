"""Run one epoll loop for a thousand relays, with the interface of poll_loop.py, and timers.

The module knows no kernels.
"""

from __future__ import annotations

import heapq
import itertools
import select
import time
import traceback
from collections.abc import Callable
from typing import Any

from jupyter_aliquot.provisioner.relay.server.poll_loop import READ, WRITE, Loop

_MOST_EVENTS = 512
_MOST_SECONDS = 1.0
_ERROR = 8  # any bit that is neither READ nor WRITE


class EpollLoop(Loop):
    """An epoll loop. The relay's own loop polls a list, and would walk through it at each turn."""

    def __init__(self) -> None:
        super().__init__()
        self._epoll = select.epoll()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def watch(self, target: Any, handler: Callable[[int], object], events: int = READ) -> None:
        """Watch a descriptor; ``target`` is its number."""
        wanted = (select.EPOLLIN if events & READ else 0) | (select.EPOLLOUT if events & WRITE else 0)
        if target in self._handlers:
            self._epoll.modify(target, wanted)
        else:
            self._epoll.register(target, wanted)
        self._handlers[target] = handler

    def forget(self, target: Any) -> None:
        """Forget a descriptor before its owner closes it. Idempotent."""
        if self._handlers.pop(target, None) is not None:
            self._epoll.unregister(target)

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
            for target, found in self._epoll.poll(max(0.0, wait), _MOST_EVENTS):
                handler = self._handlers.get(target)
                if handler is not None:
                    self._guarded(lambda handler=handler, found=found: handler(_events(found)))  # type: ignore[misc]

    def _guarded(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception:
            traceback.print_exc()


class FlushingLoop(Loop):
    """The loop of one of many relays: what it said is sent after each handler.

    A relay's own loop sends at the end of its turn; a turn of the loop here serves a thousand.
    """

    def __init__(self, loop: EpollLoop) -> None:
        super().__init__()
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


def _events(found: int) -> int:
    events = (READ if found & select.EPOLLIN else 0) | (WRITE if found & select.EPOLLOUT else 0)
    return events | (_ERROR if found & (select.EPOLLERR | select.EPOLLHUP) else 0)
