"""Tells those who watch the whole node that its status is another: at once, and not more often than they can look.

A notice has no content: its receiver asks for the status. Without watchers nothing is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from jupyter_aliquot.gpu_hook.agent.kernels.usage import DeviceUse
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceAccount

_LEAST_SECONDS = 0.1  # between two notices
_COPY_SECONDS = 0.25  # while memory is copied, so that waiters see the progress
_EVENT = {"event": "status"}


class Copying(Protocol):
    """The residency of a kernel's memory."""

    @property
    def is_copying(self) -> bool: ...


class Sized(Protocol):
    """A kernel, as far as its quota goes, and its memory moves."""

    @property
    def kernel_id(self) -> str: ...

    @property
    def residency(self) -> Copying: ...

    @property
    def accounts(self) -> tuple[DeviceAccount, ...]: ...

    def report(self) -> tuple[DeviceUse, ...]: ...


class StatusNotices:
    """``send`` hands an event to a connection."""

    def __init__(self, send: Callable[[int, dict[str, Any]], None]) -> None:
        self._send = send
        self._watchers: set[int] = set()
        self._due: asyncio.TimerHandle | None = None
        self._told_at = -_LEAST_SECONDS
        self._over_quota: frozenset[str] = frozenset()

    def enter(self, connection: int) -> None:
        """From now on it is told."""
        self._watchers.add(connection)

    def drop(self, connection: int) -> None:
        """It closed."""
        self._watchers.discard(connection)

    def tell(self) -> None:
        """Something that the status shows to people changed: kernels, their states, sizes and waits."""
        if not self._watchers or self._due is not None:
            return
        loop = asyncio.get_running_loop()
        wait = max(0.0, self._told_at + _LEAST_SECONDS - loop.time())
        self._due = loop.call_later(wait, self._tell_now)

    def look(self, kernels: Iterable[Sized]) -> None:
        """Called often: of a kernel that comes below its quota, or whose copy goes on, its page alone tells."""
        if not self._watchers:
            return
        known = tuple(kernels)
        over = frozenset(kernel.kernel_id for kernel in known if is_over_quota(kernel))
        is_late = asyncio.get_running_loop().time() - self._told_at >= _COPY_SECONDS
        if over != self._over_quota or (is_late and any(kernel.residency.is_copying for kernel in known)):
            self._over_quota = over
            self.tell()

    def _tell_now(self) -> None:
        self._due, self._told_at = None, asyncio.get_running_loop().time()
        for connection in tuple(self._watchers):
            self._send(connection, _EVENT)


def is_over_quota(kernel: Sized) -> bool:
    """Whether it has more than its quota, after that was shrunk. Nothing is charged that was not lent."""
    accounts = kernel.accounts
    if all(account.lent <= account.quota_bytes for account in accounts):
        return False
    uses = zip(accounts, kernel.report(), strict=True)
    return any(use.charged_bytes > account.quota_bytes for account, use in uses)
