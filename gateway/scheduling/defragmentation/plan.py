"""A plan of moves as it is shown: for a size, for the head of the queue, or against fragmentation. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from jupyter_aliquot.gateway.planning.fragmentation import Fragmentation
from jupyter_aliquot.gateway.planning.moves import (
    MovePlan,
    NodeGpus,
    Wanted,
    could_ever_fit,
    plan_for_size,
    plan_to_pack,
)
from jupyter_aliquot.gateway.planning.node import Demand
from jupyter_aliquot.gateway.sizes.wish import is_of_model
from jupyter_aliquot.provisioner.resources import Request

_DIGEST_LETTERS = 12
_MILLI = 10  # thousandths of a GPU in one hundredth


@dataclass(frozen=True)
class Size:
    """The size that is to fit. ``kernel_id``: a request of the queue wants it, on these models."""

    request: Request
    kernel_id: str = ""
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShownPlan:
    """A plan, and the node that it is of. ``node`` None: no node is known, or none is open."""

    size: Size | None
    plan: MovePlan
    node: NodeGpus | None
    nodes: tuple[NodeGpus, ...] = ()

    @property
    def digest(self) -> str:
        """The name of the plan: another one if its moves differ, or GPUs or kernels of its node."""
        if not self.plan.moves or self.node is None:
            return ""
        facts = {
            "size": None if self.size is None else [str(self.size.request), self.size.kernel_id],
            "node": self.node.name,
            "moves": [[one.kernel_id, one.source, one.target] for one in self.plan.moves],
            "gpus": [[gpu.uuid, gpu.is_closed, asdict(gpu.reserved)] for gpu in self.node.gpus],
            "kernels": [[one.kernel_id, [asdict(part) for part in one.parts]] for one in self.node.residents],
        }
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:_DIGEST_LETTERS]


def make_plan(nodes: Sequence[NodeGpus], size: Size | None) -> ShownPlan:
    """Plan for the size; without one, against the fragmentation of the first node that it lowers."""
    by_name = {node.name: node for node in nodes}
    if size is None:
        plan = _pack(nodes)
    else:
        plan = plan_for_size([_of_models(node, size.models) for node in nodes], _wanted(size.request))
    return ShownPlan(size, plan, by_name.get(plan.node), tuple(nodes))


def find_too_small(nodes: Sequence[NodeGpus], size: Size) -> NodeGpus | None:
    """Return the largest node, where the size fits on none, whatever kernels run; None: it may fit on one."""
    if any(could_ever_fit(node, _wanted(size.request)) for node in nodes):
        return None
    return max(nodes, key=lambda node: (len(node.gpus), *sorted(gpu.memory_bytes for gpu in node.gpus)), default=None)


def _wanted(request: Request) -> Wanted:
    limit = None if request.memory_limit is None else int(request.memory_limit)
    return Wanted(request.gpus.hundredths, limit, request.workload_class.value, request.residency)


def _pack(nodes: Sequence[NodeGpus]) -> MovePlan:
    plan = MovePlan("", reason="no node is open")
    for node in nodes:
        plan = plan_to_pack(node, Fragmentation(_demands(nodes)))
        if plan.moves:
            return plan
    return plan


def _demands(nodes: Iterable[NodeGpus]) -> Iterable[Demand]:
    """Return the sizes of the kernels that run: the usual ones."""
    return (Demand(_MILLI * sum(part.hundredths for part in one.parts)) for node in nodes for one in node.residents)


def _of_models(node: NodeGpus, models: Sequence[str]) -> NodeGpus:
    """Return the node with its GPUs of other models closed."""
    if not models:
        return node
    gpus = (
        gpu if any(is_of_model(gpu.model, model) for model in models) else replace(gpu, is_closed=True)
        for gpu in node.gpus
    )
    return replace(node, gpus=tuple(gpus))
