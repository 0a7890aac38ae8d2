"""The gateway's one connection to the node agent.

It is made again when it is lost, and speaks in the ledger's types.

It decides nothing. Admission reads ``connections`` to see that the agent came back, and renews its
grants.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.scheduling.ledger import Device, KernelRef, Node
from jupyter_aliquot.gpu_hook.base.pacing import Backoff
from jupyter_aliquot.gpu_hook.client.client import AgentClient, AgentClientError, DeviceStatus
from jupyter_aliquot.gpu_hook.waiting import end_task
from jupyter_aliquot.provisioner.errors import AgentUnavailableError, AliquotError
from jupyter_aliquot.provisioner.grants.agent_calls import meet

from .agent_calls import AgentCalls, read_device, read_node

_CLIENT_NAME = "gateway"
_FIRST_RETRY_SECONDS = 0.2
_LAST_RETRY_SECONDS = 5.0

StartAgent = Callable[[], Awaitable[None]]


class AgentLink(AgentCalls):
    """Admission's view of the agent.

    *start_agent* starts one where none runs; None where a service does that.

    *differs* returns a sentence for each option of an agent that differs from this server's
    request. *uid_of* returns the account of a kernel's processes; None: any.
    """

    def __init__(
        self,
        runtime_dir: Path,
        clock: Clock,
        start_agent: StartAgent | None,
        log: logging.Logger,
        differs: Callable[[Mapping[str, str]], tuple[str, ...]] = lambda options: (),
        uid_of: Callable[[KernelRef], int | None] = lambda requester: None,
    ) -> None:
        self._runtime_dir = runtime_dir
        self._clock = clock
        self._start_agent = start_agent
        self._log = log
        self._differs = differs
        super().__init__(self._open, uid_of)
        # A sentence for each option of the running agent that differs from this server's request.
        self.differences: tuple[str, ...] = ()
        self._client: AgentClient | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[], None]] = []
        # The devices of the last status, in the ledger's types: an unchanged one is not read again.
        self._devices: dict[str, tuple[DeviceStatus, Device]] = {}
        # The number of connections so far. A new number means that reservations must be renewed.
        self.connections = 0
        self.unavailable_since: float | None = clock.now()
        self.message = "not connected yet"

    async def start(self) -> None:
        """Connect; in the background if that takes long."""
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(), name="aliquot-agent-link")

    async def stop(self) -> None:
        """Close the connection.

        The agent releases the reservations that it alone held. Idempotent.
        """
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await end_task(keeper)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call *listener* whenever capacity may have returned, or the agent goes or comes."""
        self._listeners.append(listener)

    async def status(self) -> Node:
        """Return the node as the agent sees it now. Raises AliquotError."""
        return read_node(await self._answered(self._open().status(kernels=False)), self._device)

    def _device(self, device: DeviceStatus) -> Device:
        said, known = self._devices.get(device.uuid, (None, None))
        if known is None or said is not device:
            known = read_device(device)
            self._devices[device.uuid] = device, known
        return known

    def _open(self) -> AgentClient:
        if self._client is None:
            raise AgentUnavailableError(self.message)
        return self._client

    async def _keep(self) -> None:
        waits = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS)
        while True:
            try:
                client = await self._connect()
            except AliquotError as error:
                self._set_lost(str(error))
                await self._clock.sleep(waits.next_seconds())
                continue
            except Exception as error:
                # start_agent may fail in any way. Without this loop no agent would ever be found
                # again.
                self._log.exception("agent=not_started")
                self._set_lost(f"it could not be started: {error}")
                await self._clock.sleep(_LAST_RETRY_SECONDS)
                continue
            waits.reset()
            try:
                await self._serve(client)
            finally:
                self._client = None
                await client.close()

    async def _connect(self) -> AgentClient:
        """Connect, starting an agent if none answers. Raises AliquotError."""
        try:
            client, hello = await meet(self._runtime_dir, _CLIENT_NAME)
        except AgentUnavailableError:
            if self._start_agent is None:
                raise
            await self._start_agent()
            client, hello = await meet(self._runtime_dir, _CLIENT_NAME)
        before, self.differences = self.differences, self._differs(hello.options)
        for difference in self.differences:
            if difference not in before:
                self._log.warning("agent=differs %s", difference)
        return client

    async def _serve(self, client: AgentClient) -> None:
        """Pass the agent's events on until the connection is lost."""
        self._client = client
        self.connections += 1
        self.unavailable_since = None
        self.message = ""
        self._log.info("agent=connected runtime_dir=%s connections=%d", self._runtime_dir, self.connections)
        self._tell()
        lost = "it closed the connection"
        try:
            async for _ in client.subscribe():
                self._tell()
        except AgentClientError as error:
            lost = str(error)
        self._client = None
        self._set_lost(client.close_reason or lost)

    def _set_lost(self, reason: str) -> None:
        if self.unavailable_since is None:
            self.unavailable_since = self._clock.now()
        if reason != self.message:
            self._log.warning("agent=unavailable reason=%s", reason)
        self.message = reason
        self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()
