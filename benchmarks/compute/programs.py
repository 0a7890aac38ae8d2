"""A short language for simulated processes: launches, graphs, waits, host work, requests, steps.

The module has values only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000

LAUNCH, GRAPH, SYNC, HOST, ARRIVE, BEGIN, STEP = range(7)  # enum op_kind of core/plant.h

Op = tuple[int, int, int, int, int, int]  # kind, function, count, each, host_each, blocks


def launches(count: int, each: float, function: int = 0, host_each: float = 5 * MICROSECOND, blocks: int = 256) -> Op:
    """Return ``count`` launches of ``each`` nanoseconds.

    The host needs ``host_each`` for one, as PyTorch's dispatch does.
    """
    return (LAUNCH, function, count, max(1, int(each)), int(host_each), blocks)


def graph(each: float, function: int = 0, host_each: float = 15 * MICROSECOND, blocks: int = 10_000) -> Op:
    return (GRAPH, function, 1, max(1, int(each)), int(host_each), blocks)


def host(nanoseconds: float) -> Op:
    return (HOST, 0, 0, max(0, int(nanoseconds)), 0, 0)


def arrive(gap: float) -> Op:
    """Return the arrival of the next request, so long after the one before.

    The request waits if the process is still at work.
    """
    return (ARRIVE, 0, 0, max(0, int(gap)), 0, 0)


SYNC_OP: Op = (SYNC, 0, 0, 0, 0, 0)
BEGIN_OP: Op = (BEGIN, 0, 0, 0, 0, 0)
STEP_OP: Op = (STEP, 0, 0, 0, 0, 0)
OTHER_STEP_OP: Op = (STEP, 1, 0, 0, 0, 0)  # of another kind, whose times are not mixed with these


def around(random: Random, middle: float, spread: float) -> float:
    """Return a log-normal value with this median.

    ``spread`` is the standard deviation of the logarithm.
    """
    return middle * math.exp(random.gauss(0.0, spread))


@dataclass(frozen=True)
class Workload:
    """A program that repeats.

    ``about``: the real workload that it stands for, and the source of its figures.
    """

    name: str
    ops: tuple[Op, ...]
    about: str = ""


def repeated(name: str, about: str, steps: Sequence[Sequence[Op]]) -> Workload:
    return Workload(name, tuple(op for step in steps for op in step), about)
