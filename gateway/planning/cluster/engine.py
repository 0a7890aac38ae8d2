"""The cluster while a plan is made: places members, withdraws running work, and undoes both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jupyter_aliquot.gateway.planning.fragmentation import Fragmentation
from jupyter_aliquot.gateway.planning.node import Demand, Node, Parts
from jupyter_aliquot.gateway.planning.node_choice import BestFit, FragmentationGradient, Largest, NodeRule, Spread

from .accounts import Accounts
from .node_states import NodeStates
from .rules import NodeOrder, PlanningError, Rules
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


@dataclass(eq=False)
class Work:
    """Running work in a plan. ``places`` is member index to its place; those that left are not in it."""

    running: Running
    places: dict[int, Place] = field(default_factory=dict)


class Engine:
    """The free parts, the teams' accounts and the running work. One plan owns it."""

    def __init__(self, snapshot: Snapshot, requests: Sequence[Request], tree: TeamTree, rules: Rules) -> None:
        self.tree = tree
        self.accounts = Accounts(tree)
        self.nodes = {node.name: node for node in snapshot.nodes}
        if len(self.nodes) < len(snapshot.nodes):
            raise PlanningError("Two nodes of the snapshot have one name. Give each a name of its own")
        self.pools = _pools(snapshot.nodes, requests, rules)
        self.works: dict[str, Work] = {}
        # Parts that become free when the work in them has left, by device.
        self.leaving: dict[Device, int] = {}
        self.leavers: dict[Device, tuple[str, ...]] = {}
        self._journal: list[tuple[str, bool, Place, bool, int]] = []
        for running in snapshot.running:
            self._add(running)
        self._close_cordoned()

    @property
    def free_milli(self) -> int:
        """Free thousandths of a device on all nodes."""
        return sum(pool.free_milli for pool in self.pools.values())

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

    def _add(self, running: Running) -> None:
        if running.team not in self.tree.teams:
            raise PlanningError(
                f"{running.name!r} runs for the team {running.team!r}, which is no team. Keep a team, with no quota, "
                "until its work has ended"
            )
        if running.name in self.works:
            raise PlanningError(f"Two running works are named {running.name!r}. Give each a name of its own")
        work = self.works[running.name] = Work(running)
        for index, member in enumerate(running.members):
            node = self.nodes.get(member.node)
            if node is None:
                raise PlanningError(f"{running.name!r} runs on {member.node!r}, which is no node of the snapshot")
            place = Place(node.model, self.pools[node.model].at[node.name], member.demand, member.parts)
            _check_parts(running.name, node, member.parts)
            self.take(running.team, place, is_preemptible=running.is_preemptible)
            work.places[index] = place

    def _close_cordoned(self) -> None:
        for node in self.nodes.values():
            if node.is_cordoned:
                pool = self.pools[node.model]
                at = pool.at[node.name]
                free = pool.nodes[at].free
                parts = tuple((device, milli) for device, milli in enumerate(free) if milli > 0)
                pool.take(at, Demand(sum(milli for _, milli in parts)), parts)


def _check_parts(name: str, node: ClusterNode, parts: Parts) -> None:
    for device, milli in parts:
        if not 0 <= device < node.devices or milli <= 0:
            raise PlanningError(
                f"{name!r} holds {milli} thousandths of device {device} of {node.name!r}, which has the devices 0 to "
                f"{node.devices - 1}"
            )


def _pools(nodes: Iterable[ClusterNode], requests: Sequence[Request], rules: Rules) -> dict[str, NodeStates]:
    by_model: dict[str, list[ClusterNode]] = {}
    for node in nodes:
        by_model.setdefault(node.model, []).append(node)
    return {model: _pool(members, requests, rules) for model, members in sorted(by_model.items())}


def _pool(nodes: Sequence[ClusterNode], requests: Sequence[Request], rules: Rules) -> NodeStates:
    made = [Node(node.name, node.devices, node.cpu, node.memory, node.model) for node in nodes]
    largest = Largest.of(made)
    links = {node.name: node.links for node in nodes}
    rule: NodeRule
    if rules.node_order is NodeOrder.SPREAD:
        rule = Spread(largest)
    elif rules.node_order is NodeOrder.FRAGMENTATION:
        rule = FragmentationGradient(Fragmentation(demands(requests)), largest)
    else:
        rule = BestFit(largest)
    return NodeStates(made, links.__getitem__, rule)


def demands(requests: Iterable[Request]) -> Iterator[Demand]:
    """Yield the demand of each member."""
    for request in requests:
        for milli in request.sizes:
            yield Demand(milli, request.cpu, request.memory)


def demands_of(request: Request, members: Iterable[int]) -> list[tuple[int, Demand]]:
    """Return the demand of each of these members. A member runs on one node."""
    return [(index, Demand(request.sizes[index], request.cpu, request.memory)) for index in members]


def by_team(works: Mapping[str, Work]) -> dict[str, list[Work]]:
    """Return the running work of each team."""
    found: dict[str, list[Work]] = {}
    for work in works.values():
        found.setdefault(work.running.team, []).append(work)
    return found
