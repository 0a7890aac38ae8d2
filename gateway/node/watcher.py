"""The agent's last report on devices and kernels, for all readers.

It never starts an agent, and never reserves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gpu_hook.client.client import AgentClient, AgentClientError, AgentRefused
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus
from jupyter_aliquot.gpu_hook.waiting import end_task
from jupyter_aliquot.provisioner.errors import AliquotError
from jupyter_aliquot.provisioner.grants.agent_calls import answered

from .view import NodeView, lacked_bytes

_MOST_LACKS = 1024
# Requests take a quarter of the time at most, however often something changes.
_RESTS = 3


class NodeWatch:
    """A poll of the node's status, every `seconds` and as soon as the agent reports a change.

    It has a connection of its own, which *greet* makes; it raises AliquotError. An older agent
    reports no changes; the next poll finds them. *least_seconds* pass between two polls, however often
    the agent reports changes.
    """

    def __init__(
        self,
        greet: Callable[[], Awaitable[AgentClient]],
        clock: Clock,
        seconds: float,
        log: logging.Logger,
        least_seconds: float = 0.0,
    ) -> None:
        self._greet = greet
        self._clock = clock
        self._seconds = seconds
        self._least_seconds = least_seconds
        self._log = log
        self._view = NodeView(problems=("The node agent has not been asked yet.",))
        self._client: AgentClient | None = None
        self._task: asyncio.Task[None] | None = None
        self._hearing: asyncio.Task[None] | None = None
        self._lacked: dict[str, int] = {}
        self._hurry = asyncio.Event()
        self._asking = asyncio.Lock()
        self._listeners: list[Callable[[NodeView], None]] = []

    def listen(self, listener: Callable[[NodeView], None]) -> None:
        """Call *listener* with each new view."""
        self._listeners.append(listener)

    def view(self) -> NodeView:
        """Return the agent's last status, or why it does not answer."""
        return self._view

    def count_devices(self) -> int:
        """Return how many GPUs can be used; 0 while no agent answers."""
        status = self._view.status
        return 0 if status is None else sum(not device.lost for device in status.devices)

    def lacked_bytes(self, kernel_id: str) -> int | None:
        """Return the memory limit that would have been enough for a kernel, as it was last seen.

        None if its own was. This holds for a kernel, too, that the agent has forgotten by now.
        """
        return self._lacked.get(kernel_id)

    def refresh(self) -> None:
        """Poll at once: something changed."""
        self._hurry.set()

    async def poll(self) -> None:
        """Poll now, and return when the agent has answered, so that a change just made is seen."""
        async with self._asking:
            await self._poll()

    async def reconnect(self) -> None:
        """Close the connection, and poll on a new one as soon as possible."""
        await self._disconnect()
        self.refresh()

    async def start(self) -> None:
        """Poll once, then go on in the background."""
        if self._task is None:
            await self.poll()
            self._task = asyncio.create_task(self._run(), name="aliquot-node-watch")

    async def stop(self) -> None:
        """Close the connection. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            await end_task(task)
        await self._disconnect()

    async def _run(self) -> None:
        while True:
            await self._wait()
            try:
                began = self._clock.now()
                await self.poll()
                if self._view.status is not None:  # an agent that does not answer has no work by it
                    await self._clock.sleep(max(self._least_seconds, _RESTS * (self._clock.now() - began)))
            except Exception:
                self._log.exception("node_watch=failed; it goes on")

    async def _wait(self) -> None:
        timer = asyncio.ensure_future(self._clock.sleep(self._seconds))
        hurry = asyncio.ensure_future(self._hurry.wait())
        try:
            await asyncio.wait({timer, hurry}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            hurry.cancel()
        self._hurry.clear()

    async def _poll(self) -> None:
        try:
            if self._client is None:
                self._client = await self._greet()
                self._hearing = asyncio.create_task(self._hear(self._client), name="aliquot-node-news")
            before = self._view.status
            status = await answered(self._client.status())
            told = (status.hook_problem, status.host_memory_problem)
            self._view = NodeView(status, tuple(f"{problem}." for problem in told if problem))
            self._note_lacks(before)
        except AliquotError as error:
            self._view = NodeView(problems=(f"The node agent does not answer: {error}.",))
            await self._disconnect()
        except Exception as error:  # a report that no reader foresaw: it is told like others
            self._log.exception("node_watch=failed; it goes on")
            self._view = NodeView(problems=(f"The node agent's report cannot be used: {error!r:.200}.",))
            await self._disconnect()
        for listener in tuple(self._listeners):
            listener(self._view)
            # A listener may look at a thousand kernels. Other tasks run between two listeners.
            await asyncio.sleep(0)

    def _note_lacks(self, before: NodeStatus | None) -> None:
        same = {id(kernel) for kernel in before.kernels} if before else set()
        for kernel in self._view.status.kernels if self._view.status else ():
            if id(kernel) in same:
                continue
            self._lacked.pop(kernel.kernel_id, None)
            lacked = lacked_bytes(kernel)
            if lacked is not None:
                self._lacked[kernel.kernel_id] = lacked
        while len(self._lacked) > _MOST_LACKS:
            del self._lacked[next(iter(self._lacked))]  # the least recently seen

    async def _hear(self, client: AgentClient) -> None:
        try:
            async for _ in client.watch_node():
                self._hurry.set()
        except AgentRefused as error:
            self._log.info("node_watch=polls seconds=%g reason=%s", self._seconds, error)
        except AgentClientError:
            self._hurry.set()  # it is lost: the next poll reports it

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        hearing, self._hearing = self._hearing, None
        if hearing is not None:
            await end_task(hearing)
        if client is not None:
            await client.close()
