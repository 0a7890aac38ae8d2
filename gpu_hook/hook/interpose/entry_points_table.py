"""Read entry_points.txt: every function of the driver, and its treatment by the hook.

This module owns the table's grammar. It is used by the build (generate_entry_points.py), and by
the check against the headers (tools/check-entry-points).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

HOOK, GATE, PASS, DENY = "hook", "gate", "pass", "deny"
CLASSES = (HOOK, GATE, PASS, DENY)

_HEAD = re.compile(r"(\w+):$")
_WORD = re.compile(r"(\w+)(?:\{([\w,]*)\})?([*?]?)$")


class TableError(Exception):
    """A malformed line of the table, or a name that stands twice."""


@dataclass(frozen=True)
class Entry:
    """One exported function.

    ``is_called``: the hook calls it, too. ``is_declared`` False: no public header has it.
    """

    name: str
    kind: str
    is_called: bool
    is_declared: bool


def read_table(path: Path) -> dict[str, Entry]:
    """Return the entries by name, in alphabetical order. Raises TableError."""
    return parse_table(path.read_text(encoding="utf-8"), path.name)


def parse_table(text: str, source: str = "table") -> dict[str, Entry]:
    """Return the entries of a table's text."""
    entries: dict[str, Entry] = {}
    kind = ""
    for number, line in enumerate(text.splitlines(), 1):
        content = line.split("#", 1)[0].rstrip()
        if not content:
            continue
        place = f"{source}:{number}"
        if head := _HEAD.match(content):
            kind = head[1]
            if kind not in CLASSES:
                raise TableError(f"{place}: class {kind!r}; there are {', '.join(CLASSES)}")
            continue
        if not kind or not line[0].isspace():
            raise TableError(f"{place}: {content!r} is neither a class at the margin nor indented below one")
        for word in content.split():
            for entry in _expand(word, kind, place):
                if entry.name in entries:
                    raise TableError(f"{place}: {entry.name} stands in the table already")
                entries[entry.name] = entry
    return dict(sorted(entries.items()))


def _expand(word: str, kind: str, place: str) -> list[Entry]:
    """Expand a word: ``cuFoo{,_v2}*`` is cuFoo and cuFoo_v2, both called by the hook."""
    match = _WORD.match(word)
    if match is None:
        raise TableError(f"{place}: {word!r} is no name, name{{,suffix}} or either with * or ?")
    stem, suffixes, mark = match.groups()
    names = [stem + suffix for suffix in suffixes.split(",")] if suffixes is not None else [stem]
    return [Entry(name, kind, mark == "*", mark != "?") for name in names]
