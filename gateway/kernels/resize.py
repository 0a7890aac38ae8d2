"""The part of the kernel manager that gives kernels other sizes while they run, and remembers who waits for one.

When there is room, admission decides; what a container has of its host follows.
"""

# mypy: disable-error-code="no-untyped-call"
# Jupyter Server's kernel managers carry no types.
from __future__ import annotations

import asyncio
from typing import Any

from jupyter_server.prometheus.metrics import KERNEL_CURRENTLY_RUNNING_TOTAL

from jupyter_aliquot.gateway.scheduling.admission import Admission
from jupyter_aliquot.gateway.scheduling.queue import QueueEntry
from jupyter_aliquot.gateway.state.persistence import SizeWish
from jupyter_aliquot.provisioner.errors import AliquotError
from jupyter_aliquot.provisioner.resources import Grant, Request

from .handover import LastingKernelManager
from .kernel import ManagedKernel


class ResizableKernelManager(LastingKernelManager):
    """``admission`` is the extension's; None: it is not loaded."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.admission: Admission | None = None
        self._resizing: set[asyncio.Task[None]] = set()

    async def resize_kernel(
        self, kernel_id: str, request: Request, waits_since: float | None = None
    ) -> Grant | QueueEntry:
        """Ask for another size. What has to wait is remembered, also by a gateway after us. Raises AliquotError."""
        assert self.admission is not None  # who asks has it
        outcome = await self.admission.resize(kernel_id, request, waits_since)
        wish = SizeWish(request, outcome.since) if isinstance(outcome, QueueEntry) else None
        self._note_wish(kernel_id, wish)
        return outcome

    def forget_wish(self, kernel_id: str) -> None:
        """It waits for no other size any more."""
        self._note_wish(kernel_id, None)

    def take_outcome(self, kernel_id: str, outcome: Grant | AliquotError) -> None:
        """Called by admission with each size that was granted, and with why one was not that had waited."""
        kernel = self._kernels.get(kernel_id)
        if not isinstance(kernel, ManagedKernel):
            return
        self._note_wish(kernel_id, None)
        if isinstance(outcome, Grant):
            self._rename(kernel, outcome)
            task = asyncio.create_task(self._resize(kernel), name=f"aliquot-resize-{kernel_id}")
            self._resizing.add(task)
            task.add_done_callback(self._resizing.discard)

    def _rename(self, kernel: ManagedKernel, grant: Grant) -> None:
        """Let it hold another grant at once, so that a client that asks next reads the new size's name."""
        before = kernel.kernel_name
        kernel.take_grant(grant)
        if kernel.kernel_name != before:
            # Jupyter counts kernels by the name that they have when they end.
            KERNEL_CURRENTLY_RUNNING_TOTAL.labels(type=before).dec()
            KERNEL_CURRENTLY_RUNNING_TOTAL.labels(type=kernel.kernel_name).inc()
            self._note_again(kernel)

    async def _resize(self, kernel: ManagedKernel) -> None:
        try:
            left = await kernel.apply_grant()
        except AliquotError as error:
            left = str(error)
        if left:
            self.log.warning("kernel=%s resize=in_part left=%r; its next start has all of it", kernel.kernel_id, left)

    def _note_wish(self, kernel_id: str, wish: SizeWish | None) -> None:
        kernel = self._kernels.get(kernel_id)
        if not isinstance(kernel, ManagedKernel) or kernel.wish == wish:
            return
        kernel.wish = wish
        self._note_again(kernel)
