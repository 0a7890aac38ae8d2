"""One node whose agent dials in: its connection, and what was last known of it.

A node without a connection is unknown, not empty: its last status stays, and no part of the gateway
takes its kernels for ended. Each node has tasks and deadlines of its own, so a slow agent delays
no other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gateway.node.watcher import NodeWatch
from jupyter_aliquot.gpu_hook.client.client import AgentClient
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus
from jupyter_aliquot.gpu_hook.waiting import outlasting_task
from jupyter_aliquot.provisioner.errors import AgentUnavailableError
from jupyter_aliquot.provisioner.grants.agent_calls import answered

from .dialed_agent import DialedAgent

_CLIENT_NAME = "gateway"
_LEAST_SECONDS = 0.1
_NOT_CONNECTED = "its agent is not connected"
_LOST = f"The node agent does not answer: {_NOT_CONNECTED}."
NOT_YET = "its agent has not connected since this server started"


@dataclass(frozen=True)
class RemoteNodeView:
    """A node at one moment. ``status`` is the last that its agent told; None: nothing since the start.

    ``since``, in seconds since the epoch, is when it connected, or was lost.
    """

    name: str
    is_connected: bool = False
    message: str = ""
    since: float | None = None
    status: NodeStatus | None = None


class RemoteNode:
    """A node by its name.

    *seconds* is the time between two polls. *changed* is called with each new view.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        seconds: float,
        log: logging.Logger,
        changed: Callable[[], None],
        pod_of: Callable[[str], str] = lambda kernel_id: "",
    ) -> None:
        self._clock = clock
        self._log = log
        self._changed = changed
        self._view = RemoteNodeView(name, message=_unknown(NOT_YET))
        # A connection that the watch has not taken up.
        self._next: AgentClient | None = None
        self._lost = NOT_YET
        self._watch = NodeWatch(self._greet, clock, seconds, log, _LEAST_SECONDS)
        self._watch.listen(self._saw)
        # As admission asks it.
        self.agent = DialedAgent(name, clock, self._watch.poll, pod_of)
        self.instance = ""

    @property
    def view(self) -> RemoteNodeView:
        return self._view

    @property
    def problem(self) -> str:
        """Return why the agent was last not asked any more, also before its view tells it."""
        return " ".join(self._watch.view().problems)

    async def start(self) -> None:
        """Begin to poll. Called once, when the node becomes known."""
        await outlasting_task(self._watch.start(), "aliquot-node-start")

    async def stop(self) -> None:
        """Close the connection. Idempotent."""
        await self._watch.stop()
        await self._drop_next()

    async def attach(self, client: AgentClient, instance: str) -> None:
        """Take a new connection of the node's agent in place of the present one."""
        await self._drop_next()
        self._next, self.instance = client, instance
        await self._watch.reconnect()

    def _saw(self, view: NodeView) -> None:
        before, problems = self._view, " ".join(view.problems)
        if view.status is None:
            if _NOT_CONNECTED not in problems:
                self._lost = problems
            message = _unknown(self._lost)
            since = self._clock.wall() if before.is_connected else before.since
            self._view = replace(before, is_connected=False, message=message, since=since)
        else:
            since = before.since if before.is_connected else self._clock.wall()
            self._lost = _LOST
            self._view = RemoteNodeView(before.name, True, problems, since, view.status)
        if before.is_connected != self._view.is_connected:
            state = "connected" if self._view.is_connected else "unknown"
            self._log.info("node=%s name=%s reason=%r", state, before.name, self._view.message)
        self.agent.saw(view.status, self._lost)
        self._changed()

    async def _greet(self) -> AgentClient:
        """Return the connection that waits for its first use. Raises AliquotError."""
        client, self._next = self._next, None
        if client is None:
            raise AgentUnavailableError(_NOT_CONNECTED)
        try:
            await answered(client.hello(_CLIENT_NAME))
        except BaseException:
            await client.close()
            raise
        self.agent.connected(client)
        return client

    async def _drop_next(self) -> None:
        client, self._next = self._next, None
        if client is not None:
            await client.close()


def _unknown(why: str) -> str:
    return f"Unknown: {why}. Its kernels are taken to run on, and nothing is started there"
