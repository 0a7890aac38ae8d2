"""Measure shares against their targets.

The cases are caps alone, weights next to a neighbor, equal kernels, and the cost of one more
kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compute.controllers import CONTENDERS
from compute.opportunistic import OPPORTUNISTIC
from compute.plant import Outcome, Plant, Process
from compute.programs import SECOND

SHARES = (10, 25, 50, 75)
KINDS = ("gpt2", "gnn", "dlrm", "batch-llm")  # short, tiny and mixed launches, graphs
SETTLES, SPAN = 3 * SECOND, 12 * SECOND


@dataclass(frozen=True)
class Share:
    """Points of the device, over windows of 1 s.

    ``mean`` over the windows; ``worst``: the largest distance of a window from the target.
    """

    want: int
    mean: float
    worst: float


def _windows(outcome: Outcome, process: int) -> list[float]:
    """Return percentages of the device, second by second."""
    return [
        100 * outcome.own_between(process, time, time + SECOND) / SECOND
        for time in range(SETTLES, SETTLES + SPAN, SECOND)
    ]


def _run(processes: Sequence[Process], controller: str, seed: int) -> Outcome:
    return Plant(processes, CONTENDERS[controller].make(), SETTLES + SPAN, seed).run()


def capped_alone(kind: str, hundredths: int, controller: str, seed: int = 1) -> Share:
    process = Process(OPPORTUNISTIC[kind], is_production=True, hundredths=hundredths, is_capped=True)
    windows = _windows(_run([process], controller, seed), 0)
    return Share(hundredths, sum(windows) / len(windows), max(abs(one - hundredths) for one in windows))


def beside_busy(
    kind: str, neighbour: str, hundredths: int, controller: str, is_production: bool, seed: int = 1
) -> Share:
    """Measure a process's part of the GPU time that both processes get together.

    Switches between contexts count for neither process.
    """
    processes = [
        Process(OPPORTUNISTIC[kind], is_production, hundredths),
        Process(OPPORTUNISTIC[neighbour], is_production, 100 - hundredths),
    ]
    outcome = _run(processes, controller, seed)
    one, other = _windows(outcome, 0), _windows(outcome, 1)
    parts = [100 * mine / (mine + theirs) for mine, theirs in zip(one, other, strict=True)]
    return Share(hundredths, sum(parts) / len(parts), max(abs(part - hundredths) for part in parts))


def jain(count: int, controller: str, seed: int = 1) -> float:
    """Return Jain's index of so many equal kernels, with all kinds of launches among them."""
    share = 100 // count
    kinds = [KINDS[number % len(KINDS)] for number in range(count)]
    processes = [Process(OPPORTUNISTIC[kind], is_production=True, hundredths=share) for kind in kinds]
    outcome = _run(processes, controller, seed)
    own = [outcome.own_between(number, SETTLES, SETTLES + SPAN) for number in range(count)]
    squares = sum(one * one for one in own)
    return sum(own) ** 2 / (count * squares) if squares else 0.0


def cost_of_one_more(count: int, controller: str, seed: int = 1) -> float:
    """Return the part of the device's throughput that each kernel beyond the first costs."""
    sums = []
    for kernels in (1, count):
        processes = [
            Process(OPPORTUNISTIC["gpt2"], is_production=True, hundredths=100 // count) for _ in range(kernels)
        ]
        outcome = _run(processes, controller, seed)
        sums.append(sum(outcome.own_between(number, SETTLES, SETTLES + SPAN) for number in range(kernels)))
    return (1 - sums[1] / sums[0]) / (count - 1)
