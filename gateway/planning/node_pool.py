"""The nodes of a cluster while a plan is made, or a simulation runs: takes and gives back parts.

Scores are kept for each kind of demand. Only nodes that changed since are scored again, so that a
request among thousands of nodes costs what changed, not what there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from .jobs import DEVICE
from .node import Demand, Node, Parts
from .node_choice import NodeRule, Score, Scored


@dataclass(frozen=True)
class Placed:
    """The place of one request: what it takes of which node, by the node's index."""

    shares: tuple[tuple[int, Demand, Parts], ...]

    @property
    def nodes(self) -> tuple[int, ...]:
        """The indices of its nodes."""
        return tuple(at for at, _, _ in self.shares)


@dataclass(eq=False)
class _Ranking:
    """The scores of all nodes for one kind of demand, up to a place in the log of changes."""

    scored: list[Scored | None]
    keys: list[Score]
    seen: int = field(default=0)


# Nodes that cannot hold the demand sort after all others.
_NONE: Score = (float("-inf"),)


class NodePool:
    """Nodes in order of their names, and a rule that chooses among them."""

    def __init__(self, nodes: Iterable[Node], rule: NodeRule) -> None:
        self.nodes: Sequence[Node] = sorted(nodes, key=lambda node: node.name)
        self._rule = rule
        self._changed: list[int] = []
        self._rankings: dict[Demand, _Ranking] = {}
        self.milli = sum(node.milli for node in self.nodes)
        self.free_milli = sum(node.free_milli for node in self.nodes)
        self._largest = max((node.milli for node in self.nodes), default=0)

    def place(self, demand: Demand) -> Placed | None:
        """Take the best parts for a request; None if it fits nowhere.

        A request for more devices than any node has takes whole nodes first: it gets all that it
        asks for, on the fewest nodes, or nothing.
        """
        if demand.milli > self.free_milli:
            return None
        found = self._one(demand) if demand.milli <= self._largest else self._gang(demand)
        if found is not None:
            self._take(found)
        return found

    def give_back(self, placed: Placed) -> None:
        """Return the parts of a request that ended."""
        for at, demand, parts in placed.shares:
            self.nodes[at].give_back(demand, parts)
            self.free_milli += demand.milli
            self._changed.append(at)

    def _take(self, placed: Placed) -> None:
        for at, demand, parts in placed.shares:
            self.nodes[at].take(demand, parts)
            self.free_milli -= demand.milli
            self._changed.append(at)

    def _one(self, demand: Demand) -> Placed | None:
        ranking = self._ranking(demand)
        best = max(ranking.keys, default=_NONE)
        if best == _NONE:
            return None
        at = ranking.keys.index(best)
        scored = ranking.scored[at]
        return None if scored is None else Placed(((at, demand, scored.parts),))

    def _gang(self, demand: Demand) -> Placed | None:
        """Return whole free nodes, the largest first, and the best node for the rest."""
        shares: list[tuple[int, Demand, Parts]] = []
        left = demand
        empty = [at for at, node in enumerate(self.nodes) if node.milli and node.free_milli == node.milli]
        for at in sorted(empty, key=lambda one: -self.nodes[one].milli):
            node = self.nodes[at]
            if node.milli > left.milli:
                continue
            share = _in_proportion(demand, node.milli)
            if not node.can_hold(share):
                continue
            shares.append((at, share, tuple((device, DEVICE) for device in range(len(node.free)))))
            left = replace(
                left, milli=left.milli - share.milli, cpu=left.cpu - share.cpu, memory=left.memory - share.memory
            )
            if not left.milli:
                return Placed(tuple(shares))
        taken = {at for at, _, _ in shares}
        rest = self._best_other(left, taken) if shares and left.milli <= self._largest else None
        return None if rest is None else Placed((*shares, rest))

    def _best_other(self, demand: Demand, taken: set[int]) -> tuple[int, Demand, Parts] | None:
        ranking = self._ranking(demand)
        others = ((key, -at) for at, key in enumerate(ranking.keys) if at not in taken)
        key, at = max(others, default=(_NONE, 0))
        scored = ranking.scored[-at]
        return None if key == _NONE or scored is None else (-at, demand, scored.parts)

    def _ranking(self, demand: Demand) -> _Ranking:
        ranking = self._rankings.get(demand)
        if ranking is None:
            ranking = _Ranking([None] * len(self.nodes), [_NONE] * len(self.nodes))
            stale: Iterable[int] = range(len(self.nodes))
            self._rankings[demand] = ranking
        else:
            stale = set(self._changed[ranking.seen :])
        for at in stale:
            scored = ranking.scored[at] = self._rule.score(self.nodes[at], demand)
            ranking.keys[at] = _NONE if scored is None else scored.score
        ranking.seen = len(self._changed)
        return ranking


def _in_proportion(demand: Demand, milli: int) -> Demand:
    """Return the part of a demand that goes with so many of its thousandths."""
    return Demand(milli, demand.cpu * milli // demand.milli, demand.memory * milli // demand.milli)
