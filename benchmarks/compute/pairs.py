"""Measure one production workload next to one opportunistic workload.

The result is production's slow-down and the used part of its idle time. The same steps of
production's program are compared with themselves alone, so that no difference is one of luck.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from compute.clairvoyant import most_harvest
from compute.controllers import contender
from compute.opportunistic import OPPORTUNISTIC
from compute.plant import OnlyMeasured, Outcome, Plant, Process, Step
from compute.production import PRODUCTION
from compute.programs import SECOND
from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import DeviceSample, Interval, Verdict

SPAN = 60 * SECOND  # measured after the controller has settled
LEAST_IDLE = 0.05  # of the time: below this, production has no significant idle time


class Recorder(OnlyMeasured):
    """Keeps the intervals of the only process."""

    def __init__(self) -> None:
        self.intervals: list[Interval] = []

    def step(self, look: DeviceSample) -> Verdict:
        for process in look.processes:
            self.intervals += process.intervals
        return super().step(look)


@dataclass(frozen=True)
class Alone:
    outcome: Outcome
    intervals: tuple[Interval, ...]


@dataclass(frozen=True)
class Pair:
    """Slow-downs and parts of time as fractions: 0.05 is 5 %.

    ``harvest``, ``bound``: of production's idle time.
    """

    production: str
    opportunistic: str
    controller: str
    slowdown_p50: float
    slowdown_p99: float
    steps: int
    idle: float
    harvest: float
    bound: float

    @property
    def name(self) -> str:
        return f"{self.production} × {self.opportunistic}"

    @property
    def has_idle(self) -> bool:
        return self.idle >= LEAST_IDLE


def percentile(values: Sequence[int], share: float) -> float:
    ordered = sorted(values)
    return float(ordered[min(len(ordered) - 1, int(share * len(ordered)))])


def slowdown(before: Sequence[Step], after: Sequence[Step], share: float) -> float:
    """Return the slow-down of the same steps alone and next to a neighbor.

    It is that of the kind of step that is slowed most.
    """
    times = [
        [percentile([step.time for step in steps if step.kind == kind], share) for steps in (before, after)]
        for kind in {step.kind for step in before}
    ]
    return max(beside / by_itself - 1 for by_itself, beside in times)


@functools.cache
def alone(production: str, horizon: int, seed: int) -> Alone:
    recorder = Recorder()
    process = Process(PRODUCTION[production], is_production=True)
    return Alone(Plant([process], recorder, horizon, seed).run(), tuple(recorder.intervals))


def measure(production: str, opportunistic: str, controller: str, seed: int = 1, span: int = SPAN) -> Pair:
    judge = contender(controller)
    horizon = judge.settles + span
    processes = [
        Process(PRODUCTION[production], is_production=True, hundredths=75),
        Process(OPPORTUNISTIC[opportunistic], hundredths=25),
    ]
    outcome = Plant(processes, judge.make(), horizon, seed).run()
    solo = alone(production, horizon, seed)
    ends = [step.end for step in outcome.steps[0]]
    judged = [number for number, end in enumerate(ends) if end > judge.settles]
    if len(judged) < 3:
        raise ValueError(f"{production} × {opportunistic}, {controller}: {len(judged)} steps in {span / SECOND:g} s")
    first, last = judged[0], judged[-1]
    before, after = solo.outcome.steps[0][first : last + 1], outcome.steps[0][first : last + 1]
    begin, end = before[0].end, before[-1].end
    idle = (end - begin) - solo.outcome.own_between(0, begin, end)
    harvest = outcome.own_between(1, after[0].end, after[-1].end)
    bound = most_harvest(
        [one for one in solo.intervals if begin <= one.start and one.end <= end],
        OPPORTUNISTIC[opportunistic], percentile([step.time for step in before], 0.5),
    )  # fmt: skip
    before, after = before[1:], after[1:]
    return Pair(
        production, opportunistic, controller, slowdown(before, after, 0.5), slowdown(before, after, 0.99),
        len(after), idle / (end - begin), harvest / max(1, idle), bound,
    )  # fmt: skip
