"""SECURITY.md and tests/threats.md keep their word: claims name tests that exist, or are called a limit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()
THREATS = (ROOT / "tests/threats.md").read_text()
SHOWN = re.compile(r"\[`(test_\w+|Test\w+)`\]\(([\w/.]+\.py)\)")
LINK = re.compile(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)")
MOST_LINES = 40
# Functions that turn a text into markup or a program in a browser.
SINKS = re.compile(r"innerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|srcdoc|\beval\(|new Function")
# The promises of the page, each in words of its own.
ATTACKS = (
    "agent's control socket",
    "LD_LIBRARY_PATH",
    "static binary",
    "fork bomb",
    "/dev/shm",
    "forges its page",
    "floods IOPub",
    "guesses kernel ids",
    "path traversal",
    "websocket of another user",
    "CSRF",
    "XSS",
)


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table under a heading, without its first two lines."""
    section = THREATS.split(f"## {heading}")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


NOTEBOOK = rows("A malicious notebook, attack by attack")


def test_every_test_that_is_named_exists() -> None:
    named = set(SHOWN.findall(THREATS))
    assert len(named) > 50
    text = {file: (ROOT / "tests" / file).read_text() for _, file in named}
    is_defined = r"^\s*(?:async )?(?:def|class) {0}\b|^{0} = "
    missing = [(name, file) for name, file in named if not re.search(is_defined.format(name), text[file], re.MULTILINE)]
    assert missing == []


def test_every_attack_names_a_test_or_is_a_limit() -> None:
    for row in [*rows("What is protected"), *NOTEBOOK]:
        is_limit = row[-1] == "limit" and "**limit**" in row[-2].lower()
        assert SHOWN.search(row[-1]) or is_limit, row


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_attacks_that_were_promised_are_answered(attack: str) -> None:
    assert any(attack in row[0] for row in NOTEBOOK)


def test_what_the_hook_is_not_is_said() -> None:
    assert "**The hook is cooperative**" in PAGE
    assert "SECURITY.md" in (ROOT / "README.md").read_text()
    assert "(tests/threats.md)" in PAGE


def test_the_page_is_short_and_says_where_to_report() -> None:
    assert len(PAGE.splitlines()) <= MOST_LINES
    assert "## Report a weakness" in PAGE


def test_links_of_the_threats_resolve() -> None:
    missing = [link for link in LINK.findall(THREATS) if not (ROOT / "tests" / link).exists()]
    assert missing == []


def test_the_browser_part_makes_no_markup_of_text() -> None:
    found = []
    for file in (ROOT / "labextension" / "src").rglob("*.ts*"):
        found += [f"{file.name}: {line.strip()}" for line in file.read_text().splitlines() if SINKS.search(line)]
    assert found == []
