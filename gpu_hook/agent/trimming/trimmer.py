"""Have idle kernels return the caches of their frameworks.

The agent asks, and each kernel's relay trims and reports.
policy.py decides when.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from jupyter_aliquot.gpu_hook.agent.activity.idleness import Activity, Moment
from jupyter_aliquot.gpu_hook.agent.ledger.journal import Reservation
from jupyter_aliquot.gpu_hook.agent.swap.facts import ResidencyFacts
from jupyter_aliquot.gpu_hook.agent.swap.residency import KernelResidency

from .policy import TrimPolicy, TrimView, is_trim_due, quiet_period

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0

Send = Callable[[int, dict[str, Any]], None]  # hands an event to a control connection


class Trimmed(Protocol):
    """A kernel, as the trimmer uses it."""

    @property
    def kernel_id(self) -> str: ...

    @property
    def reservation(self) -> Reservation: ...

    @property
    def activity(self) -> Activity | None: ...

    @property
    def residency(self) -> KernelResidency: ...


class Trims:
    """Requests trims from relays, once a second. ``idle_since`` comes from the lease keeper."""

    def __init__(
        self,
        policy: TrimPolicy,
        kernels: Callable[[], Iterable[Trimmed]],
        idle_since: Callable[[str], float | None],
        send: Send,
        clock: Callable[[], Moment],
    ) -> None:
        self._policy = policy
        self._kernels = kernels
        self._idle_since = idle_since
        self._send = send
        self._clock = clock
        self._relays: dict[str, int] = {}  # kernel -> connection
        self._asked_for: dict[str, float] = {}
        self._returned: dict[str, dict[str, float]] = {}

    def describe(self, kernel_id: str) -> dict[str, float] | None:
        """Return the result of a kernel's latest trim, for the status."""
        return self._returned.get(kernel_id)

    def drop_connection(self, connection: int) -> None:
        self._relays = {kernel_id: one for kernel_id, one in self._relays.items() if one != connection}

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                self.look()
            except Exception:
                log.exception("event=trim_look_failed")

    def look(self) -> None:
        """Ask the relays of all kernels that are due."""
        now, kernels = self._clock().monotonic, list(self._kernels())
        here = {kernel.kernel_id for kernel in kernels}
        for known in (self._asked_for, self._returned):
            for kernel_id in known.keys() - here:
                del known[kernel_id]
        for kernel in kernels:
            connection, quiet = self._relays.get(kernel.kernel_id), quiet_period(kernel.activity)
            if connection is None or quiet is None or quiet == self._asked_for.get(kernel.kernel_id):
                continue
            if is_trim_due(self._view(kernel, kernels), now, self._policy):
                self._asked_for[kernel.kernel_id] = quiet
                self._send(connection, {"event": "trim", "kernel_id": kernel.kernel_id})

    def _view(self, kernel: Trimmed, kernels: Iterable[Trimmed]) -> TrimView:
        facts: ResidencyFacts = kernel.residency.facts()
        own = {part.uuid for part in kernel.reservation.parts}
        return TrimView(
            activity=kernel.activity,
            idle_since=self._idle_since(kernel.kernel_id),
            state=facts.state,
            held_bytes=sum(device.on_device_bytes for device in facts.devices),
            has_neighbours=any(
                part.uuid in own for other in kernels if other is not kernel for part in other.reservation.parts
            ),
            asked_for=self._asked_for.get(kernel.kernel_id),
        )

    def note_relay(self, kernel_id: str, connection: int) -> bool:
        """Note that a relay takes requests to trim on this connection.

        False: its kernel is not here.
        """
        if self._find(kernel_id) is None:
            return False
        self._relays[kernel_id] = connection
        return True

    def note_trimmed(self, kernel_id: str, returned_bytes: int) -> bool:
        """Note what a trim returned; False: its kernel is not here."""
        kernel = self._find(kernel_id)
        if kernel is None:
            return False
        self._returned[kernel_id] = {"bytes": returned_bytes, "at": round(self._clock().wall, 3)}
        log.info("event=trimmed kernel=%s bytes=%d", kernel_id, returned_bytes)
        if returned_bytes:
            kernel.residency.note_trimmed()
        return True

    def _find(self, kernel_id: str) -> Trimmed | None:
        return next((kernel for kernel in self._kernels() if kernel.kernel_id == kernel_id), None)
