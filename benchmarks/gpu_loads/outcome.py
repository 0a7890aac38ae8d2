"""From steps to slow-down and harvest. Pure.

What a program took of the device beside another is its steps there, each at what it took alone: so it is the same
measure under controllers that attribute nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from report import Row, at_least, at_most

from .workers import Step

LEAST_IDLE = 0.05  # of the device, below which there is nothing to harvest
MOST_SLOWDOWN_PERCENT = 5.0
LEAST_HARVEST_PERCENT = 80.0
OURS = "measured"


@dataclass(frozen=True)
class Alone:
    """``share``: of the device's time, in as long as ``steps`` are of."""

    share: float
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Beside:
    """A pair, for as long as its programs ran alone. ``steps``: the production one's; ``other_steps``: the other's."""

    controller: str
    production: str
    opportunistic: str
    steps: tuple[Step, ...]
    other_steps: tuple[Step, ...]


def percentile(steps: Sequence[Step], share: float) -> float:
    """Of their lengths; not a number where there are none."""
    lengths = sorted(step.length for step in steps)
    return lengths[min(len(lengths) - 1, int(share * len(lengths)))] if lengths else float("nan")


def slowdown_percent(alone: Sequence[Step], beside: Sequence[Step], share: float) -> float:
    return 100 * (percentile(beside, share) / percentile(alone, share) - 1)


def harvest_percent(production: Alone, opportunistic: Alone, found: Beside) -> float | None:
    """Of what production alone leaves idle. None where it leaves nothing."""
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
