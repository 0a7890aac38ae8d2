"""Recovery of the kernels that an earlier gateway of the same name left, before the first request
is served.

``plan.py`` decides what happens to each kernel. Nothing here waits for a kernel to answer: the
gateway notices later whether it does, as with every other kernel.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Coroutine
from pathlib import Path
from typing import Any, cast

from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.kernels.kernel import ManagedKernel
from jupyter_aliquot.gateway.kernels.manager import AliquotKernelManager
from jupyter_aliquot.gateway.scheduling.admission import Admission
from jupyter_aliquot.gateway.scheduling.ledger import Asker, Holding
from jupyter_aliquot.gateway.state.persistence import Heritage, SizeWish, read_heritage, read_wish
from jupyter_aliquot.gateway.state.records import KernelRecords, KernelState
from jupyter_aliquot.gateway.terminations.store import EndedKernel, Endings
from jupyter_aliquot.gpu_hook.waiting import end_task
from jupyter_aliquot.provisioner.errors import AliquotError
from jupyter_aliquot.provisioner.grants.codec import read_grant, stanza_request
from jupyter_aliquot.provisioner.grants.reservation import bind_process
from jupyter_aliquot.provisioner.relay.wire.files import RelayRecord
from jupyter_aliquot.provisioner.resources import Grant, KernelProcess, Request

from .discovery import KernelRemains
from .plan import Decision, Fate, Remains, plan_adoption

_BIND_SECONDS = 30.0


class Adoption:
    """Made by the extension, and run once."""

    def __init__(
        self,
        manager: AliquotKernelManager,
        admission: Admission,
        endings: Endings,
        records: KernelRecords,
        remains: KernelRemains,
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
        self._remains = remains
        self._clock = clock
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, boot_id: str) -> None:
        """Decide about every kernel, and act.

        A kernel that cannot be recovered keeps none of the others.
        """
        started = self._clock.now()
        records = await asyncio.to_thread(self._records.read)
        found = await self._remains.find(has_images=self._manager.has_images)
        decisions = plan_adoption(records, found, boot_id, self._clock.wall())
        for decision in decisions:
            try:
                await self._act(decision)
            except Exception:
                self._log.exception("kernel=%s adoption=failed; it is left as it is", decision.kernel_id)
        for decision in decisions:
            if decision.fate not in (Fate.END, Fate.ENDED):
                kernel_id = decision.kernel_id
                self._do(self._manager.replacements.finish(kernel_id, self._used), f"replace-{kernel_id}")
        if decisions:
            counts = {fate.value: sum(d.fate is fate for d in decisions) for fate in Fate}
            said = " ".join(f"{name}={count}" for name, count in counts.items() if count)
            self._log.info("adoption=done %s seconds=%.2f", said, self._clock.now() - started)

    async def stop(self) -> None:
        """Give up the work that is not done yet.

        The next gateway finds the kernels as this one did.
        """
        for task in list(self._tasks):
            await end_task(task)

    # ---- one kernel

    async def _act(self, decision: Decision) -> None:
        kernel_id, remains = decision.kernel_id, decision.remains
        kernel: ManagedKernel | None = None
        heritage = read_heritage(decision.record, None if remains.relay is None else remains.relay.facts)
        if decision.fate is Fate.ENDED:
            self._clear_away(decision, heritage)
            return
        try:
            kernel = self._manager.handover.make_kernel(kernel_id, heritage)
            await self._take_over(kernel, decision, heritage)
        except BaseException:
            self._manager.handover.unmake_kernel(kernel_id, kernel)
            raise

    async def _take_over(self, kernel: ManagedKernel, decision: Decision, heritage: Heritage) -> None:
        kernel_id, remains = decision.kernel_id, decision.remains
        if decision.fate is Fate.QUEUE_AGAIN:
            self._manager.begin(kernel_id, kernel, first=self._remains.clear(remains))
            self._log.info("kernel=%s queued_again owner=%s", kernel_id, heritage.owner)
            return
        assert remains.relay is not None  # the other actions need one
        await self._adopt(kernel, heritage, remains.relay, remains.process)
        if decision.fate is Fate.START_AGAIN:
            self._manager.begin(kernel_id, kernel)
            return
        if decision.fate is Fate.END and decision.asked is not None:
            self._do(self._manager.end_kernel(kernel_id, decision.asked), f"end-{kernel_id}")
            return
        self._ask_again(kernel, decision)
        if decision.record is None or decision.record.state is not KernelState.RUNNING:
            kernel.note(KernelState.RUNNING)
            # A relay binds the process that it started. It does not know the process in a
            # container.
            if kernel.grant is not None and remains.process is not None and remains.container is not None:
                self._do(self._bind(kernel.grant, remains.process), f"bind-{kernel_id}")

    def _ask_again(self, kernel: ManagedKernel, decision: Decision) -> None:
        """Queue the resize request that the kernel waited for, at its old place."""
        wish = None if decision.record is None else read_wish(decision.record.wish)
        if wish is not None and decision.fate is Fate.ADOPT:
            kernel.wish = wish
            self._do(self._resize(kernel.kernel_id, wish), f"resize-{kernel.kernel_id}")

    async def _resize(self, kernel_id: str, wish: SizeWish) -> None:
        try:
            await self._manager.resizes.resize(kernel_id, wish.request, wish.since)
        except AliquotError as error:
            self._manager.resizes.forget(kernel_id)
            self._log.info("kernel=%s resize=refused reason=%s", kernel_id, error)

    async def _adopt(
        self, kernel: ManagedKernel, heritage: Heritage, relay: RelayRecord, process: KernelProcess | None
    ) -> None:
        grant = None if heritage.grant is None else read_grant(heritage.grant)
        await kernel.adopt(relay, process, grant)
        if grant is not None:
            names = (heritage.owner, heritage.label, kernel.kernel_name)
            asker = Asker(kernel.kernel_id, *names, heritage.teams)
            self._admission.adopt(Holding(grant, asker, heritage.queued_at))
        if process is not None:
            self._manager.welcome(kernel)
            self._log.info("kernel=%s adopted pid=%d owner=%s", kernel.kernel_id, process.pid, heritage.owner)

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

    def _clear_away(self, decision: Decision, heritage: Heritage) -> None:
        kernel_id = decision.kernel_id
        # An earlier gateway may have recorded the reason already, and was killed before it removed
        # the kernel.
        if decision.ending is not None and self._endings.of(kernel_id) is None:
            said = (kernel_id, heritage.kernelspec, heritage.owner, heritage.label, decision.ending)
            self._endings.record(EndedKernel(*said, request=self._request(heritage)))
        self._do(self._forget(kernel_id, decision.remains), f"clear-{kernel_id}")

    async def _forget(self, kernel_id: str, remains: Remains) -> None:
        await self._remains.clear(remains)
        await asyncio.to_thread(self._records.remove, kernel_id)

    def _request(self, heritage: Heritage) -> Request | None:
        if heritage.grant is not None:
            return read_grant(heritage.grant).request
        specs = cast(KernelSpecManager, self._manager.kernel_spec_manager)
        try:
            return stanza_request(specs.get_kernel_spec(heritage.kernelspec).metadata)
        except (AliquotError, NoSuchKernel):
            return None

    def _do(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(self._logged(work, name), name=f"aliquot-adoption-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _logged(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except Exception:
            self._log.exception("adoption=%s failed", name)
