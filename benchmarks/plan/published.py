"""Completion times of training traces, beside those that the literature has published for them.

Source of the published figures: the artifact of Muri, Zhao et al., SIGCOMM 2022 (64 GPUs).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from report import Row, at_most

from jupyter_aliquot.gateway.planning.jobs import DEVICE, Job
from jupyter_aliquot.gateway.planning.queue_orders import LeastAttainedService, QueueOrder, ShortestRemaining
from jupyter_aliquot.gateway.simulation.pools import CountedGpus
from jupyter_aliquot.gateway.simulation.simulator import Outcome, Overhead, Simulation
from jupyter_aliquot.gateway.simulation.summary import element
from jupyter_aliquot.gateway.simulation.traces import read_trace

GPUS = 64
WANT_PERCENT = 0.1
FOLDER = Path("muri")
TRACES = ("trace2", "trace2_pr", "trace3", "trace3_pr")
# By the name that the published table has.
ORDERS: dict[str, Callable[[], QueueOrder]] = {
    "SRTF": ShortestRemaining,
    "SRSF": lambda: ShortestRemaining(by_service=True),
    "Tiresias-L": LeastAttainedService,
}
OVERHEADS = {
    "in each interval, as published": Overhead.EACH_EVENT,
    "once per start": Overhead.AT_START,
    "none": Overhead.NONE,
}

Published = dict[tuple[str, str, str], float]


@dataclass(frozen=True)
class Figures:
    """The three published figures of one run, seconds."""

    average: float
    makespan: float
    p99: float

    @classmethod
    def of(cls, outcome: Outcome) -> Figures:
        times = [run.completion_seconds for run in outcome.runs]
        return cls(sum(times) / len(times), outcome.makespan, element(times, 0.99))

    def off(self, published: Published, trace: str, policy: str) -> float:
        """Return the largest deviation from the published figures, per cent."""
        ours = {"avg_jct": self.average, "makespan": self.makespan, "p99_jct": self.p99}
        return max(abs(value / published[trace, policy, metric] - 1) for metric, value in ours.items()) * 100


def read_published(data: Path) -> Published:
    """Return trace, policy and metric to seconds."""
    with open(data / FOLDER / "expected.csv", newline="") as file:
        return {(row["trace"], row["policy"], row["metric"]): float(row["seconds"]) for row in csv.DictReader(file)}


def simulate(jobs: Sequence[Job], order: QueueOrder, overhead: Overhead) -> Figures:
    return Figures.of(Simulation(jobs, CountedGpus(GPUS * DEVICE), order, overhead).run())


def rows(data: Path, traces: Sequence[str], told: Callable[[str], None]) -> Iterator[Row]:
    """Yield the deviation of each trace and policy, and what the start overhead's rule costs."""
    published = read_published(data)
    for trace in traces:
        jobs = read_trace(data / FOLDER / f"{trace}.csv", data / FOLDER / "start_overhead_s.csv")
        for policy, order in ORDERS.items():
            told(f"{trace}, {policy}")
            figures = simulate(jobs, order(), Overhead.EACH_EVENT)
            yield Row(f"{trace}, {policy}: average completion", figures.average, "s")
            off = figures.off(published, trace, policy)
            yield at_most(f"{trace}, {policy}: off the published, average, makespan or p99", off, "%", WANT_PERCENT)
        for name, overhead in OVERHEADS.items():
            told(f"{trace}, Tiresias-L, start overhead {name}")
            figures = simulate(jobs, LeastAttainedService(), overhead)
            yield Row(f"{trace}, Tiresias-L: average completion, start overhead {name}", figures.average, "s")
