"""The part of the kernel manager that outlives its process: kernels that are taken over, and kernels that are left.

Which of them, and why, is the business of adoption and of the stop policy.
"""

# mypy: disable-error-code="no-untyped-call"
# Jupyter Server's kernel managers carry no types.
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

from jupyter_server._tz import utcnow
from jupyter_server.prometheus.metrics import KERNEL_CURRENTLY_RUNNING_TOTAL

from jupyter_aliquot.gateway.auth.identity import current_user
from jupyter_aliquot.gateway.state.persistence import Heritage, KernelMemory, live_arguments
from jupyter_aliquot.gateway.state.records import KernelState
from jupyter_aliquot.gateway.terminations.recorder import KernelEndings

from .kernel import ManagedKernel
from .owners import KernelOwners
from .relay_activity import RelayedKernelManager


class LastingKernelManager(RelayedKernelManager):
    """``memory`` and ``endings`` are the extension's; None: it is not loaded, and nothing is remembered."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.memory: KernelMemory | None = None
        self.endings: KernelEndings | None = None
        self.owners = KernelOwners()
        self.leaves_kernels = False
        self._stopping: dict[str, asyncio.Task[None]] = {}

    def get_kernel(self, kernel_id: str) -> Any:
        """As Jupyter's, which checks the id in four calls: each look asks a thousand times. Raises HTTPError 404."""
        kernel = self._kernels.get(kernel_id)
        return super().get_kernel(kernel_id) if kernel is None else kernel

    def _introduce(self, kernel: ManagedKernel, kernel_id: str, arguments: Mapping[str, Any]) -> None:
        raise NotImplementedError  # by the class that starts kernels, too

    # ---- taken over

    def make_kernel(self, kernel_id: str, heritage: Heritage) -> ManagedKernel:
        """The manager of a kernel that a gateway before us was asked for. Called by adoption."""
        kernel, _, _ = super().pre_start_kernel(heritage.kernelspec, {"kernel_id": kernel_id})
        assert isinstance(kernel, ManagedKernel)  # adoption is made for this class alone
        self.owners.note(kernel_id, heritage.owner)
        self._introduce(kernel, kernel_id, live_arguments(heritage.arguments))
        kernel.queued_at, kernel.teams, kernel.shares = heritage.queued_at, heritage.teams, heritage.shares
        kernel.last_crash = heritage.last_crash
        return kernel

    def unmake_kernel(self, kernel_id: str, kernel: ManagedKernel | None) -> None:
        """The inverse, for one that could not be taken over: it counts for nobody here, and goes on as it is."""
        if kernel_id in self._kernels:
            return  # it was, as far as its user sees
        self.owners.forget(kernel_id)
        if kernel is not None:
            self._let_be(kernel)

    def begin(self, kernel_id: str, kernel: ManagedKernel, first: Awaitable[None] | None = None) -> None:
        """Start it with the arguments it was asked with, after ``first``; it is listed at once, as starting."""

        async def start() -> None:
            if first is not None:
                await first
            await kernel.start_kernel(**kernel.start_arguments)

        self._list(kernel_id, kernel, "starting")
        self._pending_kernels[kernel_id] = asyncio.create_task(self._add_kernel_when_ready(kernel_id, kernel, start()))
        self._pending_kernel_tasks[kernel_id] = asyncio.create_task(self._finish_kernel_start(kernel_id))

    def welcome(self, kernel: ManagedKernel) -> None:
        """Have one among ours that runs already. Called by adoption."""
        self._list(kernel.kernel_id, kernel, "idle")
        self._pending_kernel_tasks[kernel.kernel_id] = asyncio.create_task(self._finish_kernel_start(kernel.kernel_id))

    def _list(self, kernel_id: str, kernel: ManagedKernel, state: str) -> None:
        if kernel_id not in self._kernels:
            KERNEL_CURRENTLY_RUNNING_TOTAL.labels(type=kernel.kernel_name).inc()
            self._kernel_connections[kernel_id] = 0
        self._kernels[kernel_id] = kernel
        kernel.execution_state, kernel.reason, kernel.last_activity = state, "", utcnow()

    def update_env(self, *, kernel_id: str, env: dict[str, str]) -> None:
        """Called by PATCH /api/sessions/{id}: the notebook has another name, also after a restart of ours.

        Somebody else who may use the kernel names their own session by it, and not the kernel.
        """
        if current_user().name != self.owners.get(kernel_id):
            return
        super().update_env(kernel_id=kernel_id, env=env)
        kernel = self._kernels.get(kernel_id)
        if isinstance(kernel, ManagedKernel):
            kernel.start_arguments["env"] = {**kernel.start_arguments.get("env", {}), **env}
            self._note_again(kernel)

    def _note_again(self, kernel: ManagedKernel) -> None:
        """Write the record of a kernel that runs anew."""
        if kernel.has_kernel and kernel.ready.done() and kernel.kernel_id not in self._stopping:
            kernel.note(KernelState.RUNNING)

    # ---- started, gone, or left

    async def _async_start_kernel(self, **kwargs: Any) -> str:
        """Return when the start is on the disk: what a server answered is found again by the next one."""
        kernel_id = str(await super()._async_start_kernel(**kwargs))
        await self.noted(kernel_id)
        return kernel_id

    async def noted(self, kernel_id: str) -> None:
        """Wait until what a gateway after this one needs of the kernel is on disk: an answer promises it."""
        if self.memory is not None:
            await self.memory.noted(kernel_id)

    def remove_kernel(self, kernel_id: str) -> Any:
        """Called by MultiKernelManager when a kernel has ended, or never started."""
        self.owners.forget(kernel_id)
        if self.memory is not None:
            self.memory.forget(kernel_id)
        kernel = super().remove_kernel(kernel_id)
        if isinstance(kernel, ManagedKernel):
            kernel.let_go()
        return kernel

    async def leave_kernels(self) -> None:
        """The server stops, and its kernels go on: forget them without a word to them. Ends those that cannot."""
        if self.endings is not None:
            self.endings.expect_stop()
        doomed = [kernel_id for kernel_id, kernel in self._kernels.items() if not self._leave(kernel)]
        stops = [self._async_shutdown_kernel(kernel_id) for kernel_id in doomed]
        for result in await asyncio.gather(*stops, return_exceptions=True):
            if isinstance(result, Exception):
                self.log.error("shutdown=failed reason=%s", result)
        await self.pending.stop()
        if self.memory is not None:
            self.memory.freeze()
        self.log.info("kernels=left count=%d they go on without this server", len(self._kernels))
        self.leaves_kernels = True

    def list_kernel_ids(self) -> list[str]:
        """Called by the server's stop, too, which tells its log how many it ends."""
        kernel_ids: list[str] = [] if self.leaves_kernels else super().list_kernel_ids()
        return kernel_ids

    def _leave(self, kernel: Any) -> bool:
        """Whether it goes on without us. One that waits or starts does: the next gateway sees to it."""
        if not isinstance(kernel, ManagedKernel) or not kernel.outlives_us():
            return False
        self._let_be(kernel)
        return True

    @staticmethod
    def _let_be(kernel: ManagedKernel) -> None:
        kernel.stop_restarter()
        # Its manager would remove it at its own end, and clients such as `jupyter console --existing` read it.
        kernel._connection_file_written = False
