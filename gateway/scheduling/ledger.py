"""The ledger: the devices as the agents last reported them, and the grants of this gateway.

Admission alone writes it. Readers get a frozen snapshot, which is replaced whole and never edited.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from jupyter_aliquot.gateway.planning.colocation import NO_LOADS, Loads, Neighbor
from jupyter_aliquot.gateway.planning.fragmentation import Fragmentation
from jupyter_aliquot.gateway.planning.node import Demand
from jupyter_aliquot.gateway.planning.node_choice import NodeOrder
from jupyter_aliquot.gateway.sizes.grammar import base_of, resized_name
from jupyter_aliquot.gateway.sizes.wish import NO_WISH, Wish
from jupyter_aliquot.gateway.teams.values import Quotas
from jupyter_aliquot.gpu_hook.placement.overcommit import Reserved
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.provisioner.resources import Grant, Request, WorkloadClass

from .capacity import Capacity, Held
from .cordons import DRAIN, TAKEN, Cordon
from .nodes.kept import Kept, Marks
from .nodes.reports import Device, Leaving, Node
from .queue_policy import PastUse
from .resize import held_of, quota_of

__all__ = ["EARLIER", "Device", "Holding", "KernelRef", "Leaving", "Ledger", "LedgerSnapshot", "Node", "Others"]

# Stands for the kernel that another one leaves for, where an earlier gateway knew it.
EARLIER = "an earlier request"
# Beyond so many changed grants, all are looked at.
_MOST_TOUCHED = 64


@dataclass(frozen=True)
class KernelRef:
    """The kernel that a request or a grant is for: its id, its owner, and its name for users.

    ``teams`` are the owner's when the kernel was requested, for its whole life. ``replaces`` are
    the ids of kernels of the same owner that it replaces. ``account`` is the one that asked at the
    local socket for a kernel of its own; None: a kernel that the gateway starts.
    """

    kernel_id: str
    owner: str
    label: str = ""
    kernelspec: str = ""
    teams: frozenset[str] = frozenset()
    replaces: frozenset[str] = frozenset()
    account: int | None = None
    wish: Wish = NO_WISH


@dataclass(frozen=True)
class Holding:
    """A grant that was given and not yet released.

    It is unconfirmed while an agent that came back has not renewed it. ``refusal`` is why the agent
    last refused to.

    An evicted kernel is swapped out and reserves nothing until it returns; one that leaves is told
    to, for the kernel ``leaves_for``. ``stays_because`` is why it cannot be swapped out, and one
    that is ``spared`` stays although it could; both hold until ``stays_until``, when it is tried
    again. ``queued_at``, ``granted_at`` and ``stays_until`` are on admission's clock.
    """

    grant: Grant
    requester: KernelRef
    since: float
    is_confirmed: bool = True
    refusal: str = ""
    queued_at: float = 0.0
    granted_at: float = 0.0
    # It was started ahead of a request that waited, on the condition that it leaves for it.
    is_backfilled: bool = False
    passed: frozenset[str] = frozenset()  # the kernels whose requests waited then
    leaves_for: str = ""
    is_evicted: bool = False
    stays_because: str = ""
    is_spared: bool = False
    stays_until: float = 0.0
    # Its team's policy ends it. The agent is not told to evict it.
    is_ended: bool = False

    @cached_property
    def is_settled(self) -> bool:
        """Tell whether it is an ordinary grant: confirmed, and neither leaving, nor out, nor on a condition."""
        is_told = self.leaves_for or self.is_evicted or self.is_ended
        stays = self.stays_because or self.is_spared or self.stays_until
        return self.is_confirmed and not (is_told or stays or self.is_backfilled)

    @property
    def is_leaving(self) -> bool:
        """Return whether it was told to leave its GPU, and has not left yet."""
        return bool(self.leaves_for) and not self.is_evicted

    @property
    def can_be_evicted(self) -> bool:
        """Return whether it may be told to leave now, or was."""
        return self.is_confirmed and not (self.is_evicted or self.is_spared or self.stays_because)

    @property
    def doubt(self) -> str | None:
        """Return a sentence for its user while it is evicted or not confirmed; None otherwise."""
        if self.is_evicted and self.leaves_for == DRAIN:
            return (
                "Evicted: an administrator drains the node of this kernel. Its memory is kept on the host, and its "
                "cells go on when the node is back in use"
            )
        if self.is_evicted and self.leaves_for == TAKEN:
            return (
                "Evicted: the cluster took back this kernel's GPU. Its memory is kept on the host, and its cells go on "
                "when the server holds the same GPU again; it cannot move to another one"
            )
        if self.is_evicted and self.leaves_for in ("", EARLIER):  # an earlier gateway knew why
            return (
                "Evicted: the GPU of this kernel was taken back. Its memory is kept on the host, and its cells go on "
                "when it has its GPU again"
            )
        if self.is_evicted:
            return (
                "Evicted: another request took back the GPU that this kernel had on loan. Its memory is kept on the "
                "host, and its cells go on when it has its GPU again"
            )
        if self.is_confirmed:
            return None
        if not self.refusal:
            return "The node agent has not confirmed this kernel's GPU yet"
        return (
            f"The node agent does not confirm this kernel's GPU: {self.refusal}. The kernel runs on, and the server "
            "asks again; end other kernels on the GPU, or save and restart this one"
        )

    def told_by(self, node: Node) -> Holding:
        """Return it with what the agent says: it alone knows which kernels leave, have left, and were moved."""
        kernel_id = self.grant.kernel_id
        device = node.moved.get(kernel_id)
        if self.is_confirmed and device is not None and device not in self.grant.uuids:
            return replace(self, is_confirmed=False).told_by(node)
        is_evicted = kernel_id in (node.evicted or ())
        if is_evicted != self.is_evicted:
            return replace(self, is_evicted=is_evicted, leaves_for=self.leaves_for if is_evicted else "")
        if is_evicted or node.leaving is None or self.is_ended or (kernel_id in node.leaving) == self.is_leaving:
            return self
        # An earlier gateway told it, or the agent has forgotten that this one did.
        return replace(self, leaves_for=EARLIER if kernel_id in node.leaving else "")

    def stays(self, until: float, why: str = "") -> Holding:
        """Return it as one that stays until then: for this reason, or without one, because it is spared."""
        return replace(self, leaves_for="", stays_because=why, is_spared=not why, stays_until=until)

    def tried_again(self, now: float) -> Holding:
        """Return it as one that may leave, if its time to stay is over."""
        if self.is_ended or not (self.stays_because or self.is_spared) or now < self.stays_until:
            return self
        return replace(self, stays_because="", is_spared=False, stays_until=0.0)

    def resized(self, grant: Grant) -> Holding:
        """Return the same kernel with another grant, and with the kernelspec's name in that size."""
        kernelspec = resized_name(self.requester.kernelspec, grant.request)
        return replace(self, grant=grant, requester=replace(self.requester, kernelspec=kernelspec))


