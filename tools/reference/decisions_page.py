"""Make docs/decisions/README.md from the titles of the decisions."""

from __future__ import annotations

import re
from pathlib import Path

from .tables import GENERATED

DECISIONS = Path(__file__).resolve().parents[2] / "docs/decisions"
_TITLE = re.compile(r"# (\d+)\. (.+)\n")
_HEAD = f"""\
# Decisions

{GENERATED}

Each page has the context of a decision, the decision, its consequences and the alternatives. A decision that was
replaced names the one in its place.
"""


def decisions_page() -> str:
    """Return the whole page. Raises ValueError for a page without a number and a title."""
    return "\n".join([_HEAD, *(_line(path) for path in sorted(DECISIONS.glob("[0-9]*.md")))]) + "\n"


def _line(path: Path) -> str:
    title = _TITLE.match(path.read_text())
    if title is None:
        raise ValueError(f"{path.name} begins with no title of the form: # 12. Name of the decision")
    return f"{title[1]}. [{title[2]}]({path.name})"
