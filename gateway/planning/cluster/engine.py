"""The cluster while a plan is made: places members, withdraws running work, and undoes both."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from jupyter_aliquot.gateway.planning.fragmentation import Fragmentation
from jupyter_aliquot.gateway.planning.jobs import DEVICE
from jupyter_aliquot.gateway.planning.node import Demand, Node, Parts
from jupyter_aliquot.gateway.planning.node_choice import (
    BestFit,
    FragmentationGradient,
    Largest,
    NodeOrder,
    NodeRule,
    Spread,
)

from .accounts import Accounts
from .node_states import NodeStates
from .rules import PlanningError, Rules
from .snapshot import ClusterNode, Request, Running, Snapshot
from .team_tree import TeamTree

# Pool (GPU model), node, device.
Device = tuple[str, int, int]


@dataclass(frozen=True)
class Place:
    """Parts of one node that one member has, or gets."""

    model: str
    at: int
    demand: Demand
    parts: Parts


class Work:
    """Running work in a plan."""

    def __init__(self, running: Running, engine: Engine) -> None:
        self.running = running
        # Whether a member of it moves in this plan. Then no member moves again, or leaves.
        self.has_moved = False
        self._engine = engine

    @cached_property
    def places(self) -> dict[int, Place]:
        """Member index to its place. A plan removes those that leave."""
        nodes, pools = self._engine.nodes, self._engine.pools
        found: dict[int, Place] = {}
        for index, member in enumerate(self.running.members):
            model = nodes[member.node].model
            found[index] = Place(model, pools[model].at[member.node], member.demand, member.parts)
        return found

    @cached_property
    def is_ending(self) -> bool:
        """Whether a member was told to end."""
        return any(member.is_ending for member in self.running.members)


class Engine:
    """The free parts, the teams' accounts and the running work. One plan owns it."""

    def __init__(self, snapshot: Snapshot, requests: Sequence[Request], tree: TeamTree, rules: Rules) -> None:
        self.tree = tree
        self.accounts = Accounts(tree)
        self.nodes = {node.name: node for node in snapshot.nodes}
        if len(self.nodes) < len(snapshot.nodes):
            raise PlanningError("Two nodes of the snapshot have one name. Give each a name of its own")
        self.domains = len({node.domain for node in snapshot.nodes})
        self.works: dict[str, Work] = {}
        # Whether a member was told to end.
        self.has_ending = False
        # Node to the free milli of each device, and its free CPU and memory.
        free = {node.name: [DEVICE] * node.devices for node in snapshot.nodes}
        others = {node.name: [node.cpu, node.memory] for node in snapshot.nodes}
        for running in snapshot.running:
            self._add(running, free, others)
        self.pools = _pools(snapshot.nodes, free, others, requests, rules)
        # Parts that become free when the work in them has left, by device.
        self.leaving: dict[Device, int] = {}
        self.leavers: dict[Device, tuple[str, ...]] = {}
        self._journal: list[tuple[str, bool, Place, bool, int]] = []
        self._close_cordoned()

    @property
    def free_milli(self) -> int:
        """Free thousandths of a device on all nodes."""
        return sum(pool.free_milli for pool in self.pools.values())

    def free_in(self, dimension: str) -> int:
        """Return the free thousandths of all models that count for one quota."""
        return sum(pool.free_milli for model, pool in self.pools.items() if self.tree.dimension(model) == dimension)

    @cached_property
    def works_by_team(self) -> dict[str, list[Work]]:
        """The running work of each team. Work whose members have all left stays in it."""
        found: dict[str, list[Work]] = {}
        for work in self.works.values():
            found.setdefault(work.running.team, []).append(work)
        return found

    def node_name(self, place: Place) -> str:
        """Return the name of a place's node."""
        return self.pools[place.model].nodes[place.at].name

    def take(self, team: str, place: Place, *, is_preemptible: bool) -> None:
        """Give a place to work of a team."""
        self._apply(team, is_preemptible, place, 1)

    def give_back(self, team: str, place: Place, *, is_preemptible: bool) -> None:
        """Take a place from work of a team."""
        self._apply(team, is_preemptible, place, -1)

    def mark(self) -> int:
        """Return a mark for ``undo``."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Take back all that was given and taken since."""
        while len(self._journal) > mark:
            team, is_preemptible, place, is_counted, sign = self._journal.pop()
            self._change(team, is_preemptible, place, is_counted, -sign)

    def hold(self, place: Place) -> None:
        """Take a place that no team is charged for."""
        self._journal.append(("", True, place, False, 1))
        self._change("", True, place, False, 1)

    def unhold(self, place: Place) -> None:
        """Return a place that ``hold`` took."""
        self._journal.append(("", True, place, False, -1))
        self._change("", True, place, False, -1)

    def note_leaving(self, name: str, place: Place) -> None:
        """Note that the parts of a place are free only once this work has left."""
        for device, milli in place.parts:
            key = (place.model, place.at, device)
            self.leaving[key] = self.leaving.get(key, 0) + milli
            self.leavers[key] = (*self.leavers.get(key, ()), name)

    def waits_for(self, place: Place) -> tuple[str, ...]:
        """Return the work that has to leave before this place, which was taken, is free; none if it is."""
        found: list[str] = []
        for device, _ in place.parts:
            key = (place.model, place.at, device)
            leaving = self.leaving.get(key, 0)
            if leaving > self.pools[place.model].nodes[place.at].free[device]:
                found += self.leavers[key]
        return tuple(dict.fromkeys(found))

    def _apply(self, team: str, is_preemptible: bool, place: Place, sign: int) -> None:
        self._journal.append((team, is_preemptible, place, True, sign))
        self._change(team, is_preemptible, place, True, sign)

    def _change(self, team: str, is_preemptible: bool, place: Place, is_counted: bool, sign: int) -> None:
        pool = self.pools[place.model]
        if sign > 0:
            pool.take(place.at, place.demand, place.parts)
        else:
            pool.give_back(place.at, place.demand, place.parts)
        if is_counted:
            dimension = self.tree.dimension(place.model)
            self.accounts.add(team, dimension, sign * place.demand.milli, is_preemptible=is_preemptible)

    def _add(self, running: Running, free: Mapping[str, list[int]], others: Mapping[str, list[int]]) -> None:
        name, team = running.name, running.team
        if team not in self.tree.teams:
            raise PlanningError(
                f"{name!r} runs for the team {team!r}, which is no team. Keep a team, with no quota, until its work "
                "has ended"
            )
        if name in self.works:
            raise PlanningError(f"Two running works are named {name!r}. Give each a name of its own")
        _check_times(running)
        for member in running.members:
            self.has_ending = self.has_ending or member.is_ending
            left = free.get(member.node)
            if left is None:
                raise PlanningError(f"{name!r} runs on {member.node!r}, which is no node of the snapshot")
            if member.cpu < 0 or member.memory < 0:
                raise PlanningError(
                    f"{name!r} holds {member.cpu} thousandths of a core and {member.memory} MiB on {member.node!r}. "
                    "Give 0 or more each"
                )
            milli = 0
            for device, part in member.parts:
                if not 0 <= device < len(left) or part <= 0:
                    raise PlanningError(
                        f"{name!r} holds {part} thousandths of device {device} of {member.node!r}, which has the "
                        f"devices 0 to {len(left) - 1}"
                    )
                left[device] -= part
                milli += part
            others[member.node][0] -= member.cpu
            others[member.node][1] -= member.memory
            dimension = self.tree.dimension(self.nodes[member.node].model)
            self.accounts.add(team, dimension, milli, is_preemptible=running.is_preemptible)
        self.works[name] = Work(running, self)

    def _close_cordoned(self) -> None:
        for node in self.nodes.values():
            if node.is_cordoned:
                pool = self.pools[node.model]
                at = pool.at[node.name]
                free = pool.nodes[at].free
                parts = tuple((device, milli) for device, milli in enumerate(free) if milli > 0)
                pool.take(at, Demand(sum(milli for _, milli in parts)), parts)