@dataclass(frozen=True)
class LedgerSnapshot:
    """The ledger at one moment. ``version`` counts the commits.

    ``quotas`` are the teams' quotas in force; None without a quota file. ``ending`` are grants that
    were released, until no process of their kernel keeps memory: they count for limits alone.
    ``node`` is the gateway's own, ``others`` are those whose agents dial in and that its runtime
    serves; ``cordons`` are theirs, and those of devices by UUID. ``busy`` nodes have not answered yet to
    what they were asked, so that they come last. ``is_complete`` is False while one node is not known yet.
    ``leaving_devices`` go soon: their kernels leave them, and none starts there.
    """

    version: int = 0
    node: Node = field(default_factory=Node)
    holdings: Mapping[str, Holding] = field(default_factory=lambda: MappingProxyType({}))
    quotas: Quotas | None = None
    ending: Mapping[str, Holding] = field(default_factory=lambda: MappingProxyType({}))
    cordon: Cordon | None = None  # of its node
    others: tuple[Node, ...] = ()
    cordons: Mapping[str, Cordon] = field(default_factory=lambda: MappingProxyType({}))
    busy: frozenset[str] = frozenset()
    is_complete: bool = True
    past: PastUse = field(default_factory=PastUse)
    leaving_devices: frozenset[str] = frozenset()
    loads: Loads = NO_LOADS
    kept: Kept = field(default_factory=Kept, compare=False, repr=False)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes; the gateway's own is left out where it has none."""
        return (self.node, *self.others) if self.node.devices or not self.others else self.others

    def node_of(self, grant: Grant) -> Node:
        """Return the node of a grant: one of the others by its name, else the gateway's own."""
        return self._others.get(grant.node, self.node) if self.others else self.node

    def cordon_of(self, node: Node) -> Cordon | None:
        """Return a node's cordon; None if it has none."""
        return self.cordon if node is self.node else self.cordons.get(node.name)

    def cordon_for(self, held: Held | None) -> tuple[Cordon, str] | None:
        """Return the cordon, and its node, that a request meets; None if a node is open to it.

        A request for new devices meets one where all nodes are cordoned.
        """
        if not self.others:
            return None if self.cordon is None else (self.cordon, self.node.name)
        if held is None:
            return self._cordon_everywhere
        holder = self._holder(held)
        cordon = self.cordon_of(holder)
        return None if cordon is None else (cordon, holder.name)

    @cached_property
    def _cordon_everywhere(self) -> tuple[Cordon, str] | None:
        found = [(cordon, one.name) for one in self.nodes if (cordon := self.cordon_of(one)) is not None]
        return found[0] if found and len(found) == len(self.nodes) else None

    @cached_property
    def has_evicting_nodes(self) -> bool:
        """Tell whether the agent of any node evicts kernels."""
        return any(node.can_evict for node in self.nodes)

    def can_evict(self, parts: Iterable[Part]) -> bool:
        """Return whether the agent of these parts' node evicts kernels."""
        return (self._others.get(self.capacity().node_of(parts), self.node) if self.others else self.node).can_evict

    def _holder(self, held: Held) -> Node:
        uuids = {part.uuid for part in held.parts}
        return next((one for one in self.others if any(d.uuid in uuids for d in one.devices)), self.node)

    @cached_property
    def _others(self) -> Mapping[str, Node]:
        return {one.name: one for one in self.others}

    def capacity(self) -> Capacity:
        """Return the capacity to plan with.

        That of a grant which is not renewed yet is not free for others.
        """
        return self._capacity

    @cached_property
    def _capacity(self) -> Capacity:
        order = NodeOrder.BEST_FIT if self.quotas is None else self.quotas.node_order
        floor, usual = 0.0 if self.quotas is None else self.quotas.neighbor_floor, self._usual(order)
        kept = self.kept.look_at(
            ((node, self._marks(node)) for node in self.nodes), (order, usual, floor, self.loads.model)
        )
        rooms = {name: one.room for name, one in kept.nodes.items()}
        reserved: dict[str, Reserved] = {}
        for one in kept.nodes.values():
            reserved.update(one.reserved)
        capacity = Capacity(kept.devices, rooms, reserved, self.leaving_devices, self.is_complete)
        lowered, neighbors = self._lowered(), self._neighbors()
        apart = {*self.leaving_devices, *lowered, *neighbors}
        for holding in self.unsettled.values():
            if not holding.is_confirmed and not holding.is_evicted:
                held = held_of(holding.grant)
                capacity = capacity.take(held.parts, held.workload_class)
                apart.update(part.uuid for part in held.parts)
        changed = {device.node for uuid in apart if (device := kept.devices.by_uuid.get(uuid)) is not None}
        capacity = replace(capacity, lowered=lowered, node_order=order, usual=usual)
        return replace(capacity, neighbors=neighbors, model=self.loads.model, floor=floor).knowing(kept, changed)

    def _marks(self, node: Node) -> Marks:
        # The planner keeps requests off a node that is the only one, and says so.
        is_shut = bool(self.others) and self.cordon_of(node) is not None
        shut = [one.uuid for one in node.devices if one.uuid in self.cordons] if self.cordons else ()
        return Marks("" if node is self.node else node.name, is_shut, node.name in self.busy, tuple(shut))

    def _neighbors(self) -> Mapping[str, tuple[Neighbor, ...]]:
        """Return the kernels of each device that were measured."""
        found: dict[str, list[Neighbor]] = {}
        # While none was measured, a look at a thousand takes most of a cycle's time.
        for holding in self.holdings.values() if self.loads.has_any else ():
            if holding.is_evicted or (neighbor := self.neighbor_of(holding)) is None:
                continue
            for quota in holding.grant.quotas:
                found.setdefault(quota.uuid, []).append(neighbor)
        return {uuid: tuple(there) for uuid, there in found.items()}

    def neighbor_of(self, holding: Holding) -> Neighbor | None:
        """Return a kernel as others on its devices feel it; None where it was never measured."""
        who, is_normal = holding.requester, holding.grant.request.workload_class is WorkloadClass.PRODUCTION
        return self.loads.resident(who.kernel_id, who.owner, base_of(who.kernelspec), is_normal=is_normal)

    def _usual(self, order: NodeOrder) -> Fragmentation | None:
        """Return the measure of fragmentation by the kernels that run, for the order that needs it."""
        if order is not NodeOrder.FRAGMENTATION:
            return None
        return Fragmentation(Demand(10 * one.grant.request.gpus.hundredths) for one in self.holdings.values())

    def _lowered(self) -> Mapping[str, tuple[float, ...]]:
        """Return the overcommit that the teams of each device's kernels allow there."""
        found: dict[str, tuple[float, ...]] = {}
        if self.quotas is None or not self.quotas.lowers_overcommit:
            return found
        for held in (self.held(one) for one in self.holdings.values() if not one.is_evicted):
            for part in held.parts if held.overcommit != math.inf else ():
                found[part.uuid] = (*found.get(part.uuid, ()), held.overcommit)
        return found

    @cached_property
    def team_overcommit(self) -> Mapping[str, float]:
        """Return the overcommit of each device, by uuid, that a team of its kernels lowers."""
        return {uuid: min(ratios) for uuid, ratios in self._lowered().items()}

    def held(self, holding: Holding) -> Held:
        """Return the parts of a grant, and how far its team lets their devices be overcommitted."""
        before, found = self._helds.get(holding.grant.kernel_id, (None, None))
        if found is None or before is not holding:
            found = self._held(holding)
            self._helds[holding.grant.kernel_id] = holding, found
        return found

    @cached_property
    def _helds(self) -> dict[str, tuple[Holding, Held]]:
        return {}

    def _held(self, holding: Holding) -> Held:
        held, neighbor = held_of(holding.grant), self.neighbor_of(holding) if self.loads is not NO_LOADS else None
        held = held if neighbor is None else replace(held, neighbor=neighbor)
        if self.quotas is None or not self.quotas.lowers_overcommit:
            return held
        return replace(held, overcommit=self.quotas.overcommit_of(holding.grant.owner, holding.requester.teams))

    def without(self, kernel_id: str) -> LedgerSnapshot:
        """Return the ledger as it will be once this kernel has ended."""
        holding = self.holdings.get(kernel_id)
        if holding is None:
            return self
        holdings = MappingProxyType({one: held for one, held in self.holdings.items() if one != kernel_id})
        if not holding.is_confirmed or holding.is_evicted:
            left = replace(self, holdings=holdings)  # the agent does not count it
            left.take_views(self, [kernel_id])
            return left
        node = self.node_of(holding.grant)
        capacity = Capacity(reserved={device.uuid: device.all_reserved for device in node.devices})
        reserved = capacity.give_back(held_of(holding.grant)).reserved
        devices = tuple(device.with_reserved(reserved[device.uuid]) for device in node.devices)
        left = replace(self._with_node(node, replace(node, devices=devices)), holdings=holdings)
        left.take_views(self, [kernel_id])
        return left

    def _with_node(self, before: Node, after: Node) -> LedgerSnapshot:
        if before is self.node:
            return replace(self, node=after)
        return replace(self, others=tuple(after if one is before else one for one in self.others))

    def with_parts(self, kernel_id: str, request: Request, parts: Sequence[Part]) -> LedgerSnapshot:
        """Return the ledger after this kernel has exchanged its present parts for these."""
        before, left = self.holdings.get(kernel_id), self.without(kernel_id)
        there = left._holder(Held(tuple(parts), request.workload_class))
        capacity = Capacity(reserved={device.uuid: device.all_reserved for device in there.devices})
        reserved = capacity.take(parts, request.workload_class).reserved
        devices = tuple(device.with_reserved(reserved[device.uuid]) for device in there.devices)
        largest = max(there.largest_kernel_bytes, sum(part.reserved_bytes for part in parts))
        left = left._with_node(there, replace(there, devices=devices, largest_kernel_bytes=largest))
        if before is None:
            return left
        grant = replace(before.grant, request=request, quotas=tuple(quota_of(part) for part in parts))
        holding = replace(before, grant=grant, is_confirmed=True, is_evicted=False, leaves_for="")
        return replace(left, holdings=MappingProxyType({**left.holdings, kernel_id: holding}))

    def with_promised(self, holding: Holding, parts: Sequence[Part]) -> LedgerSnapshot:
        """Return the ledger as if the agent, which is asked for these parts now, had reserved them."""
        kernel_id = holding.grant.kernel_id
        after = self.with_parts(kernel_id, holding.grant.request, parts)
        if kernel_id in self.holdings:
            return after
        quotas = tuple(quota_of(part) for part in parts)
        promised = replace(holding, grant=replace(holding.grant, quotas=quotas))
        return replace(after, holdings=MappingProxyType({**after.holdings, kernel_id: promised}))

    def held_by(self, owner: str, teams: Iterable[str] = ()) -> tuple[Holding, ...]:
        """Return the grants of this user, and those requested in one of these teams; each once.

        Those that are ending are among them.
        """
        found = dict(self._by_owner.get(owner, {}))
        for team in teams:
            found.update((held.grant.kernel_id, held) for held in self._by_team.get(team, ()))
        return tuple(found.values())

    def with_renewed(self, kernel_ids: Iterable[str]) -> LedgerSnapshot:
        """Return the snapshot in which the ending grants of these kernels do not count: they are requested again."""
        renewed = self.ending.keys() & set(kernel_ids) if self.ending else ()
        return replace(self, ending=_without(self.ending, renewed)) if renewed else self

    def held_in_place_of(self, kernel_ids: frozenset[str]) -> tuple[Held, ...]:
        """Return the parts that these kernels hold, of those that hold any. An evicted kernel holds none."""
        if not kernel_ids:
            return ()
        found = (self.holdings.get(kernel_id) for kernel_id in sorted(kernel_ids))
        return tuple(self.held(one) for one in found if one is not None and not one.is_evicted)

    @cached_property
    def unsettled(self) -> Mapping[str, Holding]:
        """The few grants that a cycle has to look at again."""
        return MappingProxyType({one: held for one, held in self.holdings.items() if not held.is_settled})

    def on_device(self, uuid: str) -> Sequence[Holding]:
        """Return the grants with a part of a device, evicted ones left out."""
        return self._by_device.get(uuid, ())

    @cached_property
    def _by_device(self) -> Mapping[str, Sequence[Holding]]:
        found: dict[str, list[Holding]] = {}
        for one in self.holdings.values():
            for quota in () if one.is_evicted else one.grant.quotas:
                found.setdefault(quota.uuid, []).append(one)
        return found

    # Each status request asks for its user's own: a few of a thousand.

    @cached_property
    def _by_owner(self) -> Mapping[str, Mapping[str, Holding]]:
        found: dict[str, dict[str, Holding]] = {}
        for kernel_id, held in (*self.holdings.items(), *self.ending.items()):
            found.setdefault(held.grant.owner, {})[kernel_id] = held
        return found

    @cached_property
    def _by_team(self) -> Mapping[str, Sequence[Holding]]:
        found: dict[str, list[Holding]] = {}
        for held in (*self.holdings.values(), *self.ending.values()):
            for team in held.requester.teams:
                found.setdefault(team, []).append(held)
        return found

    def take_views(self, before: LedgerSnapshot, touched: Collection[str]) -> None:
        """Take over what *before* has found in all grants, with *touched* kernels anew. The ledger calls it first."""
        known, views = vars(before), vars(self)
        if "unsettled" in known and len(touched) <= _MOST_TOUCHED:
            new = {one: held for one in touched if (held := self.holdings.get(one)) and not held.is_settled}
            views["unsettled"] = MappingProxyType({**_without(before.unsettled, touched), **new})
        if "_by_owner" in known and len(touched) <= _MOST_TOUCHED:
            found, tables = dict(before._by_owner), (self.holdings, self.ending)
            new = {one: table[one] for table in tables for one in touched if one in table}
            old = (table[one] for table in (before.holdings, before.ending) for one in touched if one in table)
            for owner in {held.grant.owner for held in (*old, *new.values())}:
                mine = {one: held for one, held in new.items() if held.grant.owner == owner}
                mine = {**_without(found.pop(owner, {}), touched), **mine}
                found.update({owner: mine} if mine else {})
            views["_by_owner"] = found
        if "_by_device" in known and len(touched) <= _MOST_TOUCHED:
            views["_by_device"] = self._on_devices(before, touched)

    def _on_devices(self, before: LedgerSnapshot, touched: Collection[str]) -> Mapping[str, Sequence[Holding]]:
        """Return the grants of each device by those of *before*, with *touched* kernels anew."""
        found, new = dict(before._by_device), [held for one in sorted(touched) if (held := self.holdings.get(one))]
        old = [held for one in touched if (held := before.holdings.get(one))]
        for uuid in {quota.uuid for held in (*old, *new) for quota in held.grant.quotas}:
            stay = [held for held in found.pop(uuid, ()) if held.grant.kernel_id not in touched]
            come = [held for held in new if not held.is_evicted and any(one.uuid == uuid for one in held.grant.quotas)]
            if stay or come:
                found[uuid] = [*stay, *come]
        return found


