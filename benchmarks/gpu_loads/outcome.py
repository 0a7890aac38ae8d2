"""Compute slow-down and harvest from steps. The functions are pure.

A program's use of the device next to another is its steps there, each counted with its time alone:
the measure is thus the same for controllers that attribute nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from report import Row, at_least, at_most

from .workers import Step

LEAST_IDLE = 0.05  # of the device: with less idle time there is nothing to harvest
MOST_SLOWDOWN_PERCENT = 5.0
LEAST_HARVEST_PERCENT = 80.0
OURS = "measured"


@dataclass(frozen=True)
class Alone:
    """A program alone on the device.

    ``share``: of the device's time, over the time that ``steps`` cover.
    """

    share: float
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Beside:
    """A pair, for as long as its programs ran alone.

    ``steps``: the production program's; ``other_steps``: the other's.
    """

    controller: str
    production: str
    opportunistic: str
    steps: tuple[Step, ...]
    other_steps: tuple[Step, ...]


def percentile(steps: Sequence[Step], share: float) -> float:
    """Return a percentile of the steps' lengths; NaN without steps."""
    lengths = sorted(step.length for step in steps)
    return lengths[min(len(lengths) - 1, int(share * len(lengths)))] if lengths else float("nan")


def slowdown_percent(alone: Sequence[Step], beside: Sequence[Step], share: float) -> float:
    return 100 * (percentile(beside, share) / percentile(alone, share) - 1)


def harvest_percent(production: Alone, opportunistic: Alone, found: Beside) -> float | None:
    """Return the used percent of the time that production alone leaves idle.

    None if production leaves no time idle.
    """
    idle = 1 - production.share
    if idle < LEAST_IDLE or not opportunistic.steps:
        return None
    return 100 * opportunistic.share * len(found.other_steps) / len(opportunistic.steps) / idle


def rows_of(alone: Mapping[str, Alone], found: Sequence[Beside], has_bounds: bool) -> list[Row]:
    rows = []
    for name, one in alone.items():
        rows.append(Row(f"{name}, alone: of the device", 100 * one.share, "%"))
        rows.append(Row(f"{name}, alone: step, p50", percentile(one.steps, 0.5) / 1e3, "ms"))
    for pair in found:
        rows += _rows_of_pair(alone, pair, has_bounds and pair.controller == OURS)
    return rows


def _rows_of_pair(alone: Mapping[str, Alone], pair: Beside, is_bound: bool) -> list[Row]:
    title = f"{pair.controller}: {pair.production} beside {pair.opportunistic}"
    production, rows = alone[pair.production], []
    for share in (0.5, 0.99):
        name, value = f"{title}: slow-down, p{share * 100:g}", slowdown_percent(production.steps, pair.steps, share)
        rows.append(at_most(name, value, "%", MOST_SLOWDOWN_PERCENT) if is_bound else Row(name, value, "%"))
    harvest = harvest_percent(production, alone[pair.opportunistic], pair)
    if harvest is not None:
        name = f"{title}: harvest"
        rows.append(at_least(name, harvest, "%", LEAST_HARVEST_PERCENT) if is_bound else Row(name, harvest, "%"))
    return rows
