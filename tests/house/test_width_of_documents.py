"""Prose of the pages is wrapped: a line of a paragraph or a list has at most 100 columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("tutorial", "how-to", "explanation")
WIDTH = 100


def wide_lines(text: str) -> Iterator[str]:
    """Yield the lines of prose that are too long: no table, heading, picture or block of code, and no single word."""
    is_code = False
    for line in text.splitlines():
        is_fence = line.lstrip().startswith("```")
        is_code = is_code != is_fence
        is_prose = not is_code and not is_fence and not line.lstrip().startswith(("|", "#", "<", ">"))
        if is_prose and len(line) > WIDTH and len(line.split()) > 2:
            yield line


def test_no_line_of_prose_is_longer_than_the_width() -> None:
    pages = [page for folder in FOLDERS for page in sorted((ROOT / "docs" / folder).glob("*.md"))]
    found = {page.name: len(list(wide_lines(page.read_text()))) for page in pages}
    assert {name: count for name, count in found.items() if count} == {}, f"wrap prose at {WIDTH} columns"


def test_what_counts_as_a_long_line_of_prose() -> None:
    long = "word " * 30
    text = (
        f"{long}\n- {long}\n| {long} |\n# {long}\n> {long}\n```sh\n{long}\n```\n  ```text\n{long}\n  ```\n{'x' * 120}\n"
    )
    assert list(wide_lines(text)) == [long, f"- {long}"]
