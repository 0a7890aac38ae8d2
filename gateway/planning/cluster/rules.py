"""The rules of a plan: the order of requests, which steps it takes, and its times. Values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from jupyter_aliquot.gateway.planning.gittins import GittinsIndex
from jupyter_aliquot.gateway.planning.node_choice import NodeOrder
from jupyter_aliquot.gateway.planning.priority import Order
from jupyter_aliquot.provisioner.errors import AliquotError


class PlanningError(AliquotError):
    """A snapshot, a request or a rule from which no plan can be made."""


class TeamOrder(str, Enum):
    """The order between teams: by fair share, by dominant share, or all as one queue."""

    FAIR = "fair"
    DRF = "drf"
    FIFO = "fifo"


class Step(str, Enum):
    """A kind of action that a plan may take for requests."""

    START = "start"
    MOVE = "move"
    RECLAIM = "reclaim"
    PREEMPT = "preempt"


@dataclass(frozen=True)
class Rules:
    """The rules of a plan.

    Args:
        order: in a team. team_order: between teams. node_order: of nodes.
        steps: the actions that a plan may take, in their order.
        may_end: work that cannot be swapped out may be ended.
        hold_after: seconds after which a request that does not fit has GPUs kept for it as they
            become free, though no end is known; infinity: never.
        most_holds: requests for which GPUs are kept at a time.
        relax_after: seconds of waiting after which locality is relaxed by one level, and again.
        usage_factor: by how much a team's past use over quota lowers its share of the surplus.
        victim_margin: a team above its share takes only from teams so many times further above it.
        most_victims: running workloads that are looked at for one request.
        most_searches: requests for which a plan searches moves or work that leaves, in each step.
        gittins: needed for that order.
    """

    order: Order = Order.FIFO
    team_order: TeamOrder = TeamOrder.FAIR
    node_order: NodeOrder = NodeOrder.BEST_FIT
    steps: tuple[Step, ...] = (Step.START, Step.MOVE, Step.RECLAIM, Step.PREEMPT)
    may_end: bool = False
    hold_after: float = 600.0
    most_holds: int = 16
    relax_after: float = 120.0
    usage_factor: float = 0.0
    victim_margin: float = 1.0
    most_victims: int = 32
    may_move_victims: bool = True
    most_searches: int = 16
    gittins: GittinsIndex | None = None

    def __post_init__(self) -> None:
        if self.order is Order.GITTINS and self.gittins is None:
            raise PlanningError("The order 'gittins' needs the GPU-seconds of past jobs. Give Rules.gittins")
        for name in ("hold_after", "relax_after", "usage_factor", "victim_margin"):
            value = getattr(self, name)
            if math.isnan(value) or value < 0:
                raise PlanningError(f"Rules.{name} is {value}, and has to be 0 or more")
