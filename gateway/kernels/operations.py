"""Requests of a kernel's owner while it runs: another size or class, and a place for its memory.

The handlers have checked that the user may make the request. This module checks what the server can
know. Admission and the node agent decide.
"""

from __future__ import annotations

from typing import Protocol

from jupyter_aliquot.gateway.auth.class_policy import ClassPolicy
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.base.fields import Entry
from jupyter_aliquot.gateway.node.watcher import NodeWatch
from jupyter_aliquot.gateway.scheduling.admission import Admission
from jupyter_aliquot.gateway.scheduling.queue import QueueEntry
from jupyter_aliquot.gateway.scheduling.resize import ResizeRequest, no_gpu
from jupyter_aliquot.gpu_hook.base.pacing import Throttle
from jupyter_aliquot.gpu_hook.client.reports import KernelStatus
from jupyter_aliquot.provisioner.errors import RequestError
from jupyter_aliquot.provisioner.grants.codec import read_request
from jupyter_aliquot.provisioner.resources import GpuShare, Grant, Request, WorkloadClass

from .handover import Handover
from .resize import ResizeTracker

# A hint that follows another so soon carries nothing new.
_HINT_SECONDS = 1.0


class LocalKernels(Protocol):
    """The kernel manager of a server that starts kernels itself."""

    handover: Handover
    resizes: ResizeTracker

    def __contains__(self, kernel_id: str, /) -> bool: ...


class ResidencyAgent(Protocol):
    """The part of the agent's link that moves memory. All raise AliquotError."""

    async def resize(self, kernel_id: str, request: Request) -> Grant: ...

    async def swap_out(self, kernel_id: str) -> None: ...

    async def wake(self, kernel_id: str) -> None: ...

    async def hint(self, kernel_id: str) -> None: ...


def read_resize_request(
    body: object, largest: GpuShare, where: str = "the body", here: GpuShare | None = None
) -> ResizeRequest:
    """Read a request's body, ``{gpus, memory, priority}``.

    *here* is the largest share of this node, for the message.

    Raises RequestError.
    """
    entry = Entry(where, body)
    share = entry.number("gpus")
    change = ResizeRequest(
        gpus=None if share is None else _share(share, largest, here or largest),
        memory_limit=entry.amount("memory"),
        workload_class=_priority(entry),
    )
    entry.finish()
    if change == ResizeRequest():
        raise RequestError("The request changes nothing. Write one or more of gpus, memory and priority.")
    return change


def _share(gpus: float, largest: GpuShare, here: GpuShare) -> GpuShare:
    share = GpuShare(round(min(gpus, largest.hundredths + 1) * 100))  # no float holds 100 times the largest ones
    if share.hundredths > largest.hundredths or share.hundredths < 1 or abs(gpus * 100 - share.hundredths) > 1e-6:
        told = f"Requested {str(gpus)[:20]} GPUs, but sizes here go from 0.01 to {here} in steps of 0.01"
        raise RequestError(f"{told}. Choose one of these")
    return share


def _priority(entry: Entry) -> WorkloadClass | None:
    asked = entry.text("priority", "")
    try:
        return WorkloadClass.of_priority(asked) if asked else None
    except ValueError:
        raise entry.refused("priority", asked, " or ".join(one.priority for one in WorkloadClass)) from None


class KernelChanges:
    """The changes that users request of running kernels.

    Made by the extension; handlers find it in Sources.
    """

    def __init__(
        self,
        admission: Admission,
        agent: ResidencyAgent,
        manager: LocalKernels | None,
        policy: ClassPolicy,
        watch: NodeWatch,
        clock: Clock,
    ) -> None:
        self._admission = admission
        self._agent = agent
        self._manager = manager
        self._policy = policy
        self._watch = watch
        self._clock = clock
        self._hints = Throttle(_HINT_SECONDS)

    async def resize(self, requester: User, kernel_id: str, change: ResizeRequest) -> Grant | QueueEntry:
        """Return the new grant or, while there is no capacity, the place in the queue.

        Raises AliquotError.
        """
        held = self._admission.snapshot().ledger.holdings.get(kernel_id)
        before = held.grant.request if held is not None else self._request_elsewhere(kernel_id)
        if before is None:
            raise no_gpu(kernel_id)
        request = change.applied_to(before)
        self._policy.check(requester, request, before.workload_class)
        if held is None:
            # Another program asked the agent for it, and no request for it is in this queue.
            done: Grant | QueueEntry = await self._agent.resize(kernel_id, request)
        elif self._manager is not None and kernel_id in self._manager:
            done = await self._manager.resizes.resize(kernel_id, request)
            await self._manager.handover.noted(kernel_id)
        else:
            done = await self._admission.resize(kernel_id, request)
        await self._watch.poll()
        return done

    async def withdraw_resize(self, kernel_id: str) -> bool:
        """Give up a change of size that waits for capacity. Return whether one did."""
        withdrawn = await self._admission.withdraw_resize(kernel_id)
        if self._manager is not None:
            self._manager.resizes.forget(kernel_id)
            await self._manager.handover.noted(kernel_id)
        return withdrawn

    async def swap_out(self, kernel_id: str) -> None:
        """Request that its memory leave its devices.

        Raises AliquotError with the reason why it cannot.
        """
        self._check_gpu(kernel_id)
        await self._agent.swap_out(kernel_id)
        await self._watch.poll()

    async def wake(self, kernel_id: str) -> None:
        """Request that its memory come back. Raises AliquotError."""
        self._check_gpu(kernel_id)
        await self._agent.wake(kernel_id)
        await self._watch.poll()

    async def hint(self, kernel_id: str) -> None:
        """Prepare for a user who is about to use it.

        The agent hears one of several hints within a second.

        Raises AliquotError.
        """
        self._check_gpu(kernel_id)
        if self._hints.passes(kernel_id, self._clock.now()):
            await self._agent.hint(kernel_id)

    def _check_gpu(self, kernel_id: str) -> None:
        if kernel_id not in self._admission.snapshot().ledger.holdings and self._known(kernel_id) is None:
            raise no_gpu(kernel_id)

    def _request_elsewhere(self, kernel_id: str) -> Request | None:
        known = self._known(kernel_id)
        if known is None:
            return None
        record = {"hundredths": known.hundredths, "memory_limit": known.memory_limit}
        return read_request({**record, "workload_class": known.workload_class})

    def _known(self, kernel_id: str) -> KernelStatus | None:
        status = self._watch.view().status
        return next((kernel for kernel in status.kernels if kernel.kernel_id == kernel_id), None) if status else None
