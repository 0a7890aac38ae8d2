"""The nodes on which this gateway's runtime starts kernels, and the agent of each kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from jupyter_aliquot.gateway.scheduling.agents.lanes import RemoteAgent
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef, LedgerSnapshot
from jupyter_aliquot.provisioner.errors import GrantError
from jupyter_aliquot.provisioner.resources import Grant, Request

from .registry import RemoteNodes


class ServedNodes:
    """Those of the nodes that dial in that *serves* takes, by name; admission places kernels there."""

    def __init__(self, nodes: RemoteNodes, serves: Callable[[str], bool]) -> None:
        self._nodes = nodes
        self._serves = serves
        self._agents: dict[str, RemoteAgent] = {}
        self._names: tuple[str, ...] = ()
        self._listeners: list[Callable[[], None]] = []
        nodes.listen(self._see)

    def agents(self) -> Mapping[str, RemoteAgent]:
        """Return them by name."""
        return self._agents

    def listen(self, listener: Callable[[], None]) -> None:
        """Call *listener* when a node's capacity has changed, and when one comes or goes."""
        self._listeners.append(listener)

    def _see(self) -> None:
        names = tuple(name for name in self._nodes.names if self._serves(name))
        if names == self._names:
            return
        known, self._names = self._agents, names
        self._agents = {}
        for name in names:
            agent = self._nodes.agent(name)
            self._agents[name] = agent
            if known.get(name) is not agent:
                agent.listen(self._tell)
        self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


class KernelAgent(Protocol):
    """The part of an agent that serves one kernel's owner. All raise AliquotError."""

    async def resize(self, kernel_id: str, request: Request) -> Grant: ...

    async def swap_out(self, kernel_id: str) -> None: ...

    async def wake(self, kernel_id: str) -> None: ...

    async def hint(self, kernel_id: str) -> None: ...

    async def interrupt(self, kernel_id: str) -> None: ...

    async def relocate(self, requester: KernelRef, grant: Grant, device: str) -> Grant: ...


class AgentsOfKernels:
    """Passes each request on to the agent of the kernel's node: *own* for kernels of no other."""

    def __init__(self, own: KernelAgent, nodes: RemoteNodes, ledger: Callable[[], LedgerSnapshot]) -> None:
        self._own = own
        self._nodes = nodes
        self._ledger = ledger

    def of(self, kernel_id: str) -> KernelAgent:
        """Return the agent of a kernel."""
        known = self._ledger()
        holding = known.holdings.get(kernel_id)
        is_elsewhere = holding is not None and holding.grant.node in {one.name for one in known.others}
        return self._nodes.agent(holding.grant.node) if holding is not None and is_elsewhere else self._own

    async def resize(self, kernel_id: str, request: Request) -> Grant:
        return await self.of(kernel_id).resize(kernel_id, request)

    async def swap_out(self, kernel_id: str) -> None:
        await self.of(kernel_id).swap_out(kernel_id)

    async def wake(self, kernel_id: str) -> None:
        await self.of(kernel_id).wake(kernel_id)

    async def hint(self, kernel_id: str) -> None:
        await self.of(kernel_id).hint(kernel_id)

    async def relocate(self, kernel_id: str, device: str) -> Grant:
        """Have a kernel move to another device of its node, and return its grant there."""
        holding = self._ledger().holdings.get(kernel_id)
        if holding is None:
            raise GrantError(f"Kernel {kernel_id} has ended")
        return await self.of(kernel_id).relocate(holding.requester, holding.grant, device)

    async def interrupt(self, kernel_id: str) -> None:
        await self.of(kernel_id).interrupt(kernel_id)
