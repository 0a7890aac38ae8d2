"""The relay's poll loop over ZMQ sockets and descriptors, each with a handler.

It knows nothing of kernels. It waits with epoll for ZMQ's own descriptors, where ``zmq_poll`` would
ask every socket before and after each wait, with a system call each. Such a descriptor becomes
readable once when something came for its socket, and whatever uses the socket may take that signal
(libzmq's zmq_getsockopt(3), ZMQ_FD). So the loop asks the sockets that `zmq_io` used before it
waits, and all of them after a wait in which nothing came.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Callable
from typing import Any, Protocol

import zmq

from jupyter_aliquot.provisioner.relay.wire.zmq_io import events_of, used

Handler = Callable[[int], object]

READ = int(zmq.POLLIN)  # enum arithmetic is slow
WRITE = int(zmq.POLLOUT)
ERROR = int(zmq.POLLERR)  # of a descriptor, without a call to `watch`
_MOST_FAILURES = 100


class Watcher(Protocol):
    """Whatever calls handlers when their targets are ready."""

    def watch(self, target: Any, handler: Handler, events: int = READ) -> None:
        """Watch a ZMQ socket or a descriptor's number; a second call replaces events and handler."""

    def forget(self, target: Any) -> None:
        """Watch a target no more. Called before it is closed; idempotent."""


class Chore(Protocol):
    """Something that is called in each turn of the loop."""

    def due_in(self) -> float | None:
        """Return the seconds until ``turn`` is due of itself; None: only when something happens."""

    def turn(self) -> None:
        """Do what is due."""


class Loop:
    """Polls in one thread.

    A handler gets the events that are ready. That of a ZMQ socket takes all messages, or leaves
    some for the next turn; it may be called when there is none.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[Any, Handler] = {}
        self._events: dict[Any, int] = {}
        self._descriptors: dict[Any, int] = {}  # of each ZMQ socket
        self._sockets: dict[int, Any] = {}  # and the other way round
        self._writers: set[Any] = set()  # ZMQ sockets that wait for room: no message tells of it
        self._failures = 0

    def watch(self, target: Any, handler: Handler, events: int = READ) -> None:
        """Watch a ZMQ socket or a descriptor's number; a second call replaces events and handler."""
        is_new = target not in self._handlers
        self._handlers[target] = handler
        if is_new or self._events[target] != events:
            self._events[target] = events
            if isinstance(target, int):
                self._register(target, is_new, events)
            else:
                self._watch_socket(target, is_new, events)

    def forget(self, target: Any) -> None:
        """Watch a target no more. Called before it is closed; idempotent."""
        if self._handlers.pop(target, None) is None:
            return
        del self._events[target]
        self._writers.discard(target)
        used.discard(target)
        descriptor = self._descriptors.pop(target, target)
        self._sockets.pop(descriptor, None)
        self._epoll.unregister(descriptor)

    def turn(self, seconds: float) -> None:
        """Wait for events, and call their handlers.

        One handler may have forgotten another's target meanwhile.
        """
        due = self._ask(used | self._writers) if used or self._writers else {}
        found = self._epoll.poll(0 if due else max(0.0, seconds))
        if not due and not found:
            used.update(self._descriptors)
        for descriptor, bits in found:
            socket = self._sockets.get(descriptor)
            if socket is None:
                due[descriptor] = _events(bits)
            elif self._events[socket] == READ:
                due[socket] = READ
            else:
                due |= self._ask({socket})
        for target, events in due.items():
            handler = self._handlers.get(target)
            if handler is not None:
                self._call(handler, events)

    def _register(self, descriptor: int, is_new: bool, events: int) -> None:
        bits = (select.EPOLLIN if events & READ else 0) | (select.EPOLLOUT if events & WRITE else 0)
        if is_new:
            self._epoll.register(descriptor, bits)
        else:
            self._epoll.modify(descriptor, bits)

    def _watch_socket(self, socket: Any, is_new: bool, events: int) -> None:
        if is_new:
            descriptor = self._descriptors[socket] = int(socket.fd)
            self._sockets[descriptor] = socket
            self._epoll.register(descriptor, select.EPOLLIN)
        if events & WRITE:
            self._writers.add(socket)
        else:
            self._writers.discard(socket)
        used.add(socket)

    def _ask(self, sockets: set[Any]) -> dict[Any, int]:
        """Return those of the ZMQ sockets that are ready, with the events that are watched."""
        used.difference_update(sockets)
        found = {}
        for socket in sockets:
            if (wanted := self._events.get(socket)) is not None and (events := events_of(socket) & wanted):
                found[socket] = events
        return found

    def _call(self, handler: Handler, events: int) -> None:
        """Call a handler.

        A failure must not end the relay, unless the handler does nothing but fail.
        """
        try:
            handler(events)
            self._failures = 0
        except Exception as error:
            self._failures += 1
            if self._failures > _MOST_FAILURES:
                raise
            sys.excepthook(type(error), error, error.__traceback__)


def _events(bits: int) -> int:
    events = (READ if bits & select.EPOLLIN else 0) | (WRITE if bits & select.EPOLLOUT else 0)
    return events | (ERROR if bits & ~(select.EPOLLIN | select.EPOLLOUT) else 0)
