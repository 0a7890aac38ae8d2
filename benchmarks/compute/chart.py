"""Draw all pairs as an SVG: the slow-down of production over the used part of its idle time.

The module draws and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 860, 460, 70, 50, 150, 60
MOST_LOSS, MOST_HARVEST = 120.0, 130.0  # percent; larger values lie on the border
COLOURS = ("#2ca02c", "#7f7f7f", "#d62728", "#ff7f0e", "#1f77b4")

Points = Sequence[tuple[float, float]]  # percent of idle time used, percent that steps take longer


def _across(harvest: float) -> float:
    return LEFT + min(max(harvest, 0.0), MOST_HARVEST) / MOST_HARVEST * (WIDTH - LEFT - RIGHT)


def _down(loss: float) -> float:
    """Scale a value so that 1 % and 100 % are both visible: by the square root."""
    share = (min(max(loss, 0.0), MOST_LOSS) / MOST_LOSS) ** 0.5
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _axes(title: str) -> list[str]:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="14">{title}</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 16}">production\'s idle GPU time that the other uses → (each dot: one pair of '
        "workloads; above: production's steps take longer, p99)</text>",
        f'<rect x="{_across(80):.1f}" y="{_down(5):.1f}" width="{_across(MOST_HARVEST) - _across(80):.1f}" '
        f'height="{_down(0) - _down(5):.1f}" fill="#e8f5e8"/>',
    ]
    for loss in (0, 1, 5, 20, 50, 100):
        y = _down(loss)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">+{loss} %</text>')
    for harvest in (0, 20, 40, 60, 80, 100, 120):
        x = _across(harvest)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#eee"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{harvest} %</text>')
    return parts


def draw(path: Path, title: str, groups: Mapping[str, Points]) -> None:
    parts = _axes(title)
    for number, (name, points) in enumerate(groups.items()):
        colour, place = COLOURS[number % len(COLOURS)], TOP + 10 + number * 20
        parts += [
            f'<circle cx="{_across(x):.1f}" cy="{_down(y):.1f}" r="4" fill="{colour}" fill-opacity="0.7"/>'
            for x, y in points
        ]
        parts.append(f'<circle cx="{WIDTH - RIGHT + 20}" cy="{place - 4}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 30}" y="{place}">{name}</text>')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>\n"]))
