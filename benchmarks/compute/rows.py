"""The measurements as rows of the report.

A bound that does not hold is a row that says so; nothing is left out.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from report import Row, at_least, at_most

from compute.controllers import OURS, TGS
from compute.dynamics import Convergence, Return
from compute.fairness import Share
from compute.pairs import Pair

MOST_SLOWDOWN, LEAST_HARVEST, SHARE_POINTS = 5.0, 80.0, 3.0
NEVER_SECONDS = 1e3  # stands for never: JSON has no infinity

Pairs = Mapping[tuple[str, str], Pair]  # by name and controller


def is_within(pair: Pair) -> bool:
    return max(pair.slowdown_p50, pair.slowdown_p99) <= MOST_SLOWDOWN / 100


def of_pair(pairs: Pairs, name: str) -> list[Row]:
    """Return the rows of a pair: ours with its bounds, the others for comparison."""
    ours = pairs[name, OURS]
    rows = [
        at_most(f"{name}: slow-down p50", 100 * ours.slowdown_p50, "%", MOST_SLOWDOWN),
        at_most(f"{name}: slow-down p99", 100 * ours.slowdown_p99, "%", MOST_SLOWDOWN),
    ]
    if ours.has_idle:
        least = max(LEAST_HARVEST, 100 * pairs[name, TGS].harvest) if (name, TGS) in pairs else LEAST_HARVEST
        rows.append(at_least(f"{name}: harvest", 100 * ours.harvest, "% of idle", round(least, 1)))
        rows.append(Row(f"{name}: clairvoyant harvest", 100 * ours.bound, "% of idle"))
    for (other, controller), pair in pairs.items():
        if other == name and controller != OURS:
            rows.append(Row(f"{name}: {controller}: slow-down p99", 100 * pair.slowdown_p99, "%"))
            if pair.has_idle:
                rows.append(Row(f"{name}: {controller}: harvest", 100 * pair.harvest, "% of idle"))
    return rows


def summary(pairs: Pairs, controller: str) -> list[Row]:
    mine = [pair for (_, name), pair in pairs.items() if name == controller]
    with_idle = [pair for pair in mine if pair.has_idle]
    slow = [max(pair.slowdown_p50, pair.slowdown_p99) for pair in mine]
    held = sum(is_within(pair) for pair in mine)
    harvested = sum(pair.harvest >= LEAST_HARVEST / 100 for pair in with_idle)
    both = sum(pair.harvest >= LEAST_HARVEST / 100 and is_within(pair) for pair in with_idle)
    possible = sum(pair.bound >= LEAST_HARVEST / 100 for pair in with_idle)
    rows = [
        Row(f"{controller}: slow-down within 5 % at p50 and p99", held, f"of {len(mine)} pairs"),
        Row(f"{controller}: slow-down, the median pair's worse", 100 * statistics.median(slow), "%"),
        Row(f"{controller}: slow-down, the worst pair's", 100 * max(slow), "%"),
    ]
    if with_idle:
        rows += [
            Row(f"{controller}: harvest of 80 %", harvested, f"of {len(with_idle)} pairs with idle time"),
            Row(f"{controller}: both", both, f"of {len(with_idle)}, {possible} of which allow it to the clairvoyant"),
            Row(
                f"{controller}: harvest, the median pair's",
                100 * statistics.median(pair.harvest for pair in with_idle),
                "% of idle",
            ),
        ]
    return rows


def of_convergence(name: str, controller: str, result: Convergence) -> Row:
    seconds = min(NEVER_SECONDS, max(result.slowdown, result.harvest or 0.0))
    title = f"{controller}: converged after production starts, {name}"
    return at_most(title, seconds, "s", 2.0) if controller == OURS else Row(title, seconds, "s")


def of_return(name: str, controller: str, result: Return) -> list[Row]:
    titles = f"{controller}: recovered when production returns, {name}", f"{controller}: opened when it pauses, {name}"
    recovery, opening = 1000 * result.recovery, 1000 * result.reopening
    first = at_most(titles[0], recovery, "ms", 200) if controller == OURS else Row(titles[0], recovery, "ms")
    return [first, Row(titles[1], opening, "ms")]


def of_share(name: str, controller: str, share: Share) -> Row:
    title = f"{controller}: share {share.want} % {name}: furthest 1 s window"
    if controller == OURS:
        return at_most(title, share.worst, "points", SHARE_POINTS)
    return Row(title, share.worst, "points")


def of_jain(count: int, controller: str, index: float) -> Row:
    title = f"{controller}: Jain index among {count} equals"
    return at_least(title, index, "", 0.98) if controller == OURS else Row(title, index, "")


def of_cost(count: int, controller: str, cost: float) -> Row:
    title = f"{controller}: each kernel beyond the first, of {count}"
    bound = at_most(title, 100 * cost, "% of throughput", 10.0)
    return bound if controller == OURS else Row(title, 100 * cost, "% of throughput")


def failing(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.holds is False]
