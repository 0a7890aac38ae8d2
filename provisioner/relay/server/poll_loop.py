"""The relay's poll loop over ZMQ sockets and descriptors, each with a handler.

It knows nothing of kernels.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, Protocol

import zmq

Handler = Callable[[int], object]

READ = int(zmq.POLLIN)  # enum arithmetic is slow
WRITE = int(zmq.POLLOUT)
_MOST_FAILURES = 100


class Chore(Protocol):
    """Something that is called in each turn of the loop."""

    def due_in(self) -> float | None:
        """Return the seconds until ``turn`` is due of itself; None: only when something happens."""

    def turn(self) -> None:
        """Do what is due."""


class Loop:
    """Polls in one thread. A handler gets the events that are ready."""

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._handlers: dict[Any, Handler] = {}
        self._events: dict[Any, int] = {}
        self._failures = 0

    def watch(self, target: Any, handler: Handler, events: int = READ) -> None:
        """Watch a ZMQ socket or a descriptor's number; a second call replaces events and handler."""
        self._handlers[target] = handler
        if self._events.get(target) != events:
            self._events[target] = events
            self._poller.register(target, events)

    def forget(self, target: Any) -> None:
        """Watch a target no more. Called before it is closed; idempotent."""
        if self._handlers.pop(target, None) is not None:
            del self._events[target]
            self._poller.unregister(target)

    def turn(self, seconds: float) -> None:
        """Wait for events, and call their handlers.

        One handler may have forgotten another's target meanwhile.
        """
        for target, events in self._poller.poll(max(0, int(seconds * 1000 + 0.999))):
            handler = self._handlers.get(target)
            if handler is not None:
                self._call(handler, events)

    def _call(self, handler: Handler, events: int) -> None:
        """Call a handler.

        A failure must not end the relay, unless the handler does nothing but fail.
        """
        try:
            handler(events)
            self._failures = 0
        except Exception:
            self._failures += 1
            if self._failures > _MOST_FAILURES:
                raise
            traceback.print_exc()
