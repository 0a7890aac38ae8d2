"""The figures of a simulation: completion times, waiting times and use of the GPUs. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

from .simulator import Outcome


class Summary(TypedDict):
    """Times in seconds; ``utilization`` is a share of all GPU time, 0 … 1.

    ``never_fits`` counts the jobs that are larger than the cluster.
    """

    policy: str
    jobs: int
    never_fits: int
    mean_completion_seconds: float
    p50_completion_seconds: float
    p95_completion_seconds: float
    p99_completion_seconds: float
    mean_wait_seconds: float
    makespan_seconds: float
    utilization: float
    preemptions: int


def element(values: Sequence[float], share: float) -> float:
    """Return the element at floor(share × n) of the sorted values, as the published tables do."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.floor(share * len(ordered)))] if ordered else 0.0


def summarize(policy: str, outcome: Outcome) -> Summary:
    """Return the figures of one run. Waiting is the time from submission to the first start."""
    times = [run.completion_seconds for run in outcome.runs]
    waits = [run.start - run.job.submit for run in outcome.runs]
    count = max(1, len(times))
    return {
        "policy": policy,
        "jobs": len(times),
        "never_fits": len(outcome.never),
        "mean_completion_seconds": sum(times) / count,
        "p50_completion_seconds": element(times, 0.5),
        "p95_completion_seconds": element(times, 0.95),
        "p99_completion_seconds": element(times, 0.99),
        "mean_wait_seconds": sum(waits) / count,
        "makespan_seconds": outcome.makespan,
        "utilization": outcome.utilization,
        "preemptions": sum(run.stops for run in outcome.runs),
    }
