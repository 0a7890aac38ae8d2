"""The compatibility page claims nothing that no test shows: each cell is a test's name, or says that it waits."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/compatibility.md"
WAITS = "not on hardware yet"
MODES = ["`vmm`", "`managed`", "`off`"]


def rows() -> list[list[str]]:
    """Return the cells of each row of the page's table, without its two first lines."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert table[0] == ["framework", "allocator", *MODES]
    return table[2:]


def test_each_cell_is_a_test_that_exists_or_says_that_it_waits() -> None:
    sources = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    names = {name for source in sources for name in re.findall(r"^def (test_\w+)\(", source, re.MULTILINE)}
    cells = [cell for row in rows() for cell in row[2:]]
    assert [cell for cell in cells if cell != WAITS and cell.strip("`") not in names] == []
    assert len([cell for cell in cells if cell != WAITS]) > 10


def test_each_pair_of_framework_and_allocator_has_one_row() -> None:
    pairs = [tuple(row[:2]) for row in rows()]
    assert [pair for pair in pairs if pairs.count(pair) > 1] == []
    assert all(len(row) == 2 + len(MODES) for row in rows())
