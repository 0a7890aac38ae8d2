"""Kernels that outlive their gateway: taken over from an earlier one, and left to the next one.

Recovery decides which kernels are taken over, and the stop policy whether kernels are left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from jupyter_aliquot.gateway.base.jupyter_private import write_connection_file_again
from jupyter_aliquot.gateway.channels.pending_kernels import PendingKernels
from jupyter_aliquot.gateway.sharing.registry import KernelOwners, ShareRegistry
from jupyter_aliquot.gateway.state.persistence import KernelMemory, SavedKernel, live_arguments
from jupyter_aliquot.gateway.state.records import KernelState
from jupyter_aliquot.gateway.terminations.recorder import KernelEndings

from .kernel import ManagedKernel


class Kernels(Protocol):
    """The kernel manager."""

    def __contains__(self, kernel_id: str, /) -> bool: ...

    def make(self, kernel_id: str, kernelspec: str) -> ManagedKernel:
        """Make the manager of one kernel; the kernel is not listed yet."""
        ...

    def introduce(self, kernel: ManagedKernel, kernel_id: str, arguments: dict[str, Any]) -> None:
        """Tell a new kernel its id, its owner and the arguments of its start."""
        ...

    def is_stopping(self, kernel_id: str) -> bool:
        """Return whether it is being ended."""
        ...

    def find(self, kernel_id: str) -> ManagedKernel | None:
        """Return the kernel of this id, if there is one of this server."""
        ...

    def list_kernel_ids(self) -> list[str]:
        """Return the ids of all kernels."""
        ...

    def shutdown_kernel(self, kernel_id: str) -> Coroutine[Any, Any, None]:
        """End it."""
        ...


class Handover:
    """The handover of kernels to a later gateway. Made by the kernel manager.

    Without *memory*, no kernel outlives its gateway.
    """

    def __init__(
        self,
        kernels: Kernels,
        owners: KernelOwners,
        sharing: ShareRegistry,
        pending: PendingKernels,
        memory: KernelMemory | None,
        endings: KernelEndings | None,
        log: logging.Logger,
    ) -> None:
        self._kernels = kernels
        self._owners = owners
        self._sharing = sharing
        self._pending = pending
        self._memory = memory
        self._endings = endings
        self._log = log
        self.leaves_kernels = False

    # ---- taken over

    def make_kernel(self, kernel_id: str, saved: SavedKernel) -> ManagedKernel:
        """Make the manager of a kernel that an earlier gateway was asked for.

        Called by recovery.
        """
        kernel = self._kernels.make(kernel_id, saved.kernelspec)
        self._owners.note(kernel_id, saved.owner)
        self._kernels.introduce(kernel, kernel_id, live_arguments(saved.arguments))
        kernel.queued_at, kernel.teams, kernel.shares = saved.queued_at, saved.teams, saved.shares
        kernel.last_crash = saved.last_crash
        self._sharing.note(kernel_id, kernel.shares)
        return kernel

    def unmake_kernel(self, kernel_id: str, kernel: ManagedKernel | None) -> None:
        """Undo the takeover of a kernel that could not be taken over.

        The kernel belongs to no user here, and goes on as it is.
        """
        if kernel_id in self._kernels:
            return  # it was, as far as its user sees
        self._owners.forget(kernel_id)
        self._sharing.forget(kernel_id)
        if kernel is not None:
            _let_be(kernel)

    # ---- remembered

    async def noted(self, kernel_id: str) -> None:
        """Wait until the facts that a later gateway needs of the kernel are on disk.

        An answer to a client promises that.
        """
        if self._memory is not None:
            await self._memory.noted(kernel_id)

    def note_again(self, kernel: ManagedKernel) -> None:
        """Write the record of a kernel that runs anew."""
        if kernel.has_kernel and kernel.ready.done() and not self._kernels.is_stopping(kernel.kernel_id):
            kernel.note(KernelState.RUNNING)

    def take_env(self, kernel: ManagedKernel, env: dict[str, str]) -> None:
        """Remember changed variables of a kernel.

        Its notebook has another name, also after a restart of this gateway.
        """
        kernel.start_arguments["env"] = {**kernel.start_arguments.get("env", {}), **env}
        self.note_again(kernel)

    def forget(self, kernel_id: str) -> None:
        """Remove the record of a kernel that has ended."""
        if self._memory is not None:
            self._memory.forget(kernel_id)

    # ---- left

    async def leave_kernels(self) -> None:
        """Let the kernels go on without this server, and forget them. End those that cannot."""
        if self._endings is not None:
            self._endings.expect_stop()
        doomed = [kernel_id for kernel_id in self._kernels.list_kernel_ids() if not self._leave(kernel_id)]
        stops = [self._kernels.shutdown_kernel(kernel_id) for kernel_id in doomed]
        for result in await asyncio.gather(*stops, return_exceptions=True):
            if isinstance(result, Exception):
                self._log.error("shutdown=failed reason=%s", result)
        await self._pending.stop()
        if self._memory is not None:
            self._memory.freeze()
        count = len(self._kernels.list_kernel_ids())
        self._log.info("kernels=left count=%d they go on without this server", count)
        self.leaves_kernels = True

    def _leave(self, kernel_id: str) -> bool:
        """Leave the kernel if it goes on without this server.

        The next gateway sees to a kernel that waits or starts.
        """
        kernel = self._kernels.find(kernel_id)
        if kernel is None or not kernel.outlives_us():
            return False
        _let_be(kernel)
        return True


def _let_be(kernel: ManagedKernel) -> None:
    kernel.stop_restarter()
    # Its manager would remove it at its own end, and clients such as `jupyter console --existing`
    # read it.
    write_connection_file_again(kernel)