def _check_times(running: Running) -> None:
    for field in ("started", "submitted", "end"):
        value = getattr(running, field)
        if value is not None and math.isnan(value):
            raise PlanningError(f"The time {field} of {running.name!r} is {value}. Give the seconds of a clock")


def _pools(
    nodes: Iterable[ClusterNode],
    free: Mapping[str, Sequence[int]],
    others: Mapping[str, Sequence[int]],
    requests: Sequence[Request],
    rules: Rules,
) -> dict[str, NodeStates]:
    by_model: dict[str, list[Node]] = {}
    links = {node.name: node.links for node in nodes}
    for node in nodes:
        made = Node(node.name, node.devices, node.cpu, node.memory, node.model)
        by_model.setdefault(node.model, []).append(made)
    found: dict[str, NodeStates] = {}
    for model, members in sorted(by_model.items()):
        rule = _rule(members, requests, rules)
        for one in members:
            one.free = tuple(free[one.name])
            one.free_milli = sum(one.free)
            one.free_cpu, one.free_memory = others[one.name]
        found[model] = NodeStates(members, links.__getitem__, rule)
    return found


def _rule(nodes: Sequence[Node], requests: Sequence[Request], rules: Rules) -> NodeRule:
    largest = Largest.of(nodes)
    if rules.node_order is NodeOrder.SPREAD:
        return Spread(largest)
    if rules.node_order is NodeOrder.FRAGMENTATION:
        return FragmentationGradient(Fragmentation(demands(requests)), largest)
    return BestFit(largest)


def demands(requests: Iterable[Request]) -> Iterator[Demand]:
    """Yield the demand of each member."""
    for request in requests:
        for milli in request.sizes:
            yield Demand(milli, request.cpu, request.memory)


def demands_of(request: Request, members: Iterable[int]) -> list[tuple[int, Demand]]:
    """Return the demand of each of these members. A member runs on one node."""
    return [(index, Demand(request.sizes[index], request.cpu, request.memory)) for index in members]
