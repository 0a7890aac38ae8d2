"""Recovery of the kernels that an earlier gateway of the same name left.

It runs before the first request is served. ``plan.py`` decides what happens to each kernel. Nothing
here waits for a kernel to answer: the gateway notices later whether it does, as with every other
kernel.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Coroutine, Iterable
from pathlib import Path
from typing import Any, cast

from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.base.tasks import until_answered
from jupyter_aliquot.gateway.kernels.kernel import ManagedKernel
from jupyter_aliquot.gateway.kernels.manager import AliquotKernelManager
from jupyter_aliquot.gateway.scheduling.admission import Admission
from jupyter_aliquot.gateway.scheduling.ledger import Holding, KernelRef
from jupyter_aliquot.gateway.sizes.wish import wish_of
from jupyter_aliquot.gateway.state.persistence import PendingResize, SavedKernel, read_pending_resize, read_saved_kernel
from jupyter_aliquot.gateway.state.records import KernelRecords, KernelState
from jupyter_aliquot.gateway.terminations.failures import failure_of_end
from jupyter_aliquot.gateway.terminations.store import EndedKernel, Endings
from jupyter_aliquot.gpu_hook.waiting import end_task
from jupyter_aliquot.provisioner.errors import AliquotError
from jupyter_aliquot.provisioner.grants.codec import read_grant, stanza_request
from jupyter_aliquot.provisioner.grants.reservation import bind_process
from jupyter_aliquot.provisioner.relay.wire.files import RelayRecord
from jupyter_aliquot.provisioner.resources import Grant, KernelProcess, Request

from .discovery import ProcessFinder
from .plan import Decision, FoundProcesses, RecoveryAction, plan_recovery

_BIND_SECONDS = 30.0
_LEFT_SECONDS = 30.0  # from one look at kernels that were left to the next


class Recovery:
    """The recovery of a gateway's kernels. Made by the extension, and run once."""

    def __init__(
        self,
        manager: AliquotKernelManager,
        admission: Admission,
        endings: Endings,
        records: KernelRecords,
        finder: ProcessFinder,
        clock: Clock,
        log: logging.Logger,
        used: Callable[[], Container[str]],
    ) -> None:
        """*used* returns the ids of the kernels that notebooks of this server have."""
        self._used = used
        self._manager = manager
        self._admission = admission
        self._endings = endings
        self._records = records
        self._finder = finder
        self._clock = clock
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()
        self._recovered: list[str] = []

    async def run(self, boot_id: str) -> None:
        """Decide about every kernel, and act.

        A kernel that cannot be recovered keeps none of the others.
        """
        started = self._clock.now()
        records = await until_answered("records", self._records.read, self._clock.sleep, self._log)
        found = await self._finder.find(records, has_images=self._manager.has_images)
        decisions = plan_recovery(records, found, boot_id, self._clock.wall(), self._undecided)
        for decision in decisions:
            try:
                await self._act(decision)
            except Exception:
                self._log.exception("kernel=%s recovery=failed; it is left as it is", decision.kernel_id)
        self._finish_replacing(decisions)
        left = {one.kernel_id for one in decisions if one.found.is_unknown and one.found.container is not None}
        if left:
            self._do(self._look_again(left, boot_id), "left")
        if decisions:
            counts = {action.value: sum(d.action is action for d in decisions) for action in RecoveryAction}
            said = " ".join(f"{name}={count}" for name, count in counts.items() if count)
            self._log.info("recovery=done %s seconds=%.2f", said, self._clock.now() - started)

    async def stop(self) -> None:
        """Give up the work that is not done yet.

        The next gateway finds the kernels as this one did.
        """
        for task in list(self._tasks):
            await end_task(task)

    async def _look_again(self, left: set[str], boot_id: str) -> None:
        """Recover kernels whose engine did not answer at the start, once it does."""
        while left:
            await self._clock.sleep(_LEFT_SECONDS)
            try:
                records = await asyncio.to_thread(self._records.read)
                # Others start meanwhile: one whose relay is not there yet is not to be revived.
                found = await self._finder.find(records, has_images=self._manager.has_images, only=left)
            except Exception:
                self._log.exception("recovery=failed kernels=%d; it looks again", len(left))
                continue
            ours = [record for record in records if record.kernel_id in left]
            seen = {one: processes for one, processes in found.items() if one in left}
            left &= {*seen, *(record.kernel_id for record in ours)}
            decisions = plan_recovery(ours, seen, boot_id, self._clock.wall(), self._undecided)
            decided = [one for one in decisions if one.action is not RecoveryAction.LEAVE]
            for decision in decided:
                left.discard(decision.kernel_id)
                try:
                    await self._act(decision)
                except Exception:
                    self._log.exception("kernel=%s recovery=failed; it is left as it is", decision.kernel_id)
                else:
                    self._log.info("kernel=%s recovered_late action=%s", decision.kernel_id, decision.action.value)
            if decided:
                self._finish_replacing(decided)

    # ---- one kernel

    def _finish_replacing(self, decisions: Iterable[Decision]) -> None:
        """End the kernels that recovered kernels replace, also where the replaced ones were recovered later."""
        ends = (RecoveryAction.END, RecoveryAction.ENDED, RecoveryAction.LEAVE)
        self._recovered += [one.kernel_id for one in decisions if one.action not in ends]
        for kernel_id in self._recovered:
            self._do(self._manager.replacements.finish(kernel_id, self._used), f"replace-{kernel_id}")

    def _undecided(self, kernel_id: str, error: Exception) -> None:
        self._log.error("kernel=%s recovery=undecided; it is left as it is", kernel_id, exc_info=error)

    async def _act(self, decision: Decision) -> None:
        if decision.action is RecoveryAction.LEAVE:
            return  # the finder logged why
        kernel_id, processes = decision.kernel_id, decision.found
        kernel: ManagedKernel | None = None
        saved = read_saved_kernel(decision.record, None if processes.relay is None else processes.relay.facts)
        if decision.action is RecoveryAction.ENDED:
            self._clear_away(decision, saved)
            return
        try:
            kernel = self._manager.handover.make_kernel(kernel_id, saved)
            await self._take_over(kernel, decision, saved)
        except BaseException:
            self._manager.handover.unmake_kernel(kernel_id, kernel)
            raise

    async def _take_over(self, kernel: ManagedKernel, decision: Decision, saved: SavedKernel) -> None:
        kernel_id, processes = decision.kernel_id, decision.found
        if decision.action is RecoveryAction.REQUEUE:
            self._admission.expect(kernel_id)
            self._manager.begin(kernel_id, kernel, first=self._finder.clear(kernel_id, processes))
            self._log.info("kernel=%s queued_again owner=%s", kernel_id, saved.owner)
            return
        assert processes.relay is not None  # the other actions need one
        await self._adopt(kernel, saved, processes.relay, processes.process)
        if decision.action is RecoveryAction.RESTART:
            self._manager.begin(kernel_id, kernel)
            return
        if decision.action is RecoveryAction.END and decision.asked is not None:
            self._do(self._manager.end_kernel(kernel_id, decision.asked), f"end-{kernel_id}")
            return
        self._ask_again(kernel, decision)
        if decision.record is None or decision.record.state is not KernelState.RUNNING:
            kernel.note(KernelState.RUNNING)
            # A relay binds the process that it started. It does not know the process in a
            # container.
            process = processes.container and processes.process
            if kernel.grant is not None and process is not None and process.pid:
                self._do(self._bind(kernel.grant, process), f"bind-{kernel_id}")

    def _ask_again(self, kernel: ManagedKernel, decision: Decision) -> None:
        """Queue the resize request that the kernel waited for, at its old place."""
        pending = None if decision.record is None else read_pending_resize(decision.record.pending_resize)
        if pending is not None and decision.action is RecoveryAction.RECOVER:
            kernel.pending_resize = pending
            self._do(self._resize(kernel.kernel_id, pending), f"resize-{kernel.kernel_id}")

    async def _resize(self, kernel_id: str, pending: PendingResize) -> None:
        try:
            await self._manager.resizes.resize(kernel_id, pending.request, pending.since)
        except AliquotError as error:
            self._manager.resizes.forget(kernel_id)
            self._log.info("kernel=%s resize=refused reason=%s", kernel_id, error)

    async def _adopt(
        self, kernel: ManagedKernel, saved: SavedKernel, relay: RelayRecord, process: KernelProcess | None
    ) -> None:
        grant = None if saved.grant is None else read_grant(saved.grant)
        await kernel.adopt(relay, process, grant)
        if grant is not None:
            names = (saved.owner, saved.label, kernel.kernel_name)
            wish = wish_of(saved.arguments)
            requester = KernelRef(kernel.kernel_id, *names, saved.teams, wish=wish)
            self._admission.adopt(Holding(grant, requester, saved.queued_at))
        if process is not None:
            self._manager.welcome(kernel)
            self._log.info("kernel=%s adopted pid=%d owner=%s", kernel.kernel_id, process.pid, saved.owner)

    async def _bind(self, grant: Grant, process: KernelProcess) -> None:
        """Tell the agent the process of a kernel whose gateway was killed before it did.

        Waits for the renewed grant.
        """
        deadline = self._clock.now() + _BIND_SECONDS
        while not self._is_renewed(grant.kernel_id) and self._clock.now() < deadline:
            await self._clock.sleep(0.1)
        try:
            await bind_process(grant, process, Path(grant.kernel_dir).parent.parent)
        except AliquotError as error:
            self._log.warning("kernel=%s bind=missed reason=%s", grant.kernel_id, error)

    def _is_renewed(self, kernel_id: str) -> bool:
        holdings = self._admission.snapshot().holdings
        return any(held.grant.kernel_id == kernel_id and held.is_confirmed for held in holdings)

    def _clear_away(self, decision: Decision, saved: SavedKernel) -> None:
        kernel_id = decision.kernel_id
        # An earlier gateway may have recorded the reason already, and was killed before it removed
        # the kernel.
        if decision.ending is not None and self._endings.of(kernel_id) is None:
            said = (kernel_id, saved.kernelspec, saved.owner, saved.label, decision.ending)
            failure = failure_of_end(decision.ending)
            self._endings.record(EndedKernel(*said, request=self._request(saved), failure=failure))
        self._do(self._forget(kernel_id, decision.found), f"clear-{kernel_id}")

    async def _forget(self, kernel_id: str, processes: FoundProcesses) -> None:
        await self._finder.clear(kernel_id, processes)
        await asyncio.to_thread(self._records.remove, kernel_id)

    def _request(self, saved: SavedKernel) -> Request | None:
        if saved.grant is not None:
            return read_grant(saved.grant).request
        specs = cast(KernelSpecManager, self._manager.kernel_spec_manager)
        try:
            return stanza_request(specs.get_kernel_spec(saved.kernelspec).metadata)
        except (AliquotError, NoSuchKernel):
            return None

    def _do(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(self._logged(work, name), name=f"aliquot-recovery-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _logged(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except Exception:
            self._log.exception("recovery=%s failed", name)
