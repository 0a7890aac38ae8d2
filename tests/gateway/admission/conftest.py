"""Fixtures of admission: a node agent and a clock that a test moves by hand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from jupyter_aliquot.gateway.scheduling.admission import Admission, AdmissionSettings
from jupyter_aliquot.gateway.scheduling.agents.lanes import NoLocalAgent
from jupyter_aliquot.gateway.scheduling.capacity import Capacity
from jupyter_aliquot.gateway.scheduling.ledger import Device, KernelRef, Leaving, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.resize import held_of
from jupyter_aliquot.gpu_hook.placement.placement import NEVER_FITS, NO_ROOM, Part, Refusal, place
from jupyter_aliquot.provisioner.errors import (
    AgentUnavailableError,
    AliquotError,
    GrantError,
    NeverFitsError,
    NoRoomError,
    RequestError,
)
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request

MEMORY = Bytes(8 << 30)


def a_quota(part: Part) -> Quota:
    guarantee = None if part.guarantee_bytes is None else Bytes(part.guarantee_bytes)
    return Quota(part.uuid, part.index, GpuShare(part.hundredths), Bytes(part.quota_bytes), guarantee)


class HandClock:
    """A clock that stands still until a test calls ``advance``."""

    def __init__(self) -> None:
        self._now = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return 1e9 + self._now

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._sleepers.append((self._now + seconds, future))
            await future
        await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        self._now += seconds
        for due, future in self._sleepers:
            if due <= self._now and not future.done():
                future.set_result(None)
        self._sleepers = [(due, future) for due, future in self._sleepers if not future.done()]
        await settle()


class HandAgent:
    """The part of an agent link that admission uses.

    With ``dice``, the agent delays its answers, and other gateways may reserve first.
    """

    def __init__(self, clock: HandClock, devices: int = 1, dice: random.Random | None = None) -> None:
        self._clock = clock
        self._count = devices
        self._dice = dice
        self._listeners: list[Callable[[], None]] = []
        self.held: dict[str, Grant] = {}
        # Evicted kernels; None: this agent evicts none. Kernels that are busy leave when a test says so.
        self.evicted: set[str] | None = None
        self.busy: set[str] = set()
        self.told_to_leave: set[str] = set()
        # What it tells of those that do not leave.
        self.leaving: dict[str, Leaving] = {}
        self.pinned: set[str] = set()
        self.moved: dict[str, str] = {}
        self.grants_given: list[str] = []
        self.refuse_next: AliquotError | None = None
        self.keeps_memory: set[str] = set()  # kernels of which a process does, also after a release
        self.connections = 1
        self.unavailable_since: float | None = None
        self.message = ""

    def listen(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def tell(self) -> None:
        for listener in self._listeners:
            listener()

    def go(self) -> None:
        self.unavailable_since = self._clock.now()
        self.message = "it went away"
        self.tell()

    def come_back(self, *, forgetful: bool = True) -> None:
        """End the agent's absence.

        With ``forgetful``, the agent was started anew and knows no kernel.
        """
        if forgetful:
            self.held.clear()
        self.unavailable_since = None
        self.message = ""
        self.connections += 1
        self.tell()

    async def status(self) -> Node:
        await self._answer()
        devices = [self._device(index) for index in range(self._count)]
        evicted = None if self.evicted is None else frozenset(self.evicted)
        ending = frozenset(self.keeps_memory - self.held.keys())
        told = {one: self.leaving.get(one, Leaving(0)) for one in self.told_to_leave - (self.evicted or set())}
        leaving = {one: leaving for one, leaving in told.items() if one in self.held}
        facts = {"evicted": evicted, "ending": ending, "leaving": leaving, "moved": dict(self.moved)}
        return Node("node", "stub", tuple(devices), **facts)

    def move(self, kernel_id: str, index: int) -> None:
        """Move a kernel to another device, as the agent does once it was told to."""
        before, device = self.held[kernel_id], self._device(index)
        quotas = tuple(replace(quota, uuid=device.uuid, index=index) for quota in before.quotas)
        self.held[kernel_id] = replace(before, quotas=quotas, generation=before.generation + 1)
        self.moved[kernel_id] = device.uuid
        self.tell()

    async def evict(self, kernel_id: str) -> None:
        await self._answer()
        if kernel_id in self.pinned:
            raise GrantError("its memory stays on the GPU")
        self.told_to_leave.add(kernel_id)
        self.let_leave()

    def let_leave(self) -> None:
        """Let the kernels leave that were told to, and are not busy."""
        assert self.evicted is not None
        self.evicted |= {one for one in self.told_to_leave - self.busy if one in self.held}
        self.tell()

    async def readmit(self, kernel_id: str) -> None:
        await self._answer()
        assert self.evicted is not None
        self.told_to_leave.discard(kernel_id)
        if kernel_id in self.evicted:
            grant = self.held[kernel_id]
            if isinstance(self._capacity().place_back(grant.request, held_of(grant).parts), Refusal):
                raise NoRoomError("others have its room")
            self.evicted.discard(kernel_id)
        self.tell()

    async def reserve(self, requester: KernelRef, request: Request, placement: Mapping[str, int]) -> Grant:
        await self._answer()
        error, self.refuse_next = self.refuse_next, None
        if error is not None:
            raise error
        held = self.held.get(requester.kernel_id)
        if held is None:
            held = self.held[requester.kernel_id] = self._place(requester, request, placement)
            self.grants_given.append(requester.kernel_id)
        await self._answer()
        return held

    async def renew(self, requester: KernelRef, grant: Grant) -> Grant:
        placement = {quota.uuid: quota.share.hundredths for quota in grant.quotas}
        return await self.reserve(requester, grant.request, placement)

    async def resize(self, kernel_id: str, request: Request) -> Grant:
        await self._answer()
        error, self.refuse_next = self.refuse_next, None
        if error is not None:
            raise error
        before = self.held[kernel_id]
        placed = self._capacity().place(request, held_of(before))
        if isinstance(placed, Refusal):
            raise NoRoomError(placed.message)
        quotas = tuple(map(a_quota, placed))
        changed = replace(before, request=request, quotas=quotas, generation=before.generation + 1)
        self.held[kernel_id] = changed
        await self._answer()
        self.tell()
        return changed

    async def release(self, kernel_id: str) -> None:
        await self._answer()
        (self.evicted or set()).discard(kernel_id)
        if self.held.pop(kernel_id, None) is not None:
            self.tell()

    def reserved(self, index: int) -> int:
        quotas = [quota for grant in self._reserving() for quota in grant.quotas if quota.index == index]
        return sum(quota.share.hundredths for quota in quotas)

    async def _answer(self) -> None:
        connection = self.connections
        for _ in range(self._dice.randrange(4) if self._dice else 1):
            await asyncio.sleep(0)
        if self.unavailable_since is not None or connection != self.connections:
            raise AgentUnavailableError("it went away")

    def _reserving(self) -> list[Grant]:
        return [grant for grant in self.held.values() if grant.kernel_id not in (self.evicted or set())]

    def _device(self, index: int) -> Device:
        held = (part for grant in self._reserving() for part in held_of(grant).parts if part.index == index)
        memory = Bytes(sum(part.reserved_bytes for part in held))
        return Device(f"GPU-{index}", index, "Stub", MEMORY, GpuShare(self.reserved(index)), memory)

    def _capacity(self) -> Capacity:
        return LedgerSnapshot(node=Node(devices=tuple(self._device(index) for index in range(self._count)))).capacity()

    def _place(self, requester: KernelRef, request: Request, placement: Mapping[str, int]) -> Grant:
        states = self._capacity().states(request.workload_class)
        placed = place(states, request.gpus.hundredths, request.memory_limit, placement)
        if isinstance(placed, Refusal):
            raise {NO_ROOM: NoRoomError, NEVER_FITS: NeverFitsError}.get(placed.code, RequestError)(placed.message)
        quotas = tuple(map(a_quota, placed))
        return Grant(requester.kernel_id, requester.owner, request, "node", quotas, f"/k/{requester.kernel_id}", ())


async def settle() -> None:
    """Let every task run until all wait for something."""
    for _ in range(60):
        await asyncio.sleep(0)


class HandNode(HandAgent):
    """The agent of a node that dials in. Its devices are of its own; without ``answers`` it reserves nothing."""

    def __init__(self, clock: HandClock, name: str, devices: int = 1) -> None:
        super().__init__(clock, devices)
        self.name = name
        self.last: Node | None = None
        self.answers = asyncio.Event()
        self.answers.set()

    async def refresh(self) -> None:
        self.last = replace(await self.status(), name=self.name)
        self.tell()

    def go(self) -> None:
        self.last = None if self.last is None else replace(self.last, is_away=True)
        super().go()

    async def reserve(self, requester: KernelRef, request: Request, placement: Mapping[str, int]) -> Grant:
        await self.answers.wait()
        if self.unavailable_since is not None:
            raise AgentUnavailableError("it went away")
        return await super().reserve(requester, request, placement)

    def _device(self, index: int) -> Device:
        return replace(super()._device(index), uuid=f"GPU-{self.name}-{index}")

    def _place(self, requester: KernelRef, request: Request, placement: Mapping[str, int]) -> Grant:
        return replace(super()._place(requester, request, placement), node=self.name)


class Nodes:
    """The nodes that have registered."""

    def __init__(self, nodes: Iterable[HandNode]) -> None:
        self.nodes = {one.name: one for one in nodes}

    def agents(self) -> Mapping[str, HandNode]:
        return self.nodes

    def listen(self, listener: Callable[[], None]) -> None:
        for one in self.nodes.values():
            one.listen(listener)


class Place:
    """An admission over some nodes."""

    def __init__(self, admission: Admission, remote: Nodes) -> None:
        self.admission, self.nodes = admission, remote.nodes

    async def ask(self, kernel_id: str, hundredths: int, **fields: Any) -> asyncio.Future[Grant]:
        future = self.admission.submit(
            KernelRef(kernel_id, fields.pop("owner", "ada"), **fields), Request(GpuShare(hundredths))
        )
        await settle()
        return future

    async def granted(self, kernel_id: str, hundredths: int, **fields: Any) -> str:
        """Return the node of a kernel that starts at once."""
        future = await self.ask(kernel_id, hundredths, **fields)
        assert future.done(), self.admission.snapshot().queue
        return future.result().node


@asynccontextmanager
async def a_place(
    clock: HandClock, *made: HandNode, own: Any = None, is_known: bool = True, **settings: Any
) -> AsyncIterator[Place]:
    """Run an admission over these nodes; without *own*, the gateway has no node of its own."""
    for one in made if is_known else ():
        await one.refresh()
    remote = Nodes(made)
    admission = Admission(own or NoLocalAgent(remote), clock, AdmissionSettings(**settings), remote=remote)
    await admission.start()
    await settle()
    try:
        yield Place(admission, remote)
    finally:
        await admission.stop()


@asynccontextmanager
async def an_admission(agent: HandAgent, clock: HandClock, **settings: Any) -> AsyncIterator[Admission]:
    admission = Admission(agent, clock, AdmissionSettings(**settings))
    await admission.start()
    await settle()
    try:
        yield admission
    finally:
        await admission.stop()


@pytest.fixture
def play() -> Callable[..., None]:
    """Run a scene with an admission, its agent and its clock."""

    def run(scene: Callable[[Admission, Any, Any], Awaitable[None]], *, devices: int = 1, **settings: Any) -> None:
        async def act() -> None:
            clock = HandClock()
            agent = HandAgent(clock, devices)
            async with an_admission(agent, clock, **settings) as admission:
                await asyncio.wait_for(scene(admission, agent, clock), 10)

        asyncio.run(act())

    return run


@pytest.fixture(name="settle")
def _settle() -> Callable[[], Awaitable[None]]:
    return settle


@pytest.fixture(scope="session")
def desk() -> Any:
    """Return the classes above for the tests in this folder.

    Importlib mode has no imports between test files.
    """

    class Desk:
        clock = HandClock
        agent = HandAgent
        admission = staticmethod(an_admission)
        settle = staticmethod(settle)

    return Desk


@pytest.fixture(scope="session")
def remote() -> Any:
    """Return the makers of nodes that dial in, and of an admission over them."""

    class Remote:
        node = HandNode
        place = staticmethod(a_place)

    return Remote
