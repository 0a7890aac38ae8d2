"""The accounts that ask at the gateway's local socket: whose kernels theirs are, and how often they may ask.

The system names the account at the other end of a connection. No message does.
"""

from __future__ import annotations

import asyncio
import os
import pwd
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.base.pacing import TokenBuckets
from jupyter_aliquot.provisioner.errors import LimitError, RequestError

_QUESTIONS_PER_SECOND = 2.0
_MOST_LOOKUPS = 2


@dataclass(frozen=True)
class Caller:
    """The account at the other end of a connection.

    ``user`` owns its kernels. ``is_other`` tells whether it is another account than the gateway's and
    root's, for which the agent has to reserve.
    """

    uid: int
    user: str
    is_other: bool = False

    @property
    def account(self) -> int | None:
        """Return the account for the agent; None for kernels that are the gateway's own processes."""
        return self.uid if self.is_other else None


@dataclass(frozen=True)
class CallerLimits:
    """How much other accounts may use of the gateway: connections, and questions at once."""

    connections: int = 64
    all_connections: int = 2048
    questions: float = 40.0


class Callers:
    """Tells callers apart, and counts their connections.

    *user_of* returns the user of an account's number, or raises AliquotError; None: the gateway
    serves its own account alone. It may block.
    """

    def __init__(
        self,
        user_of: Callable[[int], str] | None = None,
        limits: CallerLimits | None = None,
        counts_for: Callable[[int], int] = lambda uid: uid,
    ) -> None:
        self._user_of = user_of
        # The number that a connection counts for: the lender's of one that was lent.
        self.counts_for = counts_for
        self._limits = limits or CallerLimits()
        self._connections: Counter[int] = Counter()
        # The system's list of accounts may hang, and other parts of the gateway need threads, too.
        self._lookups = asyncio.Semaphore(_MOST_LOOKUPS)
        self._questions = TokenBuckets(_QUESTIONS_PER_SECOND, self._limits.questions)

    @property
    def serve_others(self) -> bool:
        """Return whether other accounts than the gateway's and root's may ask."""
        return self._user_of is not None

    @contextmanager
    def admit(self, uid: int, now: float) -> Iterator[None]:
        """Count a connection, as long as it is open. Raises LimitError and RequestError."""
        if uid in (0, os.geteuid()):
            yield
            return
        if self._user_of is None:
            raise RequestError(f"User {uid} cannot use the gateway of user {os.geteuid()}. Start one of your own.")
        counted = self.counts_for(uid)
        self._check(counted, now)
        self._connections[counted] += 1
        try:
            yield
        finally:
            self._connections[counted] -= 1
            if not self._connections[counted]:
                del self._connections[counted]

    def _check(self, uid: int, now: float) -> None:
        limits = self._limits
        if self._connections[uid] >= limits.connections:
            raise LimitError(
                f"Requested a connection to the gateway, but the account {uid} has {limits.connections} of them, one "
                "for each kernel that holds or waits for a GPU. End a kernel that is not needed, and try again"
            )
        if self._connections.total() >= limits.all_connections:
            raise LimitError(
                f"Requested a connection to the gateway, but other programs have {limits.all_connections} of them. "
                "Try again later"
            )
        if wait := self._questions.take(str(uid), now):
            raise LimitError(
                f"Requested a connection to the gateway, but the account {uid} asked {limits.questions:g} times within "
                f"seconds. Try again in {wait:.1f} s"
            )

    async def identify(self, uid: int) -> Caller:
        """Return who asks. Raises AliquotError for an account without kernels."""
        if self._user_of is None or uid == os.geteuid():
            try:
                return Caller(uid, pwd.getpwuid(uid).pw_name)
            except KeyError:
                return Caller(uid, str(uid))
        async with self._lookups:
            return Caller(uid, await asyncio.to_thread(self._user_of, uid), is_other=True)
