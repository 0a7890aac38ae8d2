"""A simulated cluster by its description, such as ``8x8``: eight nodes of eight devices."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from jupyter_aliquot.gateway.planning.fragmentation import Fragmentation
from jupyter_aliquot.gateway.planning.jobs import DEVICE, Job
from jupyter_aliquot.gateway.planning.node import Demand, Node
from jupyter_aliquot.gateway.planning.node_choice import (
    BestFit,
    FragmentationGradient,
    Largest,
    NodeRule,
    Spread,
)
from jupyter_aliquot.gateway.planning.node_pool import NodePool
from jupyter_aliquot.provisioner.errors import AliquotError

from .pools import CountedGpus, PlacedGpus, Pool

MOST_NODES = 10_000
MOST_DEVICES = 64
_PART = re.compile(r"(\d{1,9})x(\d{1,9})")


class ClusterError(AliquotError):
    """A description of a cluster that cannot be understood."""


def parse_cluster(text: str) -> tuple[int, ...]:
    """Return the number of devices of each node: ``2x8,1x4`` gives (8, 8, 4). Raises ClusterError."""
    sizes: list[int] = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise ClusterError(
                f"{text!r} is no cluster: {part.strip()!r} is not NODESxDEVICES. Use one such as 8x8, or 4x8,2x4"
            )
        count, devices = int(match[1]), int(match[2])
        if not 1 <= devices <= MOST_DEVICES:
            raise ClusterError(f"{text!r} has nodes of {devices} devices. A node has 1 to {MOST_DEVICES}")
        if not 1 <= count <= MOST_NODES - len(sizes):
            raise ClusterError(f"{text!r} is no cluster of 1 to {MOST_NODES} nodes. Use fewer, or at least one")
        sizes += [devices] * count
    return tuple(sizes)


def _counted(sizes: Sequence[int], _: Sequence[Job]) -> Pool:
    return CountedGpus(DEVICE * sum(sizes))


def _placed(
    rule: Callable[[Sequence[Node], Sequence[Job]], NodeRule],
) -> Callable[[Sequence[int], Sequence[Job]], Pool]:
    def make(sizes: Sequence[int], jobs: Sequence[Job]) -> Pool:
        nodes = [Node(f"node-{at:05}", devices) for at, devices in enumerate(sizes)]
        return PlacedGpus(NodePool(nodes, rule(nodes, jobs)))

    return make


def _gradient(nodes: Sequence[Node], jobs: Sequence[Job]) -> NodeRule:
    """Take the trace's own jobs for the usual requests."""
    return FragmentationGradient(Fragmentation(Demand(job.milli) for job in jobs), Largest.of(nodes))


# The ways to place jobs, by name: (devices of each node, jobs) → pool.
PLACEMENTS = {
    "fragmentation": _placed(_gradient),
    "best-fit": _placed(lambda nodes, _: BestFit(Largest.of(nodes))),
    "spread": _placed(lambda nodes, _: Spread(Largest.of(nodes))),
    "none": _counted,
}
