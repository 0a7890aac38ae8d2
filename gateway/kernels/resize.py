"""Resizes of running kernels: which kernels wait for one, and the steps after a size is granted.

Admission decides when there is room. A container's limits on its host follow the grant.
"""

# mypy: disable-error-code="no-untyped-call"
# Jupyter Server's metrics carry no types.
from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from jupyter_server.prometheus.metrics import KERNEL_CURRENTLY_RUNNING_TOTAL

from jupyter_aliquot.gateway.scheduling.admission import Admission
from jupyter_aliquot.gateway.scheduling.queue import QueueEntry
from jupyter_aliquot.gateway.state.persistence import PendingResize
from jupyter_aliquot.provisioner.errors import AliquotError
from jupyter_aliquot.provisioner.resources import Grant, Request

from .kernel import ManagedKernel


class ResizeTracker:
    """The running kernels that wait for another size. Made by the kernel manager.

    Admission calls it with each size that was granted. *find* returns a kernel by its id, and
    *note_again* writes the record of a kernel anew.
    """

    def __init__(
        self,
        admission: Admission | None,
        find: Callable[[str], ManagedKernel | None],
        note_again: Callable[[ManagedKernel], None],
        log: logging.Logger,
    ) -> None:
        self._admission = admission
        self._find = find
        self._note_again = note_again
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_part: set[str] = set()  # kernels whose limits on the machine are not those of their size yet
        if admission is not None:
            admission.observe_resizes(self.take_outcome)

    async def resize(self, kernel_id: str, request: Request, waits_since: float | None = None) -> Grant | QueueEntry:
        """Ask for another size.

        A later gateway knows of a request that waits. Raises AliquotError.
        """
        assert self._admission is not None  # a kernel without it holds no grant that admission could change
        outcome = await self._admission.resize(kernel_id, request, waits_since)
        pending = PendingResize(request, outcome.since) if isinstance(outcome, QueueEntry) else None
        self._note(kernel_id, pending)
        return outcome

    def forget(self, kernel_id: str) -> None:
        """Remember that the kernel waits for no other size any more."""
        self._note(kernel_id, None)

    def take_outcome(self, kernel_id: str, outcome: Grant | AliquotError) -> None:
        """Called by admission with each granted size, and with the error of a queued request."""
        kernel = self._find(kernel_id)
        if kernel is None:
            return
        self._note(kernel_id, None)
        if isinstance(outcome, Grant):
            self._rename(kernel, outcome)
            self._begin(kernel)

    def _rename(self, kernel: ManagedKernel, grant: Grant) -> None:
        """Let the kernel hold another grant at once.

        So a client that asks next reads the new size's name.
        """
        before = kernel.kernel_name
        kernel.take_grant(grant)
        if kernel.kernel_name != before:
            # Jupyter counts kernels by the name that they have when they end.
            KERNEL_CURRENTLY_RUNNING_TOTAL.labels(type=before).dec()
            KERNEL_CURRENTLY_RUNNING_TOTAL.labels(type=kernel.kernel_name).inc()
            self._note_again(kernel)

    def _begin(self, kernel: ManagedKernel) -> None:
        self._in_part.discard(kernel.kernel_id)
        task = asyncio.create_task(self._apply(kernel), name=f"aliquot-resize-{kernel.kernel_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _apply(self, kernel: ManagedKernel) -> None:
        try:
            left = await kernel.apply_grant()
        except AliquotError as error:
            left = str(error)
        if left:
            there = {kernel_id for kernel_id in self._in_part if self._find(kernel_id) is not None}
            self._in_part = there | {kernel.kernel_id}
            self._log.warning("kernel=%s resize=in_part left=%r; tried again when it is idle", kernel.kernel_id, left)

    def try_again(self, kernel_id: str) -> None:
        """Try to set the limits that the system refused while the kernel was at work. Called when it becomes idle.

        A kernel that holds more memory than its new size has gets the limit once it has given some back.
        """
        if kernel_id in self._in_part and (kernel := self._find(kernel_id)) is not None:
            self._begin(kernel)

    def _note(self, kernel_id: str, pending: PendingResize | None) -> None:
        kernel = self._find(kernel_id)
        if kernel is None or kernel.pending_resize == pending:
            return
        kernel.pending_resize = pending
        self._note_again(kernel)
