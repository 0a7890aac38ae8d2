"""Requests to a node's agent for one kernel, in the ledger's types, over any connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from jupyter_aliquot.gateway.scheduling.ledger import Device, KernelRef, Leaving, Node
from jupyter_aliquot.gpu_hook.client.client import AgentClient, DeviceStatus, NodeStatus
from jupyter_aliquot.provisioner.errors import AgentProtocolError, AgentUnavailableError, GrantError
from jupyter_aliquot.provisioner.grants.agent_calls import answered
from jupyter_aliquot.provisioner.grants.codec import agent_grant
from jupyter_aliquot.provisioner.grants.reservation import Names, reserve_again
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Request

T = TypeVar("T")

# The states of a move of a kernel between devices, and how often the agent is asked for it.
_MOVING, _MOVED = "moving", "done"
_LOOK_SECONDS = 0.25
_MOST_LOOKS = 2400  # ten minutes: the agent gives a move up long before


class AgentCalls:
    """The calls over the connection that *connected* returns; it raises AgentUnavailableError without one.

    *uid_of* returns the account of a kernel's processes; None: any. *pod_of* returns a kernel's pod;
    empty where it has none.
    """

    def __init__(
        self,
        connected: Callable[[], AgentClient],
        uid_of: Callable[[KernelRef], int | None],
        pod_of: Callable[[str], str] = lambda kernel_id: "",
    ) -> None:
        self._connected = connected
        self._uid_of = uid_of
        self._pod_of = pod_of

    async def reserve(self, requester: KernelRef, request: Request, placement: Mapping[str, int]) -> Grant:
        """Reserve for a kernel without a grant. Raises AliquotError."""
        names = self._names(requester)
        reserved = self._connected().reserve(
            requester.kernel_id,
            owner=requester.owner,
            hundredths=request.gpus.hundredths,
            memory_limit=None if request.memory_limit is None else int(request.memory_limit),
            workload_class=request.workload_class.value,
            label=requester.label,
            placement=placement,
            attributes=names.attributes(),
            residency=request.residency or None,
            uid=names.uid,
        )
        return agent_grant(await self._answered(reserved))

    async def renew(self, requester: KernelRef, grant: Grant) -> Grant:
        """Hold a kernel's reservation again, in its present size. Raises AliquotError."""
        return await self._answered(reserve_again(self._connected(), grant, self._names(requester)))

    def _names(self, requester: KernelRef) -> Names:
        """Return a kernel's names; one of another program has the account that asked for it."""
        client = requester.account
        uid = self._uid_of(requester) if client is None else client
        return Names(requester.label, requester.kernelspec, uid, client, self._pod_of(requester.kernel_id))

    async def resize(self, kernel_id: str, request: Request) -> Grant:
        """Change a kernel's reservation on its devices.

        Raises AliquotError; NoRoomError if it cannot grow now.
        """
        resized = self._connected().resize(
            kernel_id,
            hundredths=request.gpus.hundredths,
            memory_limit=None if request.memory_limit is None else int(request.memory_limit),
            workload_class=request.workload_class.value,
        )
        return agent_grant(await self._answered(resized))

    async def swap_out(self, kernel_id: str) -> None:
        """Have its memory copied to the host.

        Raises AliquotError with the reason why it cannot leave.
        """
        await self._answered(self._connected().ask("swap_out", kernel_id=kernel_id))

    async def evict(self, kernel_id: str) -> None:
        """Have it swapped out, and its parts free for others, until it is readmitted.

        Raises AliquotError with the reason why it cannot leave.
        """
        await self._answered(self._connected().ask("evict", kernel_id=kernel_id))

    async def readmit(self, kernel_id: str) -> None:
        """Reserve an evicted kernel's parts again. Raises AliquotError; NoRoomError if they do not fit now."""
        await self._answered(self._connected().ask("readmit", kernel_id=kernel_id))

    async def vacate(self, devices: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """Have the contexts of evicted kernels leave these devices, too, instead of those of the last call.

        Returns by device the kernels that are there, each with why its contexts stay; empty: they may
        still leave. Raises AliquotError.
        """
        answer = await self._answered(self._connected().ask("vacate", devices=sorted(devices)))
        told = answer.get("devices")
        if not isinstance(told, Mapping) or not all(isinstance(one, Mapping) for one in told.values()):
            raise AgentProtocolError(f"The agent told {str(told)[:60]!r} for the kernels on devices")
        return {str(uuid): {str(one): str(why) for one, why in kernels.items()} for uuid, kernels in told.items()}

    async def relocate(self, requester: KernelRef, grant: Grant, device: str) -> Grant:
        """Have a kernel move to another device of its node, and return its grant there when it has.

        A connection that is lost meanwhile ends nothing: the next one tells the outcome. Raises
        AliquotError with the reason why the kernel stays where it is.
        """
        asked = {"kernel_id": grant.kernel_id, "device": device}
        await self._answered(self._connected().ask("move", **asked))
        state, reason = _MOVING, ""
        for _ in range(_MOST_LOOKS):
            await asyncio.sleep(_LOOK_SECONDS)
            with contextlib.suppress(AgentUnavailableError):
                answer = await self._answered(self._connected().ask("moved", **asked))
                state, reason = str(answer.get("state")), str(answer.get("reason") or "")
            if state != _MOVING:
                break
        if state == _MOVED:
            return await self.renew(requester, grant)
        raise GrantError(reason or "the node agent has not told its outcome; see where the kernel is")

    async def interrupt(self, kernel_id: str) -> None:
        """Report an interrupt that the kernel was sent: its processes give up their waits.

        Raises AliquotError.
        """
        await self._answered(self._connected().ask("interrupt", kernel_id=kernel_id))

    async def wake(self, kernel_id: str) -> None:
        """Have its memory restored as soon as there is capacity. Raises AliquotError."""
        await self._answered(self._connected().ask("wake", kernel_id=kernel_id))

    async def hint(self, kernel_id: str) -> None:
        """Report that it will be used soon. Raises AliquotError."""
        await self._answered(self._connected().ask("hint", kernel_id=kernel_id))

    async def release(self, kernel_id: str) -> None:
        """End a reservation; a missing one is no error. Raises AliquotError."""
        await self._answered(self._connected().release(kernel_id))

    async def _answered(self, question: Awaitable[T]) -> T:
        """Wait for an answer.

        An agent that does not answer in time is lost, and the connection is made again.
        """
        client = self._connected()
        try:
            return await answered(question)
        except AgentUnavailableError as error:
            await client.close(str(error))
            raise


def read_device(device: DeviceStatus) -> Device:
    """Return a device of the agent's status in the ledger's types."""
    own = device.reserved_by_production
    return Device(
        uuid=device.uuid,
        index=device.index,
        name=device.name,
        memory=Bytes(device.memory_bytes),
        reserved=GpuShare(device.reserved_hundredths),
        reserved_memory=Bytes(device.reserved_bytes),
        is_lost=device.lost,
        by_production=None if own is None else (GpuShare(own.hundredths), Bytes(own.bytes)),
        kept_memory=Bytes(device.reserved_kept_bytes),
        kernels=device.reserved_kernels,
        context=Bytes(device.context_bytes),
        domain=device.domain,
    )


def read_node(status: NodeStatus, read: Callable[[DeviceStatus], Device] = read_device) -> Node:
    """Return the agent's status in the ledger's types."""
    devices = tuple(read(device) for device in status.devices)
    rule = status.oversubscription_rule
    evicted = None if status.evicted is None else frozenset(status.evicted)
    ending = frozenset(status.ending_kernels)
    leaving = None
    if status.leaving is not None:
        leaving = {
            one.kernel_id: Leaving(one.seconds, one.is_moving, one.stays_because, one.refusal) for one in status.leaving
        }
    moved = {one.kernel_id: one.device for one in status.moved}
    facts = (status.node, status.driver, devices, rule.rule(), rule.largest_kernel_bytes)
    return Node(*facts, evicted, ending, leaving=leaving, moved=moved)
