"""Simulate the same notebooks with fractions and leases.

Time is simulated. The simulation calls the agent's own ``decide`` and ``place``, and the planner's
choice of nodes where one is named. A notebook
requests its session's GPUs, or, if it needs less than one, the fraction that its largest cell
takes. It stays on the node, and on the devices, where it was placed. Its memory stays on the
devices between cells until ``decide`` needs the room. While a cell runs it holds the larger of its
memory and its utilization, so that no device is given more work than it can do; a cell that is
swapped out in its middle stands still, and its slowdown is counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jupyter_aliquot.gateway.planning.node_choice import NodeOrder
from jupyter_aliquot.gateway.scheduling.capacity import Capacity, CapacityDevice, NodeRoom
from jupyter_aliquot.gpu_hook.agent.scheduling.leases import decide
from jupyter_aliquot.gpu_hook.agent.scheduling.turns import Turns
from jupyter_aliquot.gpu_hook.agent.scheduling.views import NEVER, DeviceView, Holding, KernelView, Policy, State, Want
from jupyter_aliquot.gpu_hook.placement.host_memory import host_room
from jupyter_aliquot.gpu_hook.placement.overcommit import Oversubscription, Reserved, device_state
from jupyter_aliquot.gpu_hook.placement.placement import WHOLE, Part, place
from jupyter_aliquot.provisioner.resources import GpuShare, Request

from .clockwork import Clockwork
from .trace import Cell, Session
from .whole_gpus import GPUS_OF_A_NODE, Outcome

LEAST_FRACTION = 0.05  # of a device: the context, libraries' workspaces


@dataclass(frozen=True)
class Hardware:
    """One node: 8 GPUs, each with a link of its own. Bytes, bytes per second."""

    memory_bytes: int = 40 * 10**9
    link_rate: float = 20e9
    host_bytes: int = 10**12  # for host copies
    oversubscription: float = 8.0
    policy: Policy = field(default_factory=Policy)
    # The planner's choice of nodes; None: the node with the least load first, which no planner knows.
    node_order: NodeOrder | None = None


class Cluster:
    """The nodes and their sessions. A session that fits on no node waits until another one ends."""

    def __init__(self, nodes: int, hardware: Hardware) -> None:
        self.clock = Clockwork()
        self.hardware = hardware
        self.nodes = [_Node(self, hardware) for _ in range(nodes)]
        self._waiting: list[_Notebook] = []
        self.resumes: list[float] = []
        self.starts: list[float] = []
        self.stretches: list[float] = []
        self.swaps = 0

    def run(self, sessions: Sequence[Session]) -> Outcome:
        for session in sessions:
            notebook = _Notebook(session, self)
            self.clock.at(session.start, notebook.open)
        self.clock.run()
        gpus = len(self.nodes) * GPUS_OF_A_NODE
        return Outcome(tuple(self.resumes), tuple(self.starts), 0.0, gpus, tuple(self.stretches))

    def admit(self, notebook: _Notebook) -> None:
        self._waiting.append(notebook)
        self.serve()

    def serve(self) -> None:
        for notebook in list(self._waiting):
            for node in self._choice(notebook):
                if node.take(notebook):
                    self._waiting.remove(notebook)
                    self.starts.append(self.clock.now - notebook.opened)
                    notebook.placed(node)
                    break

    def _choice(self, notebook: _Notebook) -> Sequence[_Node]:
        """Return the nodes to try, in their order."""
        order, memory = self.hardware.node_order, self.hardware.memory_bytes
        if order is None:
            return sorted(self.nodes, key=lambda node: node.load)
        named = {f"{at:03}": node for at, node in enumerate(self.nodes)}
        rooms = {name: node.room for name, node in named.items()}
        found = [(f"{name} {state.uuid}", name, state) for name, node in named.items() for state in node.devices]
        devices = tuple(CapacityDevice(uuid, one.index, memory, node=name) for uuid, name, one in found)
        reserved = {uuid: one.reserved for uuid, _, one in found}
        capacity = Capacity(devices, rooms, reserved, node_order=order)
        placed = capacity.place(Request(GpuShare(notebook.hundredths(memory))))
        return [named[capacity.node_of(placed)]] if isinstance(placed, tuple) else []


class _OfDevice(NamedTuple):
    """The reserved part of one device of a node."""

    uuid: str
    index: int
    reserved: Reserved


class _Node:
    def __init__(self, cluster: Cluster, hardware: Hardware) -> None:
        self._cluster = cluster
        self._hardware = hardware
        self._kernels: dict[str, _Notebook] = {}
        self._reserved = [0] * GPUS_OF_A_NODE
        self._looks = 0
        self._is_deciding = False
        self._devices = [
            DeviceView(str(i), hardware.memory_bytes, "", hardware.link_rate, hardware.link_rate)
            for i in range(GPUS_OF_A_NODE)
        ]

    @property
    def load(self) -> float:
        """Return the load in devices: reserved shares, and memory in use.

        A session with a small reservation may use much.
        """
        held = sum(kernel.bytes_of_its_own for kernel in self._kernels.values())
        return sum(self._reserved) / WHOLE + held / self._hardware.memory_bytes

    @property
    def room(self) -> NodeRoom:
        """Return the facts of the node that the planner looks at."""
        rule = Oversubscription(self._hardware.oversubscription, 1.0, self._hardware.host_bytes)
        return NodeRoom(rule, max((k.reserved_bytes for k in self._kernels.values() if k.parts), default=0))

    @property
    def devices(self) -> Sequence[_OfDevice]:
        """Return the devices with what is reserved of each."""
        amounts = [taken * self._hardware.memory_bytes // WHOLE for taken in self._reserved]
        return [
            _OfDevice(str(index), index, Reserved(taken, amount, taken, amount))
            for index, (taken, amount) in enumerate(zip(self._reserved, amounts, strict=True))
        ]

    def take(self, notebook: _Notebook) -> bool:
        """Place a notebook if the node has room; return whether it has.

        The rule is the agent's: within the overcommit ratio, and bytes that no device has must fit
        into the host's budget.
        """
        memory, room = self._hardware.memory_bytes, self.room
        devices = self.devices
        states = [device_state(one.uuid, one.index, memory, one.reserved, room.rule) for one in devices]
        amounts = [(memory, one.reserved.bytes) for one in devices]
        host = host_room(room.rule.host_bytes, amounts, room.largest_kernel_bytes)
        parts = place(states, notebook.hundredths(memory), host=host)
        if not isinstance(parts, tuple):
            return False
        for part in parts:
            self._reserved[part.index] += part.hundredths
        notebook.parts = parts
        self._kernels[notebook.session.name] = notebook
        return True

    def leave(self, notebook: _Notebook) -> None:
        del self._kernels[notebook.session.name]
        for part in notebook.parts:
            self._reserved[part.index] -= part.hundredths
        self.look()
        self._cluster.serve()

    def look(self) -> None:
        """Decide, and carry the decision out.

        Some parts take effect at once and may make a kernel call ``look`` again: that call waits
        for the end of this one.
        """
        clock, hardware = self._cluster.clock, self._hardware
        if self._is_deciding:
            return clock.at(clock.now, self.look)
        self._is_deciding = True
        kernels = [notebook.view() for notebook in self._kernels.values()]
        away = sum(h.away_bytes for k in kernels for h in k.holdings)
        leaving = sum(h.swappable_bytes for k in kernels if k.state is State.SWAPPING_OUT for h in k.holdings)
        room = hardware.host_bytes - away - leaving
        decision = decide(self._devices, kernels, clock.now, hardware.policy, room)
        for out in decision.outs:
            self._kernels[out.kernel_id].swap_out()
        for kernel_id in decision.ins:
            self._kernels[kernel_id].swap_in()
        for kernel_id in decision.grown:
            self._kernels[kernel_id].grow()
        self._is_deciding = False
        if decision.grown:  # as the keeper does: a kernel that leaves its room to them waits for their turn now
            clock.at(clock.now, self.look)
        if decision.look_at != NEVER:
            self._looks += 1
            look = self._looks
            clock.at(decision.look_at, lambda: self.look() if look == self._looks else None)


class _Notebook:
    """One session's kernel.

    ``held`` and ``away``: bytes by device; ``target``: bytes that its cell needs on each device.
    """

    def __init__(self, session: Session, cluster: Cluster) -> None:
        self.session = session
        self.parts: tuple[Part, ...] = ()
        self.opened = 0.0
        self._cluster = cluster
        self._clock = cluster.clock
        self._next = 0
        self._held: dict[str, int] = {}
        self._away: dict[str, int] = {}
        self._target: Mapping[str, int] = {}
        self._state = State.RESIDENT
        self._want = Want.NONE
        self._wants_since = self._held_since = self._moving_since = 0.0
        self._turns = Turns(0.0)
        self._idle_since: float | None = 0.0
        self._left = 0.0  # seconds of the running cell
        self._runs_since: float | None = None
        self._runs = 0
        self._submitted = self._started = 0.0
        self._has_begun = False

    def hundredths(self, memory_bytes: int) -> int:
        """Return the size that the user picks: whole GPUs if the session uses several."""
        if self.session.gpus > 1:
            return self.session.gpus * WHOLE
        return max(math.ceil(_fraction(cell, memory_bytes) * WHOLE) for cell in self.session.cells if cell.gpus)

    @property
    def reserved_bytes(self) -> int:
        return sum(part.reserved_bytes for part in self.parts)

    @property
    def bytes_of_its_own(self) -> int:
        return sum(self._held.values()) + sum(self._away.values())

    def open(self) -> None:
        self.opened = self._clock.now
        if any(cell.gpus for cell in self.session.cells):
            self._cluster.admit(self)

    def placed(self, node: _Node) -> None:
        self._node = node
        self._held = dict.fromkeys((part.uuid for part in self.parts), 0)
        self._away = dict(self._held)
        self._think()

    def view(self) -> KernelView:
        guarantee = {part.uuid: part.quota_bytes for part in self.parts}
        is_out = self._state in (State.SWAPPED, State.SWAPPING_IN)
        return KernelView(
            self.session.name,
            tuple(
                Holding(
                    uuid,
                    held_bytes=0 if is_out else held,
                    swappable_bytes=0 if is_out else held,
                    away_bytes=self._away[uuid],
                    wanted_bytes=self._wanted(uuid) if self._want else 0,
                    guarantee_bytes=guarantee[uuid],
                )
                for uuid, held in self._held.items()
            ),
            self._state,
            want=self._want,
            wants_since=self._wants_since,
            idle_since=self._idle_since,
            held_since=self._held_since,
            turn_since=self._turns.since,
            ran_seconds=self._ran_seconds(),
            last_turn_seconds=self._turns.last_seconds,
            moving_since=self._moving_since,
        )

    def _ran_seconds(self) -> float:
        if self._idle_since is not None:
            return 0.0
        return self._turns.ran_seconds(self._wants_since if self._want else self._clock.now)

    def _wanted(self, uuid: str) -> int:
        return max(0, self._target.get(uuid, 0) - self._held[uuid] - self._away[uuid])

    def _think(self) -> None:
        if self._next == len(self.session.cells):
            self._clock.after(self.session.tail, self._close)
        else:
            self._clock.after(self.session.cells[self._next].pause, self._submit)

    def _submit(self) -> None:
        cell = self.session.cells[self._next]
        if not cell.gpus:
            return self._clock.after(cell.seconds, self._end_without_gpu)
        share = _fraction(cell, self._cluster.hardware.memory_bytes)
        bytes_ = int(share * self._cluster.hardware.memory_bytes)
        self._target = {part.uuid: min(bytes_, part.quota_bytes) for part in self.parts[: cell.gpus]}
        self._submitted, self._left = self._clock.now, cell.seconds
        self._has_begun = False
        self._ask()

    def _ask(self) -> None:
        """Request the cell's memory; its call waits, unless all of it is there."""
        self._idle_since = None
        self._turns.begin_cell(self._clock.now)
        if self._state is State.RESIDENT and not any(self._wanted(uuid) for uuid in self._held):
            return self._begin()
        self._want, self._wants_since = Want.CALL, self._clock.now
        self._node.look()

    def grow(self) -> None:
        for uuid in self._held:
            self._held[uuid] += self._wanted(uuid)
        self._begin()

    def swap_out(self) -> None:
        self._cluster.swaps += 1
        self._turns.leave(self._clock.now, is_busy=self._idle_since is None)
        if self._runs_since is not None:
            self._left -= self._clock.now - self._runs_since
            self._runs_since = None
            self._runs += 1
            self._want, self._wants_since = Want.CALL, self._clock.now
        self._state, self._moving_since = State.SWAPPING_OUT, self._clock.now
        self._clock.after(self._move_seconds(self._held), self._is_out)

    def _is_out(self) -> None:
        self._away, self._held = self._held, dict.fromkeys(self._held, 0)
        self._state = State.SWAPPED
        self._node.look()

    def swap_in(self) -> None:
        self._state, self._moving_since = State.SWAPPING_IN, self._clock.now
        self._clock.after(self._move_seconds(self._away), self._is_in)

    def _is_in(self) -> None:
        wanted = {uuid: self._wanted(uuid) for uuid in self._held}
        self._held = {uuid: self._away[uuid] + wanted[uuid] for uuid in self._held}
        self._away = dict.fromkeys(self._held, 0)
        self._state, self._held_since = State.RESIDENT, self._clock.now
        self._turns.enter(self._clock.now)
        self._begin()
        self._node.look()

    def _move_seconds(self, amounts: Mapping[str, int]) -> float:
        return max(amounts.values()) / self._cluster.hardware.link_rate + self._cluster.hardware.policy.move_seconds

    def _begin(self) -> None:
        now = self._clock.now
        self._want = Want.NONE
        if not self._has_begun:
            self._has_begun, self._started = True, now
            self._cluster.resumes.append(now - self._submitted)
        self._runs_since = now
        self._runs += 1
        run = self._runs
        self._clock.after(self._left, lambda: self._end_cell(run))

    def _end_cell(self, run: int) -> None:
        if run != self._runs:
            return  # the kernel was swapped out in the middle of the cell, and ends later
        cell = self.session.cells[self._next]
        self._cluster.stretches.append((self._clock.now - self._started) / cell.seconds)
        self._runs_since, self._idle_since = None, self._clock.now
        for part in self.parts[: cell.gpus]:  # its utilization is over, its memory stays
            floor = LEAST_FRACTION * self._cluster.hardware.memory_bytes
            self._held[part.uuid] = int(max(cell.bytes / cell.gpus, floor))
        self._target = {}
        self._next += 1
        self._think()
        self._node.look()

    def _end_without_gpu(self) -> None:
        self._next += 1
        self._think()

    def _close(self) -> None:
        self._held = dict.fromkeys(self._held, 0)
        self._node.leave(self)


def _fraction(cell: Cell, memory_bytes: int) -> float:
    """Return a cell's fraction of each of its GPUs.

    A memory reading above one GPU's memory belongs to all of them.
    """
    memory = cell.bytes / cell.gpus / memory_bytes
    return min(1.0, max(cell.utilization, memory, LEAST_FRACTION))
