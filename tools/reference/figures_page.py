"""Make docs/results/figures.md from the JSON files that the benchmarks wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .tables import GENERATED, cell, table

RESULTS = Path(__file__).resolve().parents[2] / "docs/results"

_HEAD = f"""\
# All bounds, and the figures of the last run

{GENERATED}

One section a benchmark: the last run whose JSON is kept here, and each of its figures that has a bound.
[The list of results](README.md) has the pages with the conditions. Figures of the software GPU and of
simulations are no GPU's.
"""


def figures_page() -> str:
    """Return the whole page."""
    lines = [_HEAD]
    for name, path in sorted(_last_runs().items()):
        run = json.loads(path.read_text())
        bounded = list(_bounded(run["rows"]))
        missed = sum(row[3] == "**no**" for row in bounded)
        lines += [
            f"## {name}",
            "",
            f"[{path.name}]({path.name}): {run['date']}, {cell(run['machine'])}; {cell(run['device'])}; commit "
            f"`{run['commit']}`. {len(bounded)} of {len(run['rows'])} figures have a bound, {missed} missed it.",
            *_later(name, path),
            "",
            *table(("figure", "value", "bound", "holds"), bounded),
            "",
        ]
    return "\n".join(lines)


def _last_runs() -> dict[str, Path]:
    """Return the newest file of each benchmark; the name begins with its date."""
    return {path.stem[len("2026-11-21-") :]: path for path in sorted(RESULTS.glob("*.json"))}


def _later(name: str, last: Path) -> list[str]:
    """Return a line that names the pages of later runs, whose JSON was not kept."""
    pages = [page.name for page in sorted(RESULTS.glob(f"????-??-??-{name}.md")) if page.name[:10] > last.name[:10]]
    return [f"Later, without a JSON file: {', '.join(f'[{page}]({page})' for page in pages)}."] if pages else []


def _bounded(rows: list[dict[str, Any]]) -> Iterator[tuple[str, str, str, str]]:
    for row in rows:
        if row["want"]:
            holds = {True: "yes", False: "**no**", None: "–"}[row["holds"]]
            yield cell(row["name"]), cell(f"{_number(row['value'])} {row['unit']}"), cell(row["want"]), holds


def _number(value: float) -> str:
    """Return the value with three significant digits, or whole where it is whole."""
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else f"{value:.3g}"
