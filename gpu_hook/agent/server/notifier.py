"""Notify the watchers of the whole node when its status changed.

A notice goes out at once, but not more often than watchers can look. It has no content: its
receiver requests the status. Without watchers there is no work.
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
    """A kernel whose quota may be exceeded, and whose memory moves."""

    @property
    def kernel_id(self) -> str: ...

    @property
    def residency(self) -> Copying: ...

    @property
    def accounts(self) -> tuple[DeviceAccount, ...]: ...

    def report(self) -> tuple[DeviceUse, ...]: ...


class StatusNotices:
    """Notices of a changed status. ``send`` hands an event to a connection."""

    def __init__(self, send: Callable[[int, dict[str, Any]], None]) -> None:
        self._send = send
        self._watchers: set[int] = set()
        self._due: asyncio.TimerHandle | None = None
        self._told_at = -_LEAST_SECONDS
        self._over_quota: frozenset[str] = frozenset()

    def enter(self, connection: int) -> None:
        """Enter a connection: it gets notices from now on."""
        self._watchers.add(connection)

    def drop(self, connection: int) -> None:
        """Drop a closed connection."""
        self._watchers.discard(connection)

    def tell(self) -> None:
        """Note a change that the status shows to users: kernels, their states, sizes and waits."""
        if not self._watchers or self._due is not None:
            return
        loop = asyncio.get_running_loop()
        wait = max(0.0, self._told_at + _LEAST_SECONDS - loop.time())
        self._due = loop.call_later(wait, self._tell_now)

    def look(self, kernels: Iterable[Sized]) -> None:
        """Note kernels that came below their quota, or whose copy goes on. Called often.

        Only their pages show it.
        """
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
    """Return whether it has more than its quota, after the quota shrank.

    A hook charges no more than it was lent.
    """
    accounts = kernel.accounts
    if all(account.lent <= account.quota_bytes for account in accounts):
        return False
    uses = zip(accounts, kernel.report(), strict=True)
    return any(use.charged_bytes > account.quota_bytes for account, use in uses)
