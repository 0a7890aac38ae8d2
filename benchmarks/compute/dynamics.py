"""Measure how soon a controller settles.

After production starts under a hog (a workload that never pauses), and each time production returns
or pauses.
"""

from __future__ import annotations

from dataclasses import dataclass

from compute.controllers import CONTENDERS, TGS
from compute.opportunistic import OPPORTUNISTIC
from compute.plant import OnlyMeasured, Outcome, Plant, Process, Step
from compute.production import PRODUCTION
from compute.programs import BEGIN_OP, MILLISECOND, SECOND, STEP_OP, SYNC_OP, Op, Workload, host, launches

BEGINS = 3 * SECOND  # production starts after the hog has had the device alone
SLOW, LEAST_IDLE = 0.05, 0.05
STEPS_OF_A_RETURN, FEW = 40, 10
PAUSE = 3 * SECOND


@dataclass(frozen=True)
class Convergence:
    """Seconds from production's start until the controller settles; infinite if it never does.

    ``harvest`` is None if production has no idle time.
    """

    slowdown: float
    harvest: float | None


@dataclass(frozen=True)
class Return:
    """Seconds, the slowest of all returns.

    ``recovery``: until production's steps are as fast as alone; ``reopening``: until the hog has
    the device in a pause.
    """

    recovery: float
    reopening: float
    returns: int


def _settled(before: list[Step], after: list[Step], last: int) -> float:
    """Return the time in seconds after which steps take at most 5 % more than alone.

    The condition holds in each second after that time.
    """
    pairs = list(zip(before, after, strict=False))
    settled, time = 0, BEGINS
    for time in range(BEGINS, last - SECOND, SECOND // 10):
        here = [(one.time, other.time) for one, other in pairs if time < other.end - other.time and other.end <= last]
        here = [(one, other) for one, other in here[: max(3, FEW)]]
        if here and sum(other for _, other in here) > (1 + SLOW) * sum(one for one, _ in here):
            settled = time - BEGINS + SECOND // 10
    return settled / SECOND


def convergence(production: str, opportunistic: str, controller: str, seed: int = 1) -> Convergence:
    contender = CONTENDERS[controller]
    last = BEGINS + (300 if controller == TGS else 30) * SECOND
    one = Process(PRODUCTION[production], is_production=True, hundredths=75, begins=BEGINS)
    other = Process(OPPORTUNISTIC[opportunistic], hundredths=25)
    solo = Plant([one], OnlyMeasured(), last, seed).run()
    outcome = Plant([one, other], contender.make(), last, seed).run()
    slowdown = _settled(solo.steps[0], outcome.steps[0], last)
    if slowdown >= (last - BEGINS) / SECOND - 3:
        slowdown = float("inf")
    idle = 1 - solo.own_between(0, BEGINS, last) / (last - BEGINS)
    return Convergence(slowdown, _harvests(outcome, idle, last) if idle > LEAST_IDLE else None)


def _harvests(outcome: Outcome, idle: float, last: int) -> float:
    """Return the time of the first four seconds whose harvest is 80 % of production's idle time."""
    width = 4 * SECOND
    for time in range(BEGINS, last - width, SECOND // 10):
        if outcome.own_between(1, time, time + width) >= 0.8 * idle * width:
            return (time - BEGINS) / SECOND
    return float("inf")


def returning() -> Workload:
    step: list[Op] = [launches(100, 200_000), SYNC_OP, STEP_OP]
    return Workload("returning", (host(PAUSE), BEGIN_OP, *(step * STEPS_OF_A_RETURN)))


def recovery(opportunistic: str, controller: str, seed: int = 1, span: int = 40 * SECOND) -> Return:
    settles = CONTENDERS[controller].settles
    one, other = Process(returning(), is_production=True, hundredths=75), Process(OPPORTUNISTIC[opportunistic])
    horizon = settles + span
    solo = Plant([one], OnlyMeasured(), 8 * SECOND, seed).run()
    outcome = Plant([one, other], CONTENDERS[controller].make(), horizon, seed).run()
    alone = solo.steps[0][STEPS_OF_A_RETURN // 2].time
    steps, slowest, opening, returns = outcome.steps[0], 0, 0, 0
    for first in range(0, len(steps) - STEPS_OF_A_RETURN + 1, STEPS_OF_A_RETURN):
        block = steps[first : first + STEPS_OF_A_RETURN]
        if block[0].end < settles or block[-1].end + 2 * SECOND > horizon:
            continue
        returns += 1
        slowest = max(slowest, _until_as_alone(block, alone))
        opening = max(opening, _until_open(outcome, block[-1].end))
    return Return(slowest / SECOND, opening / SECOND, returns)


def _until_as_alone(block: list[Step], alone: int) -> int:
    begin = block[0].end - block[0].time
    for place in range(len(block) - FEW):
        if sum(step.time for step in block[place : place + FEW]) <= (1 + SLOW) * alone * FEW:
            return block[place].end - block[place].time - begin
    return block[-1].end - begin


def _until_open(outcome: Outcome, begin: int) -> int:
    width = 50 * MILLISECOND
    first = -(-begin // (10 * MILLISECOND)) * 10 * MILLISECOND
    for time in range(first, first + 2 * SECOND, 10 * MILLISECOND):
        if outcome.own_between(1, time, time + width) >= 0.9 * width:
            return time - begin
    return 2 * SECOND
