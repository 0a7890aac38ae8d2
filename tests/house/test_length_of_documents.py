"""The documentation is short enough to be read: a bound on its hand-written words."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from reference_pages import PAGES  # noqa: E402

MOST_WORDS = 60_000
# A newcomer hears the README in three minutes, at 150 words a minute.
MOST_SPOKEN_WORDS = 450
MOST_LINES_OF_README = 100
MOST_ROWS_OF_GLOSSARY = 40
# Made from code by other programs, each with a test that compares it.
GENERATED = set(PAGES)
UNSPOKEN = re.compile(r"```.*?```|<picture>.*?</picture>|!\[[^\]]*\]|(?<=\])\([^)]*\)", re.DOTALL)
WORD = re.compile(r"\S*\w\S*")


def counted_pages() -> list[Path]:
    """Return README.md and the pages below docs/, without results of measurements and generated pages."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in pages if not _is_left_out(page.relative_to(ROOT).as_posix())]


def _is_left_out(name: str) -> bool:
    return name in GENERATED or name.startswith("docs/results/")


def words(text: str) -> int:
    """Count what stands between spaces and has a letter or a digit: no bars and rulers of tables."""
    return len(WORD.findall(text))


def test_the_hand_written_documentation_is_bounded() -> None:
    counts = {page.relative_to(ROOT).as_posix(): words(page.read_text()) for page in counted_pages()}
    longest = sorted(counts.items(), key=lambda one: -one[1])[:8]
    assert sum(counts.values()) <= MOST_WORDS, f"shorten or merge pages; the longest are {longest}"


def test_the_readme_is_read_aloud_in_three_minutes() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= MOST_LINES_OF_README
    assert words(UNSPOKEN.sub("", text)) <= MOST_SPOKEN_WORDS


def test_blocks_of_commands_pictures_and_addresses_are_not_read_aloud() -> None:
    text = "Run [it](https://x.org/a), now:\n```sh\nmake demo\n```\n[![b c](d.svg)](e.md) <picture><img></picture>"
    assert words(UNSPOKEN.sub("", text)) == 3


def test_the_glossary_is_short() -> None:
    rows = [line for line in (ROOT / "docs/glossary.md").read_text().splitlines() if line.startswith("| ")]
    assert 20 < len(rows) - 1 <= MOST_ROWS_OF_GLOSSARY, "its head is no row"


def test_what_counts_as_a_word_and_as_a_page() -> None:
    assert words("| `a` | b-c | – |\n|---|---|\n- d, e.") == 4
    names = {page.relative_to(ROOT).as_posix() for page in counted_pages()}
    assert {"README.md", "docs/README.md", "docs/decisions/0001-the-kernelspec-name-is-the-request.md"} <= names
    assert not names & GENERATED
    assert all((ROOT / name).exists() for name in GENERATED)
