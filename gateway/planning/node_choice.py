"""The choice of a node and of its devices for a request, by the best score. Pure and deterministic.

Each rule scores a node; the largest score wins, and of equal ones the first node by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from .fragmentation import Fragmentation
from .jobs import DEVICE
from .node import Demand, Node, Parts

Score = tuple[float, ...]
# Of CPU among nodes on which fragmentation grows alike. Found on Alibaba's trace (docs/results).
CPU_WEIGHT = 0.7


class NodeOrder(str, Enum):
    """The choice of nodes."""

    BEST_FIT = "best-fit"
    SPREAD = "spread"
    FRAGMENTATION = "fragmentation"


@dataclass(frozen=True)
class Scored:
    """The score of a node for one demand, and the parts that the demand would take of it."""

    score: Score
    parts: Parts


class NodeRule(Protocol):
    """A rule that scores a node."""

    def score(self, node: Node, demand: Demand) -> Scored | None:
        """Return the node's score; None if the demand does not fit on it now."""
        ...


@dataclass(frozen=True)
class Largest:
    """The largest node of a cluster, against which scores are measured."""

    cpu: int
    milli: int

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> Largest:
        return cls(
            max((node.cpu for node in nodes), default=0) or 1, max((node.milli for node in nodes), default=0) or 1
        )

    def tightness(self, node: Node, demand: Demand, cpu_weight: float = 0.5) -> float:
        """Return how full the node is with the demand on it: 1 is full, 0 as empty as the largest.

        *cpu_weight* is the weight of its CPU; the rest is that of its GPUs.
        """
        cpu_left = (node.free_cpu - demand.cpu) / self.cpu
        gpu_left = (node.free_milli - demand.milli) / self.milli
        return 1.0 - (cpu_weight * cpu_left + (1.0 - cpu_weight) * gpu_left)


def _fullest_first(node: Node) -> list[int]:
    return sorted(range(len(node.free)), key=node.free.__getitem__)


class BestFit:
    """Best fit: the node, and on it the device, that is fullest with the request on it."""

    def __init__(self, largest: Largest) -> None:
        self._largest = largest

    def score(self, node: Node, demand: Demand) -> Scored | None:
        if not node.can_hold(demand):
            return None
        parts = node.parts_by(demand, _fullest_first(node))
        return None if parts is None else Scored((math.floor(100 * self._largest.tightness(node, demand)),), parts)


class Spread:
    """The opposite of best fit: the emptiest node, and on it the emptiest device."""

    def __init__(self, largest: Largest) -> None:
        self._largest = largest

    def score(self, node: Node, demand: Demand) -> Scored | None:
        if not node.can_hold(demand):
            return None
        order = _fullest_first(node)
        # Devices that are taken whole are all alike: a shared part goes to the emptiest of the others.
        parts = node.parts_by(demand, order[::-1])
        return None if parts is None else Scored((-self._largest.tightness(node, demand),), parts)


class FragmentationGradient:
    """Fragmentation gradient descent: the node and device on which fragmentation grows least.

    The score is as coarse as the source's: the gradient through a sigmoid, in steps of a hundredth.
    Of equal scores the best fit wins, for which CPU counts more than GPUs. The source takes the
    first node by name, and allocates less (docs/results). A finer score allocates less, too.
    """

    def __init__(self, fragmentation: Fragmentation, largest: Largest) -> None:
        self._fragmentation = fragmentation
        self._largest = largest

    def score(self, node: Node, demand: Demand) -> Scored | None:
        if not node.can_hold(demand):
            return None
        best: tuple[int, int] | None = None
        chosen: Parts = ()
        for order in _orders(node, demand):
            parts = node.parts_by(demand, order)
            if parts is None:
                continue
            left = node.free[parts[-1][0]] if parts else 0
            found = (_coarse(self._fragmentation.gradient(node, demand, parts)), -left)
            if best is None or found > best:
                best, chosen = found, parts
        if best is None:
            return None
        return Scored((best[0], self._largest.tightness(node, demand, CPU_WEIGHT)), chosen)


def _orders(node: Node, demand: Demand) -> list[list[int]]:
    """Return the orders of devices to try: one for each free part that a shared part may go to."""
    order = _fullest_first(node)
    if not demand.part:
        return [order]
    firsts = {node.free[at]: at for at in reversed(order) if node.free[at] >= demand.part}
    return [[at, *(other for other in order if other != at)] for at in firsts.values()]


def _coarse(gradient: float) -> int:
    return math.floor(100.0 / (1.0 + math.exp(-gradient / DEVICE)))


def node_key(
    order: NodeOrder, free: Sequence[int], after: Sequence[int], fragmentation: Fragmentation | None = None
) -> Score:
    """Return the key of a node for a request whose devices were chosen already: the smallest wins.

    Args:
        order: the rule.
        free: thousandths of each device that are free.
        after: the same with the request on them.
        fragmentation: the measure, for that order.
    """
    on_node = sum(free)
    if order is NodeOrder.SPREAD:
        return (-on_node,)
    left = sum(before for before, then in zip(free, after, strict=True) if then < before)
    if order is NodeOrder.FRAGMENTATION and fragmentation is not None:
        return (-_coarse(fragmentation.of(0, free) - fragmentation.of(0, after)), left, on_node)
    return (left, on_node)
