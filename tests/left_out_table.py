"""One table of the parts that a test run left out, with reasons.

Skipped tests by reason come first, then missing parts of the set-up.
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SETUP_LIST = Path(__file__).resolve().parent.parent / "build" / "left-out.tsv"  # written by tools/left_out.py
SHOWN_PLACES = 3
WIDTH = 100
_HEAD = ("tests", "reason", "where")


@dataclass
class Reason:
    """One reason for which tests were skipped; ``places`` are their files."""

    tests: int = 0
    places: dict[str, None] = field(default_factory=dict)

    @property
    def where(self) -> str:
        names = list(self.places)
        more = f" and {len(names) - SHOWN_PLACES} more" if len(names) > SHOWN_PLACES else ""
        return ", ".join(names[:SHOWN_PLACES]) + more


def lines(skipped: Iterable[pytest.TestReport | pytest.CollectReport], setup_list: Path = SETUP_LIST) -> list[str]:
    """Return the table, most tests first; no line if nothing was left out."""
    reasons: dict[str, Reason] = defaultdict(Reason)
    for report in skipped:
        reason = reasons[_reason_of(report)]
        reason.tests += 1
        reason.places.setdefault(report.nodeid.split("::")[0].removeprefix("tests/"))
    ordered = sorted(reasons.items(), key=lambda item: (-item[1].tests, item[0]))
    rows = [(str(found.tests), text, found.where) for text, found in ordered]
    rows += [("set-up", f"{part} is missing: {why}", effect) for part, effect, why in _missing_parts(setup_list)]
    return ["left out, and why:", *_table([_HEAD, *rows])] if rows else []


def _reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return " ".join(text.removeprefix("Skipped: ").split())


def _missing_parts(setup_list: Path) -> list[tuple[str, str, str]]:
    if not setup_list.exists():
        return []
    rows = (line.split("\t") for line in setup_list.read_text().splitlines())
    return [(row[0], row[1], row[2]) for row in rows if len(row) == 3]


def _table(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    made = []
    for count, reason, where in rows:
        left, right = textwrap.wrap(reason, WIDTH * 6 // 10) or [""], textwrap.wrap(where, WIDTH * 3 // 10) or [""]
        for number in range(max(len(left), len(right))):
            cells = ["" if number else count, *(cell[number] if number < len(cell) else "" for cell in (left, right))]
            made.append(f"{cells[0]:>6}  {cells[1]:<{WIDTH * 6 // 10}}  {cells[2]}".rstrip())
    return made
