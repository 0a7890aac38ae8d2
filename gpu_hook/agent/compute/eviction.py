"""Evict kernels that cannot be held back beside production; let them return when it has been idle.

This module decides for how long; the lease keeper moves the kernels. A kernel that has to leave
again soon after its return stays away longer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import SECOND

from .facts import Leases

log = logging.getLogger(__name__)

IDLE_BEFORE_RETURN = 2 * SECOND
LEAST_AWAY = 5 * SECOND
MOST_AWAY = 300 * SECOND
SETTLED = 300 * SECOND  # after so long since its return, a kernel counts as never evicted


class Production(NamedTuple):
    """The production on one device. ``idle_since`` is valid while none of it is active."""

    is_there: bool = False
    is_active: bool = False
    idle_since: int = 0


@dataclass
class _Exile:
    uuid: str  # the device where it cannot be held back
    since: int
    away: int  # nanoseconds that it stays away at least
    back_at: int | None = None


class Evictions:
    """The evicted kernels of this node. Times are nanoseconds on CLOCK_MONOTONIC."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._exiles: dict[str, _Exile] = {}

    def is_out(self, kernel_id: str) -> bool:
        exile = self._exiles.get(kernel_id)
        return exile is not None and exile.back_at is None

    def has_left(self, kernel_id: str) -> bool:
        """Return whether the kernel has left its device, or is about to."""
        return self.is_out(kernel_id) and self._leases.is_kept_out(kernel_id)

    def forget(self, kernel_id: str) -> None:
        self._exiles.pop(kernel_id, None)

    def pardon(self, kernel_id: str) -> None:
        """Let a kernel return at once: it is production now, or on another device."""
        if self.is_out(kernel_id):
            self._leases.let_in(kernel_id)
        self.forget(kernel_id)

    def look(self, uuid: str, unholdable: Iterable[str], production: Production, now: int) -> None:
        """Take the verdict of a device's controller, and the state of production there."""
        for kernel_id in unholdable:
            if not self.is_out(kernel_id):
                self._put_out(kernel_id, uuid, now)
        is_idle = not production.is_there or (
            not production.is_active and now - production.idle_since >= IDLE_BEFORE_RETURN
        )
        for kernel_id, exile in self._exiles.items():
            if exile.uuid != uuid or exile.back_at is not None or not is_idle:
                continue
            if not production.is_there or now - exile.since >= exile.away:
                exile.back_at = now
                log.info("event=let_back kernel=%s after_seconds=%d", kernel_id, (now - exile.since) // SECOND)
                self._leases.let_in(kernel_id)

    def _put_out(self, kernel_id: str, uuid: str, now: int) -> None:
        before, away = self._exiles.get(kernel_id), LEAST_AWAY
        if before is not None and before.back_at is not None and now - before.back_at < SETTLED:
            away = min(2 * before.away, MOST_AWAY)
        self._exiles[kernel_id] = _Exile(uuid, now, away)
        log.info("event=unholdable kernel=%s uuid=%s at_least_seconds=%d", kernel_id, uuid, away // SECOND)
        self._leases.keep_out(kernel_id)
