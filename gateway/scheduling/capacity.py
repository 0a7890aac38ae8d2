"""The free capacity of the nodes while a plan is made: values, of which every step makes another one.

A kernel is on one node: the node is chosen first, then its devices. It uses the functions of
``gpu_hook.placement`` that the agent uses, so that both come to the same result.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_aliquot.gateway.planning.colocation import NO_COST, Interference, Neighbor
from jupyter_aliquot.gateway.planning.fragmentation import Fragmentation
from jupyter_aliquot.gateway.planning.jobs import DEVICE
from jupyter_aliquot.gateway.planning.node_choice import NodeOrder, Score, node_key
from jupyter_aliquot.gateway.sizes.wish import is_of_model
from jupyter_aliquot.gpu_hook.placement.host_memory import HostRoom, host_room
from jupyter_aliquot.gpu_hook.placement.overcommit import Oversubscription, Reserved, device_state
from jupyter_aliquot.gpu_hook.placement.placement import (
    DEVICE_LOST,
    NO_ROOM,
    WHOLE,
    DeviceState,
    Part,
    Refusal,
    place,
    resize,
)
from jupyter_aliquot.provisioner.resources import Request, WorkloadClass

from .nodes.devices import CapacityDevice, Devices, NodeRoom, Overlay, node_facts
from .nodes.ranking import Findings, Found, Placement, Ranking, Size, first, ranking

__all__ = ["Capacity", "CapacityDevice", "Held", "NodeRoom"]

if TYPE_CHECKING:
    from .nodes.kept import KeptNodes

_One = TypeVar("_One")
_MILLI = DEVICE // WHOLE  # thousandths of a device in one hundredth
_APART = Refusal(NO_ROOM, "Requested devices of one NVLink or PCIe domain, but those with room are in several. Queued")
_NO_DEVICES = Refusal(DEVICE_LOST, "Requested a part of a device of a node that is not known any more. Plan again")


@dataclass(frozen=True)
class Held:
    """The parts that a running kernel holds, and its class.

    ``overcommit`` is the most times its memory that its team lets a device of it be reserved. ``neighbor``
    is how others on its devices feel it; None: it was never measured.
    """

    parts: tuple[Part, ...]
    workload_class: WorkloadClass
    overcommit: float = math.inf
    neighbor: Neighbor | None = None


@dataclass(frozen=True)
class Capacity:
    """The free capacity. ``closed`` are devices whose capacity an earlier request waits for.

    ``nodes`` are in the order in which they are filled; the gateway's own has no name here. Where
    ``is_complete`` is False, a node exists of which nothing is known yet.

    ``lowered`` has, for each device, the most times its memory that the teams of its kernels let it be
    reserved; ``overcommit`` is that of the team of the kernel to place. ``usual`` are the usual sizes,
    for the order of nodes that needs them.

    ``neighbors`` are the kernels of each device that were measured, and ``model`` predicts how fast they
    run beside others. Where two of them would fall below ``floor`` they are kept apart.
    """

    devices: tuple[CapacityDevice, ...] = ()
    nodes: Mapping[str, NodeRoom] = field(default_factory=lambda: {"": NodeRoom()})
    reserved: Mapping[str, Reserved] = field(default_factory=dict)
    closed: frozenset[str] = frozenset()
    is_complete: bool = True
    lowered: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    overcommit: float = math.inf
    node_order: NodeOrder = NodeOrder.BEST_FIT
    usual: Fragmentation | None = None
    neighbors: Mapping[str, tuple[Neighbor, ...]] = field(default_factory=dict)
    model: Interference = field(default_factory=Interference)
    floor: float = 0.0
    known: Findings = field(init=False, default_factory=Findings, compare=False, repr=False)
    _variants: dict[object, Capacity] = field(init=False, default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.devices, Devices):
            object.__setattr__(self, "devices", Devices(self.devices))

    def under(self, overcommit: float) -> Capacity:
        """Return the capacity for a kernel of a team that overcommits devices so far at most."""
        if overcommit == self.overcommit:
            return self
        if overcommit not in self._variants:
            self._variants[overcommit] = self._alike(replace(self, overcommit=overcommit))
        return self._variants[overcommit]

    def without(self, uuids: frozenset[str]) -> Capacity:
        """Return the capacity with none on these devices."""
        if uuids <= self.closed:
            return self
        if uuids not in self._variants:
            self._variants[uuids] = self._alike(replace(self, closed=self.closed | uuids))
        return self._variants[uuids]

    def of_device(self, uuid: str) -> Capacity:
        """Return the capacity with none but on this device, also where an earlier request waits for it."""
        device = self._by_uuid[uuid]
        room = self.nodes[device.node]
        if room.rule.host_bytes is not None:  # what the others hold counts for the host's memory
            return replace(self, closed=frozenset(one.uuid for one in self.devices if one.uuid != uuid))
        reserved = {uuid: self.reserved[uuid]} if uuid in self.reserved else {}
        return replace(self, devices=(device,), nodes={device.node: room}, reserved=reserved, closed=frozenset())

    def of_node(self, name: str) -> Capacity:
        """Return the capacity with none but on this node."""
        found = replace(self, devices=Devices(self._by_node.get(name, ())), nodes={name: self.nodes[name]})
        found.known.kinds = self.known.kinds
        return found

    def of_model(self, model: str) -> Capacity:
        """Return the capacity with none but on devices of this model; an empty one stands for all."""
        key = ("model", model)
        if model and key not in self._variants:
            others = (one.uuid for one in self.devices if not is_of_model(one.name, model))
            self._variants[key] = self.without(frozenset(others))
        return self._variants[key] if model else self

    def of_models(self, models: Sequence[str]) -> frozenset[str]:
        """Return the devices of any of these models; without any, all."""
        found = (one for one in self.devices if not models or any(is_of_model(one.name, model) for model in models))
        return frozenset(one.uuid for one in found)

    def states(self, workload_class: WorkloadClass) -> Sequence[DeviceState]:
        """Return the devices, as far as a request of this class may reserve parts of them."""
        found = self._states.get(workload_class)
        if found is None:
            found = self._states[workload_class] = [self._state(device, workload_class) for device in self.devices]
        return found

    @cached_property
    def _states(self) -> dict[WorkloadClass, Sequence[DeviceState]]:
        return {}

    def node_of(self, parts: Iterable[Part]) -> str:
        """Return the node of these parts; the gateway's own for parts of a device that is not known."""
        return next((self._by_uuid[part.uuid].node for part in parts if part.uuid in self._by_uuid), "")

    def node_of_device(self, uuid: str) -> str:
        """Return the node of a device that is known."""
        return self._by_uuid[uuid].node

    def room_of(self, parts: Iterable[Part]) -> NodeRoom:
        """Return the facts of the node of these parts."""
        return self.nodes.get(self.node_of(parts)) or NodeRoom()

    def place(
        self,
        request: Request,
        held: Held | None = None,
        models: Sequence[str] = (),
        *,
        is_together: bool = False,
        newcomer: Neighbor | None = None,
    ) -> tuple[Part, ...] | Refusal:
        """Return the parts for a request, or the reason why it does not fit.

        All of a new kernel's devices are of the first of the *models* that has room; without any, of all.

        A running kernel keeps its devices (*held*). A new one gets the node that ``node_order``
        says; by default that where it leaves the least, on its devices and then on the node, so
        that whole ones stay free. Nodes where it takes turns with no other kernel come first, and of
        these those where its devices are in one NVLink or PCIe domain; with *is_together* no other one
        is taken. *newcomer* is its load: of nodes and devices alike in all that, those come first whose
        kernels and it slow each other least.
        """
        size = (request.gpus.hundredths, request.memory_limit)
        if held is None:
            load = newcomer if self.neighbors else None
            places = (self.of_model(model)._place_anywhere(request, is_together, load) for model in models or ("",))
            return _first_placed(list(places))
        capacity, node = self.give_back(held), self.node_of(held.parts)
        states, host = capacity._states_of(node, request.workload_class), capacity._host(node)
        if request.workload_class is held.workload_class:
            kept = {part.uuid: part for part in held.parts}
            states = [state.for_owner(kept[state.uuid]) if state.uuid in kept else state for state in states]
        return resize(states, held.parts, *size, residency=request.residency, host=host)

    def _place_anywhere(
        self, request: Request, is_together: bool, newcomer: Neighbor | None
    ) -> tuple[Part, ...] | Refusal:
        size, differs = (request, request.residency, is_together, newcomer), self.known.differs
        there = (self.known.origin or self)._ranking(size)
        here = self._ranked(size, {name: [(self._places[name], name)] for name in differs}) if differs else Ranking()
        placed = [one for one in (first(here.placed, ()), first(there.placed, differs)) if one is not None]
        if placed:
            chosen = min(placed, key=lambda one: (one.rank, one.at))
            return chosen.found.on([device.uuid for device in self._by_node[chosen.node]])
        refused = [one for one in (first(here.refused, ()), first(there.refused, differs)) if one is not None]
        found = min(refused, key=lambda one: (one.rank, one.at)).found.parts if refused else _NO_DEVICES
        assert isinstance(found, Refusal)
        return found

    def _ranking(self, size: Size) -> Ranking:
        """Return all nodes for a size."""
        rankings = self.known.rankings
        if size not in rankings:
            rankings[size] = self._ranked(size, self._members())
        return rankings[size]

    def _members(self) -> Mapping[int, Sequence[tuple[int, str]]]:
        """Return the nodes of each kind, with their places among all."""
        if self.known.members is None:
            found: dict[int, list[tuple[int, str]]] = {}
            for at, name in enumerate(self.nodes):
                found.setdefault(self._kind_of(name), []).append((at, name))
            self.known.members = found
        return self.known.members

    def by_kind(self) -> tuple[Capacity, Mapping[str, int]]:
        """Return the capacity with the first node alone of those that are alike, and of how many each is the first."""
        return self._by_kind

    @cached_property
    def _by_kind(self) -> tuple[Capacity, Mapping[str, int]]:
        origin, differs = self.known.origin, self.known.differs
        members = self._members() if origin is None else origin._members()
        left = ([name for _, name in those if name not in differs] for those in members.values())
        counts = {names[0]: len(names) for names in left if names} | dict.fromkeys(differs, 1)
        devices = Devices(device for name in counts for device in self._by_node.get(name, ()))
        nodes = {name: self.nodes[name] for name in sorted(counts, key=self._places.__getitem__)}
        sample = replace(self, devices=devices, nodes=nodes)
        sample.known.kinds = self.known.kinds
        return sample, counts

    def _ranked(self, size: Size, groups: Mapping[Any, Sequence[tuple[int, str]]]) -> Ranking:
        """Return groups of nodes that are alike, in order."""
        firsts = ((members, members[0][1]) for members in groups.values())
        return ranking((self.nodes[name].is_busy, members, self._found_on(name, size)) for members, name in firsts)

    @cached_property
    def _places(self) -> Mapping[str, int]:
        origin = self.known.origin
        return {name: at for at, name in enumerate(self.nodes)} if origin is None else origin._places

    def _found_on(self, name: str, size: Size) -> Found:
        """Return the parts of a node for a size, or its refusal: found anew, or on a node of the same kind."""
        request, _, is_together, newcomer = size
        placements, key = self.known.kinds.placements, (size, self._kind_of(name))
        if key not in placements:
            score, parts = self._place_on(name, request, is_together, newcomer)
            uuids = [device.uuid for device in self._by_node.get(name, ())]
            at = () if isinstance(parts, Refusal) else tuple(uuids.index(part.uuid) for part in parts)
            placements[key] = Found(score, parts, at)
        return placements[key]

    def _kind_of(self, name: str) -> int:
        """Return the number of all by which parts for a size are found on a node: the same for nodes alike."""
        kinds = self.known.of_nodes
        if name not in kinds:
            devices = (
                (
                    one,
                    self.reserved.get(one.uuid),
                    one.uuid in self.closed,
                    self.lowered.get(one.uuid, ()),
                    self.neighbors.get(one.uuid, ()),
                )
                for one in self._by_node.get(name, ())
            )
            kinds[name] = self.known.kinds.number(node_facts(self.overcommit, self.nodes[name], devices))
        return kinds[name]

    def _place_on(self, name: str, request: Request, is_together: bool, newcomer: Neighbor | None) -> Placement:
        """Return the node's key among others, and its parts for a request; an empty key and its refusal without any.

        The key: on how many devices it takes turns, whether these are in several domains, then the order of nodes.
        """
        states, room = self._states_of(name, request.workload_class), self.nodes[name]
        if room.is_shut or room.is_away:
            states = [_full(one) for one in states]
        elif self.shut:
            states = [_full(one) if one.uuid in self.shut else one for one in states]
        if newcomer is not None:
            states = [self._beside(one, newcomer) for one in states]
        placed = self._place_in(name, states, request)
        if isinstance(placed, Refusal):
            return (), placed
        turns = _turns(states, placed)
        domains = self._domains_of(name) if request.gpus.hundredths > WHOLE else ()
        if len(domains) < 2:
            return (turns, 0.0, *self._key_of(states, placed)), placed
        together = self._place_together(name, states, request, domains)
        if together is not None and _turns(states, together) > turns:
            together = None  # to take turns costs more than the way between domains
        if together is None and is_together:
            return (), _APART
        chosen = together or placed
        return (turns, float(together is None), *self._key_of(states, chosen)), chosen

    def _place_in(self, name: str, states: Sequence[DeviceState], request: Request) -> tuple[Part, ...] | Refusal:
        size = (request.gpus.hundredths, request.memory_limit)
        return place(states, *size, residency=request.residency, host=self._host(name))

    def _place_together(
        self, name: str, states: Sequence[DeviceState], request: Request, domains: Sequence[frozenset[str]]
    ) -> tuple[Part, ...] | None:
        """Return the parts in a domain that holds the request; None if none does.

        Domains where it takes turns on the fewest devices come first, and of these the fullest.
        """
        there = [[state for state in states if state.uuid in domain] for domain in domains]
        there.sort(key=lambda found: (sum(one.free_hundredths for one in found), found[0].index))
        found = [
            one for one in (self._place_in(name, members, request) for members in there) if not isinstance(one, Refusal)
        ]
        return min(found, key=lambda parts: _turns(states, parts), default=None)

    def _domains_of(self, node: str) -> Sequence[frozenset[str]]:
        """Return the devices of each NVLink or PCIe domain of a node."""
        found: dict[int | None, set[str]] = {}
        for device in self._by_node.get(node, ()):
            found.setdefault(device.domain, set()).add(device.uuid)
        return [frozenset(uuids) for uuids in found.values()]

    def _beside(self, state: DeviceState, newcomer: Neighbor) -> DeviceState:
        """Return a device with the cost of its kernels to a newcomer; full where one of them refuses it."""
        there = self.neighbors.get(state.uuid, ())
        if self.model.refuses(newcomer, there, self.floor):
            return _full(state)
        return replace(state, interference=self.model.cost(newcomer, there)) if there else state

    def _key_of(self, states: Sequence[DeviceState], placed: Iterable[Part]) -> Score:
        taken = {part.uuid: part.hundredths for part in placed}
        free = [_MILLI * one.free_hundredths for one in states]
        after = [left - _MILLI * taken.get(one.uuid, 0) for one, left in zip(states, free, strict=True)]
        cost = max((one.interference for one in states if one.uuid in taken), default=NO_COST)
        return (*node_key(self.node_order, free, after, self.usual), *cost)

    def place_back(self, request: Request, parts: Sequence[Part]) -> tuple[Part, ...] | Refusal:
        """Return the parts of an evicted kernel on its devices, or the reason why they do not fit there now."""
        node = self.node_of(parts)
        states, size = self._states_of(node, request.workload_class), (request.gpus.hundredths, request.memory_limit)
        return resize(states, parts, *size, residency=request.residency, host=self._host(node))

    def place_alone(
        self, request: Request, held: Held | None = None, models: Sequence[str] = (), *, is_together: bool = False
    ) -> tuple[Part, ...] | Refusal:
        """Return the request's parts on an empty node, or the reason why it does not fit.

        ``held``: the parts of a running kernel, which stays there.
        """
        empty = self.emptied()
        empty = empty if held is None else empty.take(held.parts, held.workload_class)
        return empty.place(request, held, models, is_together=is_together)

    def refusal_of_pages(self, request: Request, held: Held | None, models: Sequence[str]) -> Refusal | None:
        """Return why the host memory of no empty node can ever hold the pages that the devices lack.

        None where it can. Larger devices lack less: each size of device is tried as the smallest.
        """
        rooms, refused = {name: NodeRoom(one.rule) for name, one in self.nodes.items()}, None
        for model in models if held is None and models else ("",):
            wanted = self.of_models((model,) if model else ())
            devices = [one for one in self.open().devices if one.uuid in wanted]
            for least in sorted({one.memory_bytes for one in devices}):
                empty = Capacity(tuple(one for one in devices if one.memory_bytes >= least), rooms)
                placed = (empty if held is None else empty.take(held.parts, held.workload_class)).place(request, held)
                if not isinstance(placed, Refusal) or placed.code == NO_ROOM:
                    return None
                refused = refused or placed
        return refused

    def take(self, parts: Iterable[Part], workload_class: WorkloadClass, neighbor: Neighbor | None = None) -> Capacity:
        """Return the capacity after these parts were reserved, for a kernel of this measured load."""
        taken = tuple(parts)
        changed = self._changed(Held(taken, workload_class, self.overcommit, neighbor), 1)
        amount = sum(part.reserved_bytes for part in taken)
        if amount <= self.room_of(taken).largest_kernel_bytes:
            return changed
        return changed._with_room(taken, largest_kernel_bytes=amount)

    def give_back(self, held: Held) -> Capacity:
        """Return the capacity after these parts were released."""
        return self._changed(held, -1)

    def set_aside(self, held: Held) -> Capacity:
        """Return the capacity with less host memory: the copy of a kernel that was swapped out takes it."""
        rule = self.room_of(held.parts).rule
        if rule.host_bytes is None:
            return self
        copy_bytes = sum(part.reserved_bytes for part in held.parts)
        # Below 0 where the budget cannot hold the copy, so that no request fits then.
        return self._with_room(held.parts, rule=replace(rule, host_bytes=rule.host_bytes - copy_bytes))

    def close(self, parts: Sequence[Part]) -> Capacity:
        """Return the capacity with none on the devices of these parts."""
        return replace(self, closed=self.closed | {part.uuid for part in parts})

    def without_host_limit(self) -> Capacity:
        """Return the capacity without a limit of host memory."""
        rooms = {name: replace(one, rule=replace(one.rule, host_bytes=None)) for name, one in self.nodes.items()}
        return replace(self, nodes=rooms)

    @property
    def is_lowered(self) -> bool:
        """Tell whether a team lowers the overcommit of a device, or of the kernel to place."""
        return bool(self.lowered) or self.overcommit != math.inf

    def shared_freely(self) -> Capacity:
        """Return the capacity as if no team lowered the overcommit."""
        return replace(self, lowered={}, overcommit=math.inf)

    def emptied(self) -> Capacity:
        """Return the capacity of the empty nodes, without a limit of host memory. All of them are there."""
        if "emptied" not in self._variants:
            rooms = {name: NodeRoom(replace(one.rule, host_bytes=None)) for name, one in self.nodes.items()}
            self._variants["emptied"] = Capacity(self.open().devices, rooms, is_complete=self.is_complete)
        return self._variants["emptied"]

    def knowing(self, kept: KeptNodes, changed: Collection[str]) -> Capacity:
        """Return the capacity with what earlier ones found of its nodes, but for those that kernels *changed*."""
        self.known.kinds = kept.kinds
        self.known.of_nodes = {name: one.kind for name, one in kept.nodes.items() if name not in changed}
        if kept.empty is None or kept.empty.is_complete is not self.is_complete:
            kept.empty = self.emptied()
        self._variants["emptied"] = kept.empty
        return self

    def open(self) -> Capacity:
        """Return the capacity as if no device were cordoned."""
        return replace(self, devices=tuple(replace(one, is_shut=False) for one in self.devices)) if self.shut else self

    def found(self) -> Capacity:
        """Return the capacity as if no device were lost."""
        return replace(self, devices=tuple(replace(device, is_lost=False) for device in self.devices))

    @property
    def shut(self) -> frozenset[str]:
        """The devices that take no new kernel."""
        return self._table.shut

    @property
    def _table(self) -> Devices:
        assert isinstance(self.devices, Devices)  # see __post_init__
        return self.devices

    @property
    def _by_uuid(self) -> Mapping[str, CapacityDevice]:
        return self._table.by_uuid

    @property
    def _by_node(self) -> Mapping[str, Sequence[CapacityDevice]]:
        return self._table.by_node

    def _states_of(self, node: str, workload_class: WorkloadClass) -> list[DeviceState]:
        return [self._state(device, workload_class) for device in self._by_node.get(node, ())]

    def _state(self, device: CapacityDevice, workload_class: WorkloadClass) -> DeviceState:
        room = self.nodes.get(device.node) or NodeRoom()
        state = device_state(
            device.uuid,
            device.index,
            device.memory_bytes,
            self.reserved.get(device.uuid, Reserved()),
            self._rule(room, device.uuid),
            workload_class.value,
            lost=device.is_lost,
            context_bytes=device.context_bytes,
        )
        is_closed = device.uuid in self.closed or room.is_away
        return _full(state) if is_closed else state

    def _rule(self, room: NodeRoom, uuid: str) -> Oversubscription:
        most = min((self.overcommit, *self.lowered.get(uuid, ())))
        return room.rule if most == math.inf else room.rule.lowered(uuid, most)

    def _host(self, node: str) -> HostRoom | None:
        """Return the host memory that reservations beyond the devices' memory count on."""
        room = self.nodes.get(node) or NodeRoom()
        there = self._by_node.get(node, ())
        devices = ((d.memory_bytes, self.reserved.get(d.uuid, Reserved()).bytes) for d in there)
        return host_room(room.rule.host_bytes, devices, room.largest_kernel_bytes)

    def _with_room(self, parts: Iterable[Part], **changes: Any) -> Capacity:
        node = self.node_of(parts)
        room = replace(self.nodes.get(node) or NodeRoom(), **changes)
        return self._remember(replace(self, nodes={**self.nodes, node: room}), {node})

    def _alike(self, changed: Capacity) -> Capacity:
        """Return a capacity of the same nodes that places by the same rule, with what was found of their kinds."""
        changed.known.kinds = self.known.kinds
        if "emptied" in self._variants:
            changed._variants["emptied"] = self._variants["emptied"]
        return changed

    def _remember(self, changed: Capacity, nodes: set[str]) -> Capacity:
        """Return a capacity that differs in these nodes alone, with what was found on the others."""
        changed.known.inherit(self.known, self, nodes)
        return self._alike(changed)

    def _changed(self, held: Held, sign: int) -> Capacity:
        is_production = held.workload_class is WorkloadClass.PRODUCTION
        reserved = {
            part.uuid: self.reserved.get(part.uuid, Reserved()).plus(part, is_production, sign) for part in held.parts
        }
        changes: dict[str, Any] = {"reserved": Overlay.of(self.reserved, reserved)}
        if held.overcommit != math.inf:
            changes["lowered"] = _counted(self.lowered, held, held.overcommit, sign)
        if held.neighbor is not None:
            changes["neighbors"] = _counted(self.neighbors, held, held.neighbor, sign)
        by_uuid = self._by_uuid
        nodes = {by_uuid[part.uuid].node for part in held.parts if part.uuid in by_uuid}
        return self._remember(replace(self, **changes), nodes)


def _counted(
    of_devices: Mapping[str, tuple[_One, ...]], held: Held, one: _One, sign: int
) -> dict[str, tuple[_One, ...]]:
    """Return what devices have with one more on those of a kernel, or without one that they have."""
    found = dict(of_devices)
    for part in held.parts:
        those = found.get(part.uuid, ())
        at = those.index(one) if one in those else len(those)
        found[part.uuid] = (*those, one) if sign > 0 else (*those[:at], *those[at + 1 :])
    return found


def _first_placed(found: Sequence[tuple[Part, ...] | Refusal]) -> tuple[Part, ...] | Refusal:
    """Return the first of these placements that is none of the refusals; else the first refusal."""
    return next((one for one in found if not isinstance(one, Refusal)), found[0])


def _turns(states: Iterable[DeviceState], parts: Sequence[Part]) -> int:
    """Return on how many devices a kernel with these parts would take turns with others."""
    backed = {state.uuid: state.backed for state in states}
    return sum(part.hundredths > backed[part.uuid][0] or part.reserved_bytes > backed[part.uuid][1] for part in parts)


def _full(state: DeviceState) -> DeviceState:
    return replace(state, free_hundredths=0, free_bytes=0)
