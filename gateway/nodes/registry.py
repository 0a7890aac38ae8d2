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
from jupyter_aliquot.gpu_hook.waiting import end_task, outlasting, outlasting_task
from jupyter_aliquot.provisioner.errors import AliquotError, LimitError, RequestError

from .dialed_agent import DialedAgent
from .limits import LONGEST_FRAME, MOST_NODES, MOST_OF_ANY, AgentSockets
from .remembered import FORGOTTEN_SECONDS, RememberedNodes
from .remote_node import RemoteNode, RemoteNodeView
from .tokens import TokenRefusedError

REGISTER_VERSION = 1
_LONGEST_INSTANCE = 64
_REFRESH_SECONDS = 3600.0


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

    *local_name* returns the name of the node that the gateway reaches by its own socket, *pod_of* the
    pod of a kernel; empty where kernels are no pods.
    """

    def __init__(
        self,
        remembered: RememberedNodes,
        clock: Clock,
        seconds: float,
        log: logging.Logger,
        local_name: Callable[[], str],
        pod_of: Callable[[str], str] = lambda kernel_id: "",
    ) -> None:
        self._remembered = remembered
        self._clock = clock
        self._seconds = seconds
        self._log = log
        self._local_name = local_name
        self._pod_of = pod_of
        self._nodes: dict[str, RemoteNode] = {}
        self._seen: dict[str, float] = {}
        self._listeners: list[Callable[[], None]] = []
        # The nodes that a token for any node registered.
        self._of_any: set[str] = set()
        self._is_started = self._is_stopped = False
        self._keeper: asyncio.Task[None] | None = None
        self._lost: set[str] = set()  # by their cluster
        self._has_new = asyncio.Event()
        self.sockets = AgentSockets()

    @property
    def is_started(self) -> bool:
        """Return whether the nodes of the last run are known, so that agents may register."""
        return self._is_started

    def listen(self, listener: Callable[[], None]) -> None:
        """Call *listener* with each new view of a node."""
        self._listeners.append(listener)

    def views(self) -> tuple[RemoteNodeView, ...]:
        """Return all nodes, by name."""
        return tuple(self._nodes[name].view for name in sorted(self._nodes))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all nodes, sorted."""
        return tuple(sorted(self._nodes))

    def agent(self, name: str) -> DialedAgent:
        """Return the agent of a node that is known. Raises KeyError."""
        return self._nodes[name].agent

    def lose(self, name: str) -> None:
        """Forget a node soon that its cluster has no more, unless its agent is connected."""
        self._lost.add(name)
        self._has_new.set()

    async def start(self) -> None:
        """List the nodes of the last run as unknown."""
        try:
            read = await asyncio.to_thread(self._remembered.read, self._clock.wall())
            self._seen = {**read, **self._seen}
            for name in read:
                await self._known(name)
        finally:
            self._is_started = True
            self._keeper = outlasting_task(self._keep(), "aliquot-nodes-file")

    async def stop(self) -> None:
        """Close all connections. Idempotent."""
        self._is_stopped = True
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await end_task(keeper)
        if self._is_started:  # else the nodes of the last run are not known, and must stay in the file
            await self._write()
        await asyncio.gather(*(node.stop() for node in self._nodes.values()))

    async def register(self, asked: Registration, allowed: frozenset[str] | None) -> Pipe:
        """Take an agent's connection, and return the handler's end of it.

        Args:
            asked: The first frame.
            allowed: The nodes that its token may register; None for any.

        Raises AliquotError.
        """
        self._check(asked, allowed)
        if asked.node not in self._seen:
            self._has_new.set()
        if allowed is None and asked.node not in self._nodes:
            self._of_any.add(asked.node)
        self._seen[asked.node] = self._clock.wall()
        node = await self._known(asked.node)
        ours, theirs = socket.socketpair()
        client, pipe = await outlasting(lambda: asyncio.gather(_client(ours, asked.node), _pipe(theirs)))
        await node.attach(client, asked.instance)
        return pipe

    def problem(self, name: str) -> str:
        """Return why the node's agent is not asked any more; empty if that is not known."""
        node = self._nodes.get(name)
        return "" if node is None else node.problem

    def check_again(self, name: str, allowed: frozenset[str] | None) -> None:
        """Check a registered node's name by what holds now: tokens and the local node change.

        Raises AliquotError.
        """
        if allowed is not None and name not in allowed:
            raise TokenRefusedError(f"Requested to register the node {name!r}, but the token is another node's")
        if name == self._local_name():
            raise NodeConflictError(
                f"Requested to register the node {name!r}, but that is the gateway's own machine. Give the agent "
                "another name (--node)"
            )

    def _check(self, asked: Registration, allowed: frozenset[str] | None) -> None:
        name = asked.node
        if self._is_stopped:
            raise LimitError("Requested a connection, but the gateway is stopping. Try again when it has started")
        self.check_again(name, allowed)
        known = self._nodes.get(name)
        if known is not None and known.view.is_connected and known.instance != asked.instance:
            raise NodeConflictError(
                f"Requested to register the node {name!r}, but another agent is connected by that name. Give each "
                "agent a name of its own (--node)"
            )
        if known is None and len(self._nodes) >= MOST_NODES:
            raise LimitError(f"Requested to register the node {name!r}, but this gateway has {MOST_NODES} already")
        if known is None and allowed is None and len(self._of_any) >= MOST_OF_ANY:
            raise LimitError(
                f"Requested to register the node {name!r}, but tokens for any node have registered {MOST_OF_ANY} "
                "already. Give the agent a token for its node alone"
            )

    async def _keep(self) -> None:
        """Write the file for a new name, and each hour; forget nodes that have not been seen for a week.

        A gateway that is killed thus remembers nodes that were connected for long.
        """
        while True:
            await self._until_due()
            try:
                await self._forget()
                await self._write()
            except Exception:
                self._log.exception("nodes=not_kept; it goes on")

    async def _until_due(self) -> None:
        hour = asyncio.ensure_future(self._clock.sleep(_REFRESH_SECONDS))
        new = asyncio.ensure_future(self._has_new.wait())
        try:
            await asyncio.wait({hour, new}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hour.cancel()
            new.cancel()
        self._has_new.clear()

    def _note_connected(self) -> float:
        now = self._clock.wall()
        self._seen.update({view.name: now for view in self.views() if view.is_connected})
        return now

    async def _write(self) -> None:
        self._note_connected()
        await asyncio.to_thread(self._remembered.write, dict(self._seen))

    async def _forget(self) -> None:
        now = self._note_connected()
        connected = {view.name for view in self.views() if view.is_connected}
        lost, self._lost = self._lost - connected, set()
        old = [name for name, seen in self._seen.items() if now - seen >= FORGOTTEN_SECONDS or name in lost]
        for name in old:
            del self._seen[name]
            self._of_any.discard(name)
            node = self._nodes.pop(name, None)
            if node is not None:
                self._log.info("node=forgotten name=%s", name)
                await node.stop()
        if old:
            self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    async def _known(self, name: str) -> RemoteNode:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = RemoteNode(name, self._clock, self._seconds, self._log, self._tell, self._pod_of)
            await node.start()
            self._tell()
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
