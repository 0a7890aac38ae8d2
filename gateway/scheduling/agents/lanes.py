"""The lanes to the nodes whose agents dial in: a lane asks its agent for one batch after the other.

A lane has a task of its own, and its agent's deadlines bound it: a slow agent holds up its own lane
alone. The cycle of admission never waits for a lane. It plans with the last answers, and with what
the agents are being asked for as if they had reserved it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.base.tasks import in_groups
from jupyter_aliquot.gateway.scheduling.ledger import Holding, KernelRef, Ledger, LedgerSnapshot, Node, Others
from jupyter_aliquot.gateway.scheduling.lending.reclaim import Evict
from jupyter_aliquot.gateway.scheduling.snapshot import Agent
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.gpu_hook.waiting import end_task
from jupyter_aliquot.provisioner.errors import AgentUnavailableError, AliquotError
from jupyter_aliquot.provisioner.resources import Grant

from .orphans import release_orphans
from .pause import AGAIN_SECONDS, Pause, state_of
from .releases import Releases, resolve
from .renewal import Renewal


class RemoteAgent(Agent, Protocol):
    """The agent of a node that dials in. ``last`` is its last answer; None: none since the start."""

    name: str
    last: Node | None

    async def refresh(self) -> None:
        """Have ``last`` tell of all that was answered before. Raises AliquotError."""


class RemoteAgents(Protocol):
    """The nodes that dial in, of those on which this gateway's runtime starts kernels."""

    def agents(self) -> Mapping[str, RemoteAgent]:
        """Return them by name, in the order in which they are filled; unknown ones are among them."""

    def listen(self, listener: Callable[[], None]) -> None:
        """Call *listener* when a node's capacity has changed, and when one comes or goes."""


class NoRemoteAgents:
    """The runtime starts kernels on the gateway's own machine alone."""

    def agents(self) -> Mapping[str, RemoteAgent]:
        return MappingProxyType({})

    def listen(self, listener: Callable[[], None]) -> None:
        """Nothing changes."""


class NoLocalAgent:
    """The place of the gateway's own node where kernels start on others alone."""

    connections = 0
    unavailable_since: float | None = None
    message = ""

    def __init__(self, remote: RemoteAgents) -> None:
        self._remote = remote

    def listen(self, listener: Callable[[], None]) -> None:
        """Nothing changes."""

    async def status(self) -> Node:
        """Return a node without devices. Raises AgentUnavailableError while there is no node at all."""
        if not self._remote.agents():
            raise AgentUnavailableError("no agent of a node has registered with this gateway")
        return Node()

    async def reserve(self, requester: KernelRef, request: object, placement: object) -> Grant:
        raise self._error()

    async def renew(self, requester: KernelRef, grant: Grant) -> Grant:
        raise AliquotError(f"the node {grant.node or 'of its GPU'} has not registered with this gateway")

    async def resize(self, kernel_id: str, request: object) -> Grant:
        raise self._error()

    async def release(self, kernel_id: str) -> None:
        raise self._error()

    async def evict(self, kernel_id: str) -> None:
        raise self._error()

    async def readmit(self, kernel_id: str) -> None:
        raise self._error()

    def _error(self) -> AgentUnavailableError:
        return AgentUnavailableError("no agent of the kernel's node is connected")


@dataclass(frozen=True)
class Asked:
    """A request that a lane asks its agent for, the parts that were planned, and the coroutine that asks."""

    holding: Holding
    parts: tuple[Part, ...]
    commit: Callable[[], Awaitable[bool]]


