"""The guard of c.Limits: it checks requests, counts its refusals, and logs one of each burst."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Protocol
from weakref import WeakSet

from tornado.websocket import WebSocketHandler

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.base.jupyter_private import is_finished
from jupyter_aliquot.gpu_hook.base.pacing import Throttle, TokenBuckets
from jupyter_aliquot.provisioner.errors import LimitError

from .config import Limits

# The key of the guard in the application's settings, where handlers find it.
SETTING = "aliquot_limits"
# The names of the counts of refusals; each is a setting of c.Limits.
REQUESTS = "requests_per_second"
KERNELS = "kernels_per_user"
QUEUED = "queued_per_user"
QUEUE = "queue_length"
BODY = "body_bytes"
MESSAGE = "message_bytes"
OUTPUT = "output_bytes"
MESSAGES = "messages_per_second"
SOCKETS = "websockets_per_user"
UNREAD = "unread_bytes"
NAMES = (REQUESTS, KERNELS, QUEUED, QUEUE, BODY, MESSAGE, OUTPUT, MESSAGES, SOCKETS, UNREAD)

_QUIET_SECONDS = 60.0
_MOST_TOLD = 1000


class Owned(Protocol):
    """A kernel and its owner."""

    @property
    def owner(self) -> str: ...


class Waiting(Owned, Protocol):
    """A queued request.

    ``held`` is what its kernel has already; None for a kernel that has not started.
    """

    @property
    def held(self) -> object: ...


class LimitGuard:
    """The guard of one event loop.

    Counts and rates do not hold for users of whom *is_exempt* is true.
    """

    def __init__(self, limits: Limits, clock: Clock, is_exempt: Callable[[str], bool], log: logging.Logger) -> None:
        self.limits = limits
        self.clock = clock
        self._is_exempt = is_exempt
        self._log = log
        self._counts: Counter[str] = Counter(dict.fromkeys(NAMES, 0))
        self._warnings = Throttle(_QUIET_SECONDS, _MOST_TOLD)
        burst = limits.requests_burst or limits.requests_per_second
        self._users = TokenBuckets(limits.requests_per_second, burst)
        self._addresses = TokenBuckets(limits.requests_per_second, burst)
        self._sockets = OpenSockets()

    def counts(self) -> Mapping[str, int]:
        """Return how often each limit refused or delayed something."""
        return dict(self._counts)

    def visit(self, name: str, address: str) -> float:
        """Count a request of this user or, without a name, of this address.

        Return the seconds until it is allowed; 0: now.
        """
        if not self.limits.requests_per_second:
            return 0.0
        buckets, key = (self._users, name) if name else (self._addresses, address)
        seconds = buckets.take(key, self.clock.now())
        if seconds:
            self.note(REQUESTS, name or address)
        return seconds

    def check_socket(self, name: str, socket: WebSocketHandler) -> None:
        """Count one more websocket of this user. Raises LimitError."""
        most = self.limits.websockets_per_user
        if not most:
            return
        if (has := self._sockets.count(name)) >= most:
            self.note(SOCKETS, name)
            raise LimitError(
                f"{name} has {has} websockets open, and may have {most} (c.Limits.{SOCKETS}). "
                "Close pages that are not needed."
            )
        self._sockets.add(name, socket)

    def check_kernels(self, name: str, has: int, *, is_admin: bool) -> None:
        """Check one more kernel of a user who has so many. Raises LimitError."""
        most = self.limits.kernels_per_user
        if most and has >= most and not is_admin:
            self.note(KERNELS, name)
            raise LimitError(
                f"{name} has {has} kernels, and may have {most} at once (c.Limits.kernels_per_user). "
                "End one that is not needed."
            )

    def check_queue(self, requester: Owned, pending: Collection[Waiting]) -> None:
        """Check one more kernel that is to wait. Raises LimitError."""
        if self._is_exempt(requester.owner):
            return
        waiting = [one for one in pending if one.held is None]
        own, most = sum(one.owner == requester.owner for one in waiting), self.limits.queued_per_user
        if most and own >= most:
            self.note(QUEUED, requester.owner)
            raise LimitError(
                f"{own} kernels of {requester.owner} wait for a GPU, and {most} may wait at once "
                "(c.Limits.queued_per_user). End one of them, or try again when one has started"
            )
        if self.limits.queue_length and len(waiting) >= self.limits.queue_length:
            self.note(QUEUE, requester.owner)
            raise LimitError(
                f"{len(waiting)} kernels wait for a GPU, and no more may wait at once "
                "(c.Limits.queue_length). Try again later, or start a kernel without a GPU"
            )

    def note(self, limit: str, who: str, count: int = 1) -> None:
        """Count refusals. The first of a minute is logged."""
        self._counts[limit] += count
        if self._warnings.passes((limit, who), self.clock.now()):
            self._log.warning("limit=%s who=%r refused; more of it within a minute is only counted", limit, who)


class OpenSockets:
    """The websockets that each user has open, or asks to open, by the user's name.

    Forgets those that closed.
    """

    def __init__(self) -> None:
        self._by_user: dict[str, WeakSet[WebSocketHandler]] = {}

    def add(self, name: str, socket: WebSocketHandler) -> None:
        """Add a websocket of this user, from its handshake on."""
        self._by_user.setdefault(name, WeakSet()).add(socket)

    def count(self, name: str) -> int:
        """Return how many websockets of this user are open. Closed ones are forgotten."""
        kept = WeakSet(socket for socket in self._by_user.pop(name, ()) if _is_open(socket))
        if kept:
            self._by_user[name] = kept
        return len(kept)


def _is_open(socket: WebSocketHandler) -> bool:
    if socket.ws_connection is not None:
        return True
    # During the handshake, which may wait for a kernel to start, the request's connection has the
    # stream. Afterwards it has none.
    stream = getattr(socket.request.connection, "stream", None)
    return not is_finished(socket) and stream is not None and not stream.closed()
