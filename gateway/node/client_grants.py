"""The grants of other programs' kernels, each with the task that keeps it.

A connection keeps its grant; when it closes, the kernel's process does. Its account may take the
grant up again, and the next gateway finds it at the node agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from jupyter_aliquot.gateway.scheduling.ledger import Holding, KernelRef
from jupyter_aliquot.gateway.scheduling.resize import quotas_of
from jupyter_aliquot.gpu_hook.client.reports import KernelStatus, NodeStatus
from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.gpu_hook.waiting import end_task
from jupyter_aliquot.provisioner.errors import GrantLostError
from jupyter_aliquot.provisioner.grants.reservation import CLIENT_ATTRIBUTE
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, KernelProcess, Request, WorkloadClass

from .callers import Caller

# A client notices a lost connection at once and asks again within 5 s; it may also be stopped by Ctrl-Z.
_CLAIM_SECONDS = 60.0


@dataclass
class ClientGrant:
    """One grant. ``keeper`` releases it when it ends; None for a grant that nothing keeps yet."""

    requester: KernelRef
    uid: int
    process: KernelProcess | None = None
    keeper: asyncio.Task[None] | None = None
    unclaimed_since: float = 0.0


class ClientGrants:
    """The grants by kernel id. Written by the gateway's local socket alone."""

    def __init__(self) -> None:
        self._grants: dict[str, ClientGrant] = {}

    def add(self, requester: KernelRef, caller: Caller) -> ClientGrant:
        """Enter a new grant, which the running task keeps."""
        made = ClientGrant(requester, caller.uid, keeper=asyncio.current_task())
        self._grants[requester.kernel_id] = made
        return made

    async def take_up(self, kernel_id: str, caller: Caller) -> ClientGrant:
        """Make the running task the keeper of a grant of this account. Raises GrantLostError."""
        found = self._grants.get(kernel_id)
        if found is None or (found.uid, found.requester.owner) != (caller.uid, caller.user):
            raise GrantLostError(
                f"Requested to keep the GPU of kernel {kernel_id}, but it holds none that was granted to "
                f"{caller.user!r}. Start the kernel again"
            )
        before, found.keeper = found.keeper, asyncio.current_task()
        if before is not None and before is not found.keeper:
            await end_task(before)
        return found

    def forget(self, grant: ClientGrant) -> bool:
        """Remove a grant that is released; return whether it was there."""
        is_there = self._grants.get(grant.requester.kernel_id) is grant
        if is_there:
            del self._grants[grant.requester.kernel_id]
        return is_there

    def adopt(self, requester: KernelRef, uid: int, now: float) -> None:
        """Enter a grant of the last gateway, which waits for its client."""
        self._grants[requester.kernel_id] = ClientGrant(requester, uid, unclaimed_since=now)

    def abandoned(self, status: NodeStatus, now: float) -> list[ClientGrant]:
        """Return the grants that no client took up again, and whose kernels have no process."""
        living = {kernel.kernel_id for kernel in status.kernels if kernel.pids and not kernel.ending}
        return [
            one
            for one in self._grants.values()
            if (one.keeper is None or one.keeper.done())
            and now - one.unclaimed_since > _CLAIM_SECONDS
            and one.requester.kernel_id not in living
        ]

    def __contains__(self, kernel_id: str) -> bool:
        return kernel_id in self._grants


def client_of(kernel: KernelStatus) -> int | None:
    """Return the account whose client has this grant; None for the gateway's own kernels."""
    told = dict(kernel.attributes).get(CLIENT_ATTRIBUTE, "")
    return int(told) if told.isascii() and told.isdecimal() else None


def holding_of(kernel: KernelStatus, requester: KernelRef, node: str, runtime: RuntimeDir) -> Holding:
    """Return the agent's record of a kernel as a holding, which admission renews."""
    quotas = quotas_of(kernel)
    limit = None if kernel.memory_limit is None else Bytes(kernel.memory_limit)
    request = Request(GpuShare(kernel.hundredths), limit, WorkloadClass(kernel.workload_class))
    folder = str(runtime.kernel(kernel.kernel_id))
    grant = Grant(kernel.kernel_id, kernel.owner, request, node, quotas, folder, (), kernel.generation)
    return Holding(grant, requester, kernel.created, is_confirmed=False)


def requester_of(kernel: KernelStatus, uid: int, teams: frozenset[str]) -> KernelRef:
    """Return the requester of a grant of the last gateway."""
    attributes: Mapping[str, str] = dict(kernel.attributes)
    return KernelRef(kernel.kernel_id, kernel.owner, kernel.label, attributes.get("kernelspec", ""), teams, account=uid)