class Lane:
    """One node's lane. ``asked`` are the requests that its agent has not answered yet, by kernel id."""

    def __init__(self, agent: RemoteAgent, lanes: Lanes, orphans: set[str]) -> None:
        self.agent = agent
        self.asked: dict[str, Asked] = {}
        # Kernels that the agent may hold, though no grant of it is known; it releases them first.
        self.orphans = orphans
        self.seen_connections = 0
        self._lanes = lanes
        self._task: asyncio.Task[None] | None = None
        self._again_at = 0.0
        # Why the agent refused what the plan had room for; empty if it did not, the last time. A commit sets it.
        self.refused = ""
        # While one lasts, the agent is asked for no grants; another, it is not told the same evictions.
        self._refusal, self._told = Pause(), Pause()

    @property
    def is_busy(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def is_back(self) -> bool:
        """Return whether it is connected anew, and does not know the grants yet."""
        return self.agent.unavailable_since is None and self.agent.connections != self.seen_connections

    @property
    def is_open(self) -> bool:
        """Return whether the agent may be asked for reservations now."""
        if self.is_busy or self.agent.unavailable_since is not None:
            return False
        is_same = self.agent.connections == self.seen_connections
        return is_same and not self._refusal.holds(state_of(self.agent.last), self._lanes.clock.now())

    def is_news(self, evictions: Sequence[Evict]) -> bool:
        """Return whether these evictions, and what the agent says of others, are not what it was told last."""
        return not self._told.holds((state_of(self.agent.last), *evictions), self._lanes.clock.now())

    def run(
        self,
        asked: Iterable[Asked] = (),
        jobs: Sequence[Callable[[], Awaitable[None]]] = (),
        evictions: Sequence[Evict] = (),
    ) -> None:
        """Ask the agent, in a task of the lane's own. *jobs* tell it of *evictions*."""
        self.asked = {one.holding.grant.kernel_id: one for one in asked}
        self.refused = "" if self.asked else self.refused
        self._task = asyncio.create_task(self._run(jobs, evictions), name=f"aliquot-lane-{self.agent.name}")

    def tend(self) -> None:
        """Release, and renew, what its agent does not know yet."""
        if self.is_busy:
            return
        is_late = self._lanes.clock.now() >= self._again_at
        if self.is_back or self._lanes.releases.has(self._is_here, is_awaited=True) or (is_late and self._has_work()):
            self.run()

    async def settle(self) -> None:
        """Tell it of ended grants, and renew those in doubt. Raises AliquotError."""
        lanes, agent = self._lanes, self.agent
        if agent.connections != self.seen_connections:
            self.seen_connections = agent.connections
            lanes.ledger.doubt(agent.name)
        told = await lanes.releases.tell(agent, self._is_here)
        try:
            await release_orphans(agent, self.orphans, lanes.log, lanes.renewal.lead)
            await lanes.renewal.renew(agent, lanes.ledger.on(agent.name))
            if told:
                await agent.refresh()
        finally:
            resolve(told)

    async def finish(self) -> None:
        """Tell it of ended grants once more, after its stop."""
        resolve(await self._lanes.releases.tell(self.agent, self._is_here))
        with suppress(AgentUnavailableError):
            await release_orphans(self.agent, self.orphans, self._lanes.log, self._lanes.renewal.lead)

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            await end_task(task)
        self.asked = {}

    async def _run(self, jobs: Sequence[Callable[[], Awaitable[None]]], evictions: Sequence[Evict]) -> None:
        self._again_at = self._lanes.clock.now() + AGAIN_SECONDS
        before = state_of(self.agent.last)
        try:
            await self.settle()
            await in_groups([one.commit for one in self.asked.values()])
            for job in jobs:
                await job()
            await self.agent.refresh()
            if self.asked and self.refused and state_of(self.agent.last) == before:
                self._refusal.begin(before, self._lanes.clock.now())
            if jobs:
                self._told.begin((before, *evictions), self._lanes.clock.now())
        except AliquotError as error:
            self._lanes.log.info("node=%s lane=stopped reason=%s", self.agent.name, error)
            self._refusal.begin(state_of(self.agent.last), self._lanes.clock.now())
        except Exception:
            self._lanes.log.exception("node=%s lane=failed; it goes on", self.agent.name)
            self._refusal.begin(state_of(self.agent.last), self._lanes.clock.now())
        finally:
            self.asked = {}
            self._task = None
            self._lanes.moved()

    def _is_here(self, node: str) -> bool:
        return node == self.agent.name

    def _has_work(self) -> bool:
        if self.agent.unavailable_since is not None:
            return False
        doubtful = any(not one.is_confirmed for one in self._lanes.ledger.on(self.agent.name))
        return doubtful or bool(self.orphans) or self._lanes.releases.has(self._is_here)


class Lanes:
    """All lanes. ``moved`` has the queue looked at again."""

    def __init__(
        self,
        agents: RemoteAgents,
        ledger: Ledger,
        releases: Releases,
        renewal: Renewal,
        clock: Clock,
        moved: Callable[[], None],
        log: logging.Logger,
    ) -> None:
        self._agents = agents
        self.ledger = ledger
        self.releases = releases
        self.renewal = renewal
        self.clock = clock
        self.moved = moved
        self.log = log
        self._lanes: dict[str, Lane] = {}
        # The lanes of nodes that are forgotten, or have another agent now: their agents may still be asked.
        self._former: list[Lane] = []
        # The names of all nodes that had a lane, and what they may have reserved without an answer.
        self._orphans: dict[str, set[str]] = {}
        self._own = ""
        agents.listen(moved)

    def __bool__(self) -> bool:
        return bool(self._known())

    def of(self, node: str) -> Lane | None:
        """Return the lane of a node; None for the gateway's own, and for one that is not known."""
        return self._known().get(node)

    def tend(self, own: str) -> Others:
        """Start what no lane has been asked for, and return the nodes as they are known now.

        *own* is the name of the gateway's own node, which has no lane, also if it dialed in once.
        """
        self._own = own
        self._former = [one for one in self._former if one.is_busy]
        lanes = self._known()
        for lane in lanes.values():
            lane.tend()
        nodes = tuple(one.agent.last for one in lanes.values() if one.agent.last is not None)
        busy = frozenset(name for name, one in lanes.items() if not one.is_open)
        return Others(nodes, frozenset(lanes), busy)

    def promised(self, snapshot: LedgerSnapshot) -> LedgerSnapshot:
        """Return the ledger as if the agents had reserved what they are asked for."""
        for lane in self._all():
            for one in lane.asked.values():
                snapshot = snapshot.with_promised(one.holding, one.parts)
        return snapshot

    @property
    def asked(self) -> Collection[str]:
        """The kernels whose requests an agent has not answered yet."""
        return {kernel_id for lane in self._all() for kernel_id in lane.asked}

    @property
    def is_settled(self) -> bool:
        """Return whether no agent came back since its grants were renewed last."""
        return not any(one.is_back for one in self._known().values())

    def is_own(self, node: str) -> bool:
        """Return whether this node is the gateway's own: it has that name, or never had a lane."""
        self._known()
        return node == self._own or node not in self._orphans

    def put_off(self) -> list[asyncio.Future[None]]:
        """Leave the releases of forgotten nodes to their next agents, and return the futures of those.

        The kernels may start elsewhere meanwhile.
        """
        found = self.releases.take(lambda node: node not in self._known() and not self.is_own(node))
        for kernel_id, node, _ in found:
            self._orphans[node].add(kernel_id)
        return [done for *_, done in found if done is not None]

    async def finish(self) -> None:
        """End the lanes, and tell their agents of ended grants once more."""
        self._known()
        await asyncio.gather(*(one.stop() for one in self._all()))
        await asyncio.gather(*(one.finish() for one in self._lanes.values()))

    def _all(self) -> list[Lane]:
        return [*self._lanes.values(), *self._former]

    def _known(self) -> Mapping[str, Lane]:
        agents = {name: agent for name, agent in self._agents.agents().items() if name != self._own}
        before = self._lanes
        if before.keys() != agents.keys() or any(before[name].agent is not agent for name, agent in agents.items()):
            all_before = self._all()
            self._lanes = {name: self._lane(name, agent) for name, agent in agents.items()}
            self._former = [one for one in all_before if self._lanes.get(one.agent.name) is not one]
        return self._lanes

    def _lane(self, name: str, agent: RemoteAgent) -> Lane:
        there = (one for one in (*self._lanes.values(), *self._former) if one.agent is agent)
        return next(there, None) or Lane(agent, self, self._orphans.setdefault(name, set()))
