"""Sentences of pages name an actor (CONTRIBUTING.md, "How we write"): none begins with a clause of *Who* or *What*."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOP_PAGES = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md")
PAGES = [
    *(ROOT / name for name in TOP_PAGES),
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "results"),
]
BLOCK = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
TARGET = re.compile(r"\]\([^)\s]*\)")
# A list's sign and a bold label before a sentence are not its first words.
BEGINNING = re.compile(r"^(?:[-*>]|\d+\.) +|^\*\*[^*]+\*\* *")
RIDDLE = re.compile(r"(?:What|Who|Whoever|Whose|Whom|Whatever)\b.*[.:;]$", re.DOTALL)
VAGUE = re.compile(r"(?<!\*)\b(?:nobody|somebody|whoever|whom|someone|no one)\b(?!\*)", re.IGNORECASE)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of paragraphs and lists: no block, table, heading or picture."""
    for paragraph in re.split(r"\n\s*\n|\n(?= *(?:[-*]|\d+\.) )", TARGET.sub("]", BLOCK.sub("\n\n", text))):
        lines = [line for line in paragraph.splitlines() if not line.lstrip().startswith(("|", "#", "<"))]
        for sentence in re.split(r"(?<=[.!?])\s+", " ".join(" ".join(lines).split())):
            yield BEGINNING.sub("", BEGINNING.sub("", sentence))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_sentence_of_a_page_names_its_actor(page: Path) -> None:
    found = [sentence for sentence in sentences(page.read_text()) if RIDDLE.match(sentence) or VAGUE.search(sentence)]
    assert found == [], "name the actor, then the verb: the gateway, the agent, the hook, the driver, the user"


def test_what_counts_as_a_sentence_without_an_actor() -> None:
    text = (
        "# What it is\n\nIt runs. What runs\nis kept. What now?\n\n- **Cells:** Whose cell waits, reads it.\n"
        "- fine\n\n```text\nWhat is code.\n```\n| What is in a table. |\n\n> Someone reads. It has no *nobody*.\n"
    )
    found = [one for one in sentences(text) if RIDDLE.match(one) or VAGUE.search(one)]
    assert found == ["What runs is kept.", "Whose cell waits, reads it.", "Someone reads."]
