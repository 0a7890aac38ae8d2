"""A picture of simulations as SVG: completion times, and the use of the GPUs over time. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from .simulator import Outcome

WIDTH, HEIGHT, LEFT, TOP, GAP, RIGHT, BOTTOM = 960, 400, 60, 50, 70, 20, 60
PANEL = (WIDTH - LEFT - GAP - RIGHT) / 2
COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf")
STEPS = 300  # points of a line

Points = Sequence[tuple[float, float]]


def draw(outcomes: Mapping[str, Outcome]) -> str:
    """Return the picture of these outcomes, by policy.

    Left: the share of jobs that had completed within a time. Right: the share of GPUs in use.
    """
    times = [run.completion_seconds for outcome in outcomes.values() for run in outcome.runs]
    least, most = max(1.0, min(times, default=1.0)), max(10.0, max(times, default=10.0))
    end = max((outcome.makespan for outcome in outcomes.values()), default=1.0) or 1.0

    def by_time(seconds: float) -> float:
        return math.log(max(seconds, least) / least) / (math.log(most / least) or 1.0)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12" role="img"><title>Completion times and use of GPUs</title>'
        '<rect width="100%" height="100%" fill="white"/>',
        *_frame(LEFT, "jobs completed, by completion time", [(by_time(at), _time(at)) for at in _powers(least, most)]),
        *_frame(LEFT + PANEL + GAP, "GPUs in use, over time", [(at / 4, _time(end * at / 4)) for at in range(5)]),
    ]
    for number, (name, outcome) in enumerate(outcomes.items()):
        color = COLORS[number % len(COLORS)]
        parts.append(_line(LEFT, [(by_time(at), share) for at, share in _distribution(outcome)], color))
        parts.append(_line(LEFT + PANEL + GAP, [(at / end, share) for at, share in _use(outcome, end)], color))
        parts.append(f'<text x="{LEFT + number * 140}" y="{HEIGHT - 12}" fill="{color}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _frame(left: float, title: str, marks: Sequence[tuple[float, str]]) -> list[str]:
    bottom = HEIGHT - BOTTOM
    parts = [f'<text x="{left:.0f}" y="{TOP - 18}" font-size="14">{title}</text>']
    for quarter in range(5):
        y = bottom - quarter / 4 * (bottom - TOP)
        parts.append(f'<line x1="{left:.0f}" x2="{left + PANEL:.0f}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8:.0f}" y="{y + 4:.1f}" text-anchor="end">{25 * quarter} %</text>')
    for share, text in marks:
        parts.append(f'<text x="{left + share * PANEL:.1f}" y="{bottom + 18}" text-anchor="middle">{text}</text>')
    return parts


def _line(left: float, points: Points, color: str) -> str:
    height = HEIGHT - BOTTOM - TOP
    dots = " ".join(f"{left + x * PANEL:.1f},{HEIGHT - BOTTOM - y * height:.1f}" for x, y in points)
    return f'<polyline points="{dots}" fill="none" stroke="{color}" stroke-width="1.5"/>'


def _distribution(outcome: Outcome) -> Points:
    times = sorted(run.completion_seconds for run in outcome.runs)
    step = max(1, len(times) // STEPS)
    return [(times[at], (at + 1) / len(times)) for at in [*range(0, len(times), step), len(times) - 1] if times]


def _use(outcome: Outcome, end: float) -> Points:
    """Return the mean share of GPUs in use in each of the steps from 0 to *end*."""
    totals = [0.0] * STEPS
    width = end / STEPS
    for (at, milli), (until, _) in zip(outcome.use, outcome.use[1:], strict=False):
        for step in range(int(at / width), min(STEPS - 1, int(until / width)) + 1):
            totals[step] += milli * max(0.0, min(until, (step + 1) * width) - max(at, step * width))
    return [((step + 0.5) * width, total / width / (outcome.milli or 1)) for step, total in enumerate(totals)]


def _powers(least: float, most: float) -> list[float]:
    return [10.0**power for power in range(math.ceil(math.log10(least)), math.floor(math.log10(most)) + 1)]


def _time(seconds: float) -> str:
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
