"""A line chart as SVG: seconds on a logarithmic axis over a number of GPUs.

The module draws and decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 440, 70, 40, 250, 60
LEAST, MOST = 0.1, 1e5  # seconds
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e")

Points = Sequence[tuple[float, float]]


def draw(path: Path, title: str, below: str, lines: Mapping[str, Points], bound: float) -> None:
    """Draw the chart. ``lines``: name → (GPUs, seconds). ``bound`` is drawn across."""
    xs = [x for points in lines.values() for x, _ in points]
    least, most = min(xs), max(xs)

    def across(x: float) -> float:
        return LEFT + (x - least) / (most - least) * (WIDTH - LEFT - RIGHT)

    def down(y: float) -> float:
        share = math.log10(min(max(y, LEAST), MOST) / LEAST) / math.log10(MOST / LEAST)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="14">{title}</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 16}">{below}</text>',
    ]
    for power in range(-1, 6):
        y = down(10.0**power)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g} s</text>')
    for x in sorted(set(xs))[::2]:
        parts.append(f'<text x="{across(x):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:g}</text>')
    y = down(bound)
    parts.append(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#555" stroke-dasharray="5 4"/>'
    )
    parts.append(f'<text x="{WIDTH - RIGHT + 6}" y="{y + 4:.1f}" fill="#555">{bound:g} s</text>')
    for number, (name, points) in enumerate(lines.items()):
        colour, place = COLOURS[number % len(COLOURS)], TOP + 10 + number * 20
        dots = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{dots}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{across(x):.1f}" cy="{down(y):.1f}" r="3" fill="{colour}"/>' for x, y in points]
        parts.append(f'<text x="{WIDTH - RIGHT + 40}" y="{place}" fill="{colour}">{name}</text>')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>\n"]))
