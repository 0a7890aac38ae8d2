"""The free parts of nodes while a plan is made: takes parts and gives them back.

Nodes in the same state score alike for a request. So a rule scores each state once and not each
node; a thousand nodes of eight devices have a few dozen states.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import heappop, heappush

from jupyter_aliquot.gateway.planning.node import Demand, Node, Parts
from jupyter_aliquot.gateway.planning.node_choice import NodeRule

State = tuple[int, int, int, tuple[int, ...], tuple[int, ...]]
Links = tuple[int, ...]
# Which nodes may be used, by index; None: all.
Allowed = Collection[int] | None


class _Ranked:
    """The states that can hold one demand, best first; those that no node is in are dropped later."""

    def __init__(self) -> None:
        self.heap: list[tuple[tuple[float, ...], int, State]] = []
        self.known: set[State] = set()
        self.seen = 0


class NodeStates:
    """The nodes of one GPU model, in order of their names, and the rule that chooses among them."""

    def __init__(self, nodes: Iterable[Node], links: Callable[[str], Links], rule: NodeRule) -> None:
        self.nodes = sorted(nodes, key=lambda node: node.name)
        self.at = {node.name: at for at, node in enumerate(self.nodes)}
        self.links = [links(node.name) for node in self.nodes]
        self._rule = rule
        self._whole = [(node.free_cpu, node.free_memory) for node in self.nodes]
        self.milli = sum(node.milli for node in self.nodes)
        self.free_milli = sum(node.free_milli for node in self.nodes)
        self._state: list[State] = [self._state_of(at) for at in range(len(self.nodes))]
        # A state to its nodes: a heap of indices, in which those that left are dropped later.
        self._in: dict[State, list[int]] = {}
        for at, state in enumerate(self._state):
            self._in.setdefault(state, []).append(at)
        # Each state that came up, in order.
        self._log = list(self._in)
        self._ranked: dict[tuple[Demand, bool], _Ranked] = {}

    def could_hold(self, demand: Demand) -> bool:
        """Return whether a node holds the demand when it is empty."""
        return any(
            node.milli >= demand.milli and cpu >= demand.cpu and memory >= demand.memory
            for node, (cpu, memory) in zip(self.nodes, self._whole, strict=True)
        )

    def one_of_each_state(self, without: Collection[int]) -> list[int]:
        """Return the first node in each state, of the nodes that are left."""
        found: dict[State, int] = {}
        for at, state in enumerate(self._state):
            if state not in found and at not in without:
                found[state] = at
        return list(found.values())

    def nodes_with(self, milli: int) -> Iterator[Sequence[int]]:
        """Yield single nodes with so much free, the fullest first, one for each state."""
        firsts = [
            (sum(state[3]), first, state) for state in list(self._in) if (first := self._first(state)) is not None
        ]
        for free, first, _ in sorted(firsts, key=lambda one: one[:2]):
            if free >= milli:
                yield (first,)

    def take(self, at: int, demand: Demand, parts: Parts) -> None:
        """Take these parts of a node."""
        self._change(at, demand, parts)

    def give_back(self, at: int, demand: Demand, parts: Parts) -> None:
        """Return parts of a node."""
        self._change(at, _minus(demand), tuple((device, -milli) for device, milli in parts))

    def is_free(self, at: int, demand: Demand, parts: Parts) -> bool:
        """Return whether these very parts are free."""
        node = self.nodes[at]
        return node.can_hold(demand) and all(node.free[device] >= milli for device, milli in parts)

    def best(self, demand: Demand, *, in_one_link: bool = False, allowed: Allowed = None) -> tuple[int, Parts] | None:
        """Return the node and the parts that the rule prefers; None if the demand fits nowhere."""
        if demand.milli > self.free_milli:
            return None
        if allowed is not None:
            return self._best_of(demand, in_one_link, allowed)
        ranked = self._ranking(demand, in_one_link)
        while ranked.heap:
            state = ranked.heap[0][2]
            first = self._first(state)
            if first is not None:
                scored = self._parts(first, demand, in_one_link)
                return None if scored is None else (first, scored[1])
            ranked.known.discard(state)
            heappop(ranked.heap)
        return None

    def _best_of(self, demand: Demand, in_one_link: bool, allowed: Collection[int]) -> tuple[int, Parts] | None:
        best: tuple[tuple[float, ...], int, Parts] | None = None
        for at in sorted(allowed):
            scored = self._parts(at, demand, in_one_link)
            if scored is not None and (best is None or scored[0] > best[0]):
                best = (scored[0], at, scored[1])
        return None if best is None else best[1:]

    def _ranking(self, demand: Demand, in_one_link: bool) -> _Ranked:
        ranked = self._ranked.get((demand, in_one_link))
        if ranked is None:
            ranked = self._ranked[demand, in_one_link] = _Ranked()
        for state in self._log[ranked.seen :]:
            if state in ranked.known:
                continue
            first = self._first(state)
            scored = None if first is None else self._parts(first, demand, in_one_link)
            if scored is not None and first is not None:
                ranked.known.add(state)
                heappush(ranked.heap, (tuple(-part for part in scored[0]), first, state))
        ranked.seen = len(self._log)
        return ranked

    def _parts(self, at: int, demand: Demand, in_one_link: bool) -> tuple[tuple[float, ...], Parts] | None:
        node = self.nodes[at]
        if not node.can_hold(demand):
            return None
        scored = self._rule.score(node, demand)
        links = self.links[at]
        if scored is None or not links or demand.milli <= 1000:
            return None if scored is None else (scored.score, scored.parts)
        order = self._linked(at, demand)
        if order is None:
            return None if in_one_link else (scored.score, scored.parts)
        parts = node.parts_by(demand, order)
        return None if parts is None else (scored.score, parts)

    def _linked(self, at: int, demand: Demand) -> list[int] | None:
        """Return the devices of the tightest NVLink or PCIe domain that holds the demand."""
        node, links = self.nodes[at], self.links[at]
        best: tuple[int, list[int]] | None = None
        for link in sorted(set(links)):
            devices = sorted((one for one in range(len(links)) if links[one] == link), key=lambda one: node.free[one])
            left = sum(node.free[one] for one in devices)
            if node.parts_by(demand, devices) is not None and (best is None or left < best[0]):
                best = (left, devices)
        return None if best is None else best[1]

    def _first(self, state: State) -> int | None:
        """Return the first node in this state; None if no node is in it any more."""
        heap = self._in.get(state)
        while heap:
            if self._state[heap[0]] == state:
                return heap[0]
            heappop(heap)
        self._in.pop(state, None)
        return None

    def _change(self, at: int, demand: Demand, parts: Parts) -> None:
        node = self.nodes[at]
        free = list(node.free)
        for device, milli in parts:
            free[device] -= milli
        node.free = tuple(free)
        node.free_milli -= demand.milli
        node.free_cpu -= demand.cpu
        node.free_memory -= demand.memory
        self.free_milli -= demand.milli
        state = self._state[at] = self._state_of(at)
        heap = self._in.get(state)
        if heap is None:
            self._in[state] = [at]
        else:
            heappush(heap, at)
        self._log.append(state)

    def _state_of(self, at: int) -> State:
        node, links = self.nodes[at], self.links[at]
        free = node.free if links else tuple(sorted(node.free))
        return (len(free), node.free_cpu, node.free_memory, free, links)


def _minus(demand: Demand) -> Demand:
    return Demand(-demand.milli, -demand.cpu, -demand.memory)
