"""List the parts that a test run leaves out because set-up lacks something: build/left-out.tsv.

Set-up begins the list, set-up and checks append to it, and the tests print it in their last lines
next to their own skips. `python3 tools/left_out.py PART EFFECT REASON` adds one entry, for checks
that are shell scripts.
"""

from __future__ import annotations

import sys
from pathlib import Path

LIST = Path(__file__).resolve().parent.parent / "build" / "left-out.tsv"


def begin() -> None:
    """Empty the list. Called by set-up, which every run of the tests begins with."""
    LIST.parent.mkdir(exist_ok=True)
    LIST.write_text("")


def add(part: str, effect: str, reason: str) -> None:
    """Append one entry, in one write: checks run in parallel.

    Args:
        part: what is missing.
        effect: what is not tested or checked without it.
        reason: why it is missing, and what to do.
    """
    LIST.parent.mkdir(exist_ok=True)
    cells = (" ".join(text.split()) for text in (part, effect, reason))
    with LIST.open("a") as file:
        file.write("\t".join(cells) + "\n")


def entries() -> list[tuple[str, str, str]]:
    """Return each entry as (part, effect, reason), in the order in which they were added."""
    if not LIST.exists():
        return []
    rows = (line.split("\t") for line in LIST.read_text().splitlines())
    return [(row[0], row[1], row[2]) for row in rows if len(row) == 3]


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit("usage: left_out.py PART EFFECT REASON")
    add(*sys.argv[1:])
