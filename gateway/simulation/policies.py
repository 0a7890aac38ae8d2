"""The queue orders by the names that a command line has for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jupyter_aliquot.gateway.planning.backfill import ConservativeBackfill
from jupyter_aliquot.gateway.planning.fair_share import FairShare
from jupyter_aliquot.gateway.planning.gittins import GittinsIndex, LargestGittinsIndex
from jupyter_aliquot.gateway.planning.queue_orders import (
    FirstComeFirstServed,
    LeastAttainedService,
    QueueOrder,
    ShortestRemaining,
)


@dataclass(frozen=True)
class PolicyInput:
    """The facts that an order may need: the cluster's size, GPU-seconds of past jobs, weights of teams."""

    milli: int
    past: Sequence[float] = ()
    weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Policy:
    """One order: its description, and the function that makes it."""

    text: str
    make: Callable[[PolicyInput], QueueOrder]
    needs_past: bool = False


# The gateway's own plan: no order of the simulator, but ``gateway_replay``.
GATEWAY = "gateway"
GATEWAY_TEXT = "the gateway's own plan, with the quotas and the queue of --quotas; kernels on loan are swapped out"

POLICIES = {
    "fifo": Policy(
        "first come, first served; a job that does not fit blocks those behind it", lambda _: FirstComeFirstServed()
    ),
    "backfill": Policy(
        "the same, but smaller jobs pass it as far as no job starts later for them; running times are known",
        lambda facts: ConservativeBackfill(facts.milli),
    ),
    "fair": Policy(
        "weighted fair share between teams; the job whose turn it is blocks the others",
        lambda facts: FairShare(facts.weights),
    ),
    "las": Policy("least attained service in queues (Tiresias-L); preempts", lambda _: LeastAttainedService()),
    "gittins": Policy(
        "largest Gittins index in queues (Tiresias-G), from past jobs; preempts",
        lambda facts: LargestGittinsIndex(GittinsIndex(facts.past)),
        needs_past=True,
    ),
    "srtf": Policy("shortest remaining time first; running times are known; preempts", lambda _: ShortestRemaining()),
    "srsf": Policy(
        "shortest remaining GPU time first; running times are known; preempts",
        lambda _: ShortestRemaining(by_service=True),
    ),
}
