"""The nodes on other machines, by name, and the registration of their agents."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gpu_hook.agent.dialing.settings import NODE_NAME
from jupyter_aliquot.gpu_hook.client.client import AgentClient
from jupyter_aliquot.gpu_hook.waiting import outlasting
from jupyter_aliquot.provisioner.errors import AliquotError, LimitError, RequestError

from .remembered import RememberedNodes
from .remote_node import RemoteNode, RemoteNodeView
from .tokens import TokenRefusedError

REGISTER_VERSION = 1
LONGEST_FRAME = 64 << 20
_MOST_NODES = 4096
_LONGEST_INSTANCE = 64


class NodeConflictError(AliquotError):
    """Another agent has this node's name."""


@dataclass(frozen=True)
class Registration:
    """The first frame of an agent."""

    node: str
    instance: str


@dataclass(frozen=True)
class Pipe:
    """The handler's end of a registered connection: lines to the gateway's client, and from it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class RemoteNodes:
    """All nodes that registered, or did so before the last restart.

    *local_name* returns the name of the node that the gateway reaches by its own socket.
    """

    def __init__(
        self,
        remembered: RememberedNodes,
        clock: Clock,
        seconds: float,
        log: logging.Logger,
        local_name: Callable[[], str],
    ) -> None:
        self._remembered = remembered
        self._clock = clock
        self._seconds = seconds
        self._log = log
        self._local_name = local_name
        self._nodes: dict[str, RemoteNode] = {}
        self._seen: dict[str, float] = {}
        self._listeners: list[Callable[[], None]] = []
        self._is_stopped = False

    def listen(self, listener: Callable[[], None]) -> None:
        """Call *listener* with each new view of a node."""
        self._listeners.append(listener)

    def views(self) -> tuple[RemoteNodeView, ...]:
        """Return all nodes, by name."""
        return tuple(self._nodes[name].view for name in sorted(self._nodes))

    async def start(self) -> None:
        """List the nodes of the last run as unknown."""
        self._seen = await asyncio.to_thread(self._remembered.read, self._clock.wall())
        for name in self._seen:
            await self._known(name)

    async def stop(self) -> None:
        """Close all connections. Idempotent."""
        self._is_stopped = True
        now = self._clock.wall()
        self._seen.update({view.name: now for view in self.views() if view.is_connected})
        await asyncio.to_thread(self._remembered.write, dict(self._seen))
        await asyncio.gather(*(node.stop() for node in self._nodes.values()))

    async def register(self, asked: Registration, allowed: frozenset[str] | None) -> Pipe:
        """Take an agent's connection, and return the handler's end of it.

        Args:
            asked: The first frame.
            allowed: The nodes that its token may register; None for any.

        Raises AliquotError.
        """
        self._check(asked, allowed)
        node = await self._known(asked.node)
        ours, theirs = socket.socketpair()
        client, pipe = await outlasting(lambda: asyncio.gather(_client(ours, asked.node), _pipe(theirs)))
        await node.attach(client, asked.instance)
        self._seen[asked.node] = self._clock.wall()
        await asyncio.to_thread(self._remembered.write, dict(self._seen))
        return pipe

    def _check(self, asked: Registration, allowed: frozenset[str] | None) -> None:
        name = asked.node
        if self._is_stopped:
            raise LimitError("Requested a connection, but the gateway is stopping. Try again when it has started")
        if allowed is not None and name not in allowed:
            raise TokenRefusedError(f"Requested to register the node {name!r}, but the token is another node's")
        if name == self._local_name():
            raise NodeConflictError(
                f"Requested to register the node {name!r}, but that is the gateway's own machine. Give the agent "
                "another name (--node)"
            )
        known = self._nodes.get(name)
        if known is not None and known.view.is_connected and known.instance != asked.instance:
            raise NodeConflictError(
                f"Requested to register the node {name!r}, but another agent is connected by that name. Give each "
                "agent a name of its own (--node)"
            )
        if known is None and len(self._nodes) >= _MOST_NODES:
            raise LimitError(f"Requested to register the node {name!r}, but this gateway has {_MOST_NODES} already")

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    async def _known(self, name: str) -> RemoteNode:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = RemoteNode(name, self._clock, self._seconds, self._log, self._tell)
            await node.start()
        return node


def read_registration(message: object) -> Registration:
    """Read the first frame. Raises RequestError."""
    if not isinstance(message, Mapping) or message.get("op") != "register":
        raise RequestError("The first frame has to register a node (op 'register')")
    version, name = message.get("version"), message.get("node")
    if version != REGISTER_VERSION:
        raise RequestError(
            f"The agent registers by version {version!r:.20}, but this gateway speaks version {REGISTER_VERSION}. "
            "Install the same version of Aliquot on both machines"
        )
    if not isinstance(name, str) or not NODE_NAME.fullmatch(name):
        raise RequestError(f"The node's name {name!r:.80} is not valid. Use letters, digits, '-', '_' and '.'")
    return Registration(name, str(message.get("instance", ""))[:_LONGEST_INSTANCE])


async def _client(end: socket.socket, name: str) -> AgentClient:
    reader, writer = await asyncio.open_unix_connection(sock=end, limit=LONGEST_FRAME)
    return AgentClient(reader, writer, Path(f"the node {name}"))


async def _pipe(end: socket.socket) -> Pipe:
    return Pipe(*await asyncio.open_unix_connection(sock=end, limit=LONGEST_FRAME))
