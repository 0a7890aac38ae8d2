"""The agent of a node that dials in, as admission asks it: by the node's present connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.node.agent_calls import AgentCalls, read_node
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef, Node
from jupyter_aliquot.gpu_hook.client.client import AgentClient
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus
from jupyter_aliquot.provisioner.errors import AgentUnavailableError
from jupyter_aliquot.provisioner.resources import Grant, Request


class DialedAgent(AgentCalls):
    """One node's agent. Its grants have the name by which it registered.

    ``last`` is its last answer; None: none since the start. *poll* asks for its status now.
    """

    def __init__(
        self, name: str, clock: Clock, poll: Callable[[], Awaitable[None]], pod_of: Callable[[str], str]
    ) -> None:
        super().__init__(self._open, lambda requester: requester.account, pod_of)
        self.name = name
        self.last: Node | None = None
        # The number of connections so far. A new number means that reservations must be renewed.
        self.connections = 0
        self.unavailable_since: float | None = clock.now()
        self.message = "it is not connected"
        self._clock = clock
        self._poll = poll
        self._client: AgentClient | None = None
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call *listener* when its capacity has changed, and when it comes or goes."""
        self._listeners.append(listener)

    def connected(self, client: AgentClient) -> None:
        """Take a connection that has answered."""
        self._client = client
        self.connections += 1

    def saw(self, status: NodeStatus | None, message: str) -> None:
        """Take the node's new status; None: it is unknown now, and keeps what it told last."""
        before, was_away = self.last, self.unavailable_since
        if status is not None:
            self.last = replace(read_node(status), name=self.name)
            self.unavailable_since, self.message = None, ""
        else:
            if self.unavailable_since is None:
                self.unavailable_since = self._clock.now()
            self.message = message
            if self.last is not None and not self.last.is_away:
                self.last = replace(self.last, is_away=True)
        if self.last != before or (was_away is None) != (self.unavailable_since is None):
            for listener in self._listeners:
                listener()

    async def status(self) -> Node:
        """Return the node as its agent sees it now. Raises AgentUnavailableError."""
        await self.refresh()
        assert self.last is not None  # refresh raises otherwise
        return self.last

    async def refresh(self) -> None:
        """Have ``last`` tell of all that was answered before. Raises AgentUnavailableError."""
        await self._poll()
        if self.unavailable_since is not None:
            raise AgentUnavailableError(self.message)

    async def reserve(self, requester: KernelRef, request: Request, placement: Mapping[str, int]) -> Grant:
        return self._here(await super().reserve(requester, request, placement))

    async def renew(self, requester: KernelRef, grant: Grant) -> Grant:
        return self._here(await super().renew(requester, grant))

    async def resize(self, kernel_id: str, request: Request) -> Grant:
        return self._here(await super().resize(kernel_id, request))

    def _here(self, grant: Grant) -> Grant:
        return replace(grant, node=self.name)

    def _open(self) -> AgentClient:
        client = self._client
        if client is None or not client.is_connected:
            raise AgentUnavailableError(self.message or "it is not connected")
        return client
