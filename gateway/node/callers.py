"""The accounts that ask at the gateway's local socket: whose kernels theirs are, and how often they may ask.

The system names the account at the other end of a connection. No message does.
"""

from __future__ import annotations

import asyncio
import os
import pwd
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


@dataclass
class _Open:
    """The open connections of one number, and the holder that they count for."""

    holder: str
    count: int = 0


class Callers:
    """Tells callers apart, and counts their connections.

    *user_of* returns the user of an account's number, or raises AliquotError; None: the gateway
    serves its own account alone. It may block.
    """

    def __init__(
        self,
        user_of: Callable[[int], str] | None = None,
        limits: CallerLimits | None = None,
        lender_of: Callable[[int], int] = lambda uid: uid,
    ) -> None:
        self._user_of = user_of
        self._lender_of = lender_of
        self._limits = limits or CallerLimits()
        self._open: dict[int, _Open] = {}  # by number
        # Numbers that were found to be accounts: a directory may have some that a file lends to another account.
        self._accounts: set[int] = set()
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
        holder = self.holder_of(uid)
        self._check(holder, now)
        opened = self._open.setdefault(uid, _Open(holder))
        opened.count += 1
        try:
            yield
        finally:
            opened.count -= 1
            if not opened.count:
                del self._open[uid]

    def holder_of(self, uid: int) -> str:
        """Return the holder of a number's connections: its account, or the containers of the number's lender."""
        lender = uid if uid in self._accounts else self._lender_of(uid)
        return _account(uid) if lender == uid else f"containers of {_account(lender)}"

    def _check(self, holder: str, now: float) -> None:
        limits = self._limits
        if sum(one.count for one in self._open.values() if one.holder == holder) >= limits.connections:
            raise LimitError(
                f"Requested a connection to the gateway, but it has {limits.connections} of {holder}, one "
                "for each kernel that holds or waits for a GPU. End a kernel that is not needed, and try again"
            )
        if sum(one.count for one in self._open.values()) >= limits.all_connections:
            raise LimitError(
                f"Requested a connection to the gateway, but other programs have {limits.all_connections} of them. "
                "Try again later"
            )
        if wait := self._questions.take(holder, now):
            raise LimitError(
                f"Requested a connection to the gateway, but {holder} asked {limits.questions:g} times within "
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
            caller = Caller(uid, await asyncio.to_thread(self._user_of, uid), is_other=True)
        self._accounts.add(uid)
        if uid in self._open:
            self._open[uid].holder = _account(uid)
        return caller


def _account(uid: int) -> str:
    return f"the account {uid}"