@dataclass(frozen=True)
class Others:
    """The nodes whose agents dial in. ``names`` has those, too, of which nothing is known yet."""

    nodes: tuple[Node, ...] = ()
    names: frozenset[str] = frozenset()
    busy: frozenset[str] = frozenset()

    @property
    def is_complete(self) -> bool:
        return len(self.nodes) == len(self.names)


class Ledger:
    """The current snapshot, which one method changes.

    ``quotas`` returns the teams' quotas that are in force at a commit, ``cordon_of`` that of a node,
    ``past`` the queue's memory, ``leaving_devices`` the devices that go soon, ``loads`` the measured loads.
    """

    def __init__(
        self,
        quotas: Callable[[], Quotas | None] = lambda: None,
        cordon_of: Callable[[str], Cordon | None] = lambda node: None,
        past: Callable[[], PastUse] = PastUse,
        leaving_devices: Callable[[], frozenset[str]] = frozenset,
        loads: Callable[[], Loads] = lambda: NO_LOADS,
    ) -> None:
        self._leaving_devices = leaving_devices
        self._loads = loads
        self._quotas = quotas
        self._cordon_of = cordon_of
        self._past = past
        self._current = LedgerSnapshot(quotas=quotas())
        self._others = Others()
        self._told: frozenset[str] = frozenset()  # kernels that leave or have left, as the agent last said

    def snapshot(self) -> LedgerSnapshot:
        return self._current

    def commit(
        self,
        *,
        node: Node | None = None,
        others: Others | None = None,
        granted: Iterable[Holding] = (),
        released: Iterable[str] = (),
    ) -> LedgerSnapshot:
        """Apply one change whole. A grant replaces the kernel's earlier one.

        A released grant is ending until an answer of its agent after that tells that it is not. A node
        that is away has not answered: what it told last was counted already.
        """
        gone, given = set(released), {holding.grant.kernel_id: holding for holding in granted}
        known, self._others = {id(one) for one in self._current.others}, others or self._others
        answers = replace(self._current, node=node or self._current.node, others=self._others.nodes)
        new = [*([] if node is None else [node]), *(one for one in self._others.nodes if id(one) not in known)]
        news = [one for one in new if not one.is_away]
        fresh = {id(one) for one in news}
        if any(one.evicted is not None for one in news):
            given |= self._told_by(answers, fresh, given)
        holdings, ending = self._current.holdings, self._current.ending
        if gone or given:
            kept = dict(holdings)
            left = {kernel_id: kept.pop(kernel_id) for kernel_id in gone if kernel_id in kept}
            holdings = MappingProxyType({**kept, **given})
            ending = _without({**ending, **left}, given)
        if news and ending:
            told = [(one, answers.node_of(held.grant)) for one, held in ending.items()]
            ending = _without(ending, [one for one, by in told if id(by) in fresh and one not in by.ending])
        touched = gone | given.keys() | (self._current.ending.keys() - ending.keys())
        made = self._made(self._current.node if node is None else node, holdings, ending)
        made.take_views(self._current, touched)
        self._current = made
        return made

    def _made(self, node: Node, holdings: Mapping[str, Holding], ending: Mapping[str, Holding]) -> LedgerSnapshot:
        others = self._others
        devices = [device.uuid for one in (node, *others.nodes) for device in one.devices]
        names = (*(one.name for one in others.nodes), *devices)
        cordons = {name: cordon for name in names if (cordon := self._cordon_of(name)) is not None}
        drained = {uuid for uuid in devices if uuid in cordons and cordons[uuid].is_draining}
        return LedgerSnapshot(
            version=self._current.version + 1,
            node=node,
            holdings=holdings,
            quotas=self._quotas(),
            ending=ending,
            cordon=self._cordon_of(node.name),
            leaving_devices=self._leaving_devices() | drained,
            others=others.nodes,
            cordons=MappingProxyType(cordons),
            busy=others.busy,
            is_complete=others.is_complete,
            past=self._past(),
            loads=self._loads(),
            kept=self._current.kept,
        )

    def _told_by(
        self, answers: LedgerSnapshot, fresh: Collection[int], given: Mapping[str, Holding]
    ) -> dict[str, Holding]:
        """Return the grants of which their agent says otherwise than the ledger: evicted, or moved."""
        holdings = self._current.holdings
        said = frozenset[str]().union(*(one.told_of for one in answers.nodes))
        asked = said | self._told | {kernel_id for kernel_id, one in self._current.unsettled.items() if one.leaves_for}
        known = {**{one: held for one in asked if (held := holdings.get(one))}, **given}
        self._told = said
        by = {kernel_id: answers.node_of(holding.grant) for kernel_id, holding in known.items()}
        told = {one: holding.told_by(by[one]) if id(by[one]) in fresh else holding for one, holding in known.items()}
        return {kernel_id: holding for kernel_id, holding in told.items() if holding is not known[kernel_id]}

    def doubt(self, node: str | None) -> LedgerSnapshot:
        """Make the grants of a node unconfirmed: its agent was away, and must renew them. None: the gateway's own."""
        return self.commit(granted=[replace(one, is_confirmed=False) for one in self.on(node)])

    def on(self, node: str | None) -> list[Holding]:
        """Return the grants on a node. None: the gateway's own, which has those of no other known node."""
        held, names = self._current.holdings.values(), self._others.names
        if node is not None:
            return [one for one in held if one.grant.node == node]
        return [one for one in held if one.grant.node not in names]


def _without(holdings: Mapping[str, Holding], kernel_ids: Collection[str]) -> Mapping[str, Holding]:
    return MappingProxyType({one: holding for one, holding in holdings.items() if one not in kernel_ids})
