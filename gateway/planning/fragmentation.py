"""Fragmentation of a node: its idle GPU parts that the usual requests cannot use. Pure.

Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent", USENIX ATC 2023.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .jobs import DEVICE
from .node import Demand, Node, Parts

# The most frequent requests that make up so much of all are the usual ones.
USUAL_SHARE = 0.95
# Measures that are kept; all are forgotten when there are more.
MOST_KNOWN = 200_000


@dataclass(frozen=True)
class _Group:
    """Usual requests of one size. ``weights[n]`` is the weight of the n that need the least CPU."""

    demand: Demand
    cpu: tuple[int, ...]
    weights: tuple[float, ...]


class Fragmentation:
    """The measure F of a node: the idle thousandths that a request finds unusable, on average.

    A request that the node cannot host, or that wants no GPU, finds all of them unusable.
    """

    def __init__(self, requests: Iterable[Demand]) -> None:
        usual = _usual(requests)
        total = sum(usual.values())
        self._without_gpu = sum(count for one, count in usual.items() if not one.milli) / total if total else 0.0
        groups: dict[int, list[tuple[int, float]]] = {}
        for one, count in usual.items():
            if one.milli:
                groups.setdefault(one.milli, []).append((one.cpu, count / total))
        self._groups = [_group(milli, sorted(members)) for milli, members in sorted(groups.items())]
        # The free CPU of a node and the free parts of its devices, in any order, to its measure.
        self._known: dict[tuple[int, tuple[int, ...]], float] = {}

    def of(self, free_cpu: int, free: Iterable[int]) -> float:
        """Return F of a node with so much CPU free, and these thousandths of each device."""
        key = (free_cpu, tuple(sorted(free)))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found = self._known[key] = self._measure(*key)
        return found

    def gradient(self, node: Node, demand: Demand, parts: Parts) -> float:
        """Return by how much F falls if the demand takes these parts of the node."""
        after = self.of(node.free_cpu - demand.cpu, node.free_after(parts))
        return self.of(node.free_cpu, node.free) - after

    def _measure(self, free_cpu: int, free: tuple[int, ...]) -> float:
        idle = sum(free)
        if not idle:
            return 0.0
        found = self._without_gpu * idle
        for group in self._groups:
            hosted = group.weights[bisect_right(group.cpu, free_cpu)] if _has_devices(free, group.demand) else 0.0
            least = group.demand.part or DEVICE
            too_small = sum(part for part in free if part < least)
            found += hosted * too_small + (group.weights[-1] - hosted) * idle
        return found


def _has_devices(free: tuple[int, ...], demand: Demand) -> bool:
    whole = sum(part == DEVICE for part in free)
    if whole < demand.whole:
        return False
    return not demand.part or sum(part >= demand.part for part in free) > demand.whole


def _usual(requests: Iterable[Demand]) -> dict[Demand, int]:
    """Return the most frequent requests, by kind, and how often each occurs."""
    counts = Counter(replace(one, memory=0) for one in requests)
    wanted, found, taken = USUAL_SHARE * sum(counts.values()), dict[Demand, int](), 0
    for one, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if taken >= wanted:
            break
        found[one] = count
        taken += count
    return found


def _group(milli: int, members: list[tuple[int, float]]) -> _Group:
    weights = [0.0]
    for _, weight in members:
        weights.append(weights[-1] + weight)
    return _Group(Demand(milli), tuple(cpu for cpu, _ in members), tuple(weights))
