"""Make docs/reference/protocol-header.md from the C headers of the protocol between hook and agent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from .tables import GENERATED, cell, code, table

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ("gpu_hook/protocol/aliquot_protocol.h", "gpu_hook/protocol/aliquot_pages.h")
_COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
_DEFINE = re.compile(r"^#define (\w+) (.+?)(?:\s*/\*(.*?)\*/)?$", re.MULTILINE)
_BLOCK = re.compile(r"^(enum|struct) (\w+) \{(.*?)\};", re.MULTILINE | re.DOTALL)
_MEMBER = re.compile(r"^\s*(?P<text>[^;,/\n]+?)[;,]\s*$")


def header_page() -> str:
    """Return the whole page."""
    head = [
        "# The protocol between hook and agent, in C",
        "",
        GENERATED,
        "",
        "The definition is " + " and ".join(code(name) for name in HEADERS) + ". A test compares sizes, offsets and",
        "constants with the Python twin, `gpu_hook/protocol/codec.py`.",
        "[The node agent](agent-protocol.md#hook-socket) says how both sides use it.",
    ]
    lines = [*head, "", *_constants()]
    for name in HEADERS:
        for kind, title, body in _BLOCK.findall((ROOT / name).read_text()):
            lines += ["", f"## {kind} {title}", "", *table(("member", "meaning"), _members(body))]
    return "\n".join(lines) + "\n"


def _constants() -> list[str]:
    found = [match for name in HEADERS for match in _DEFINE.findall((ROOT / name).read_text())]
    rows = [(code(name), code(value.strip()), cell(comment or "")) for name, value, comment in found]
    return ["## Constants", "", *table(("name", "value", "meaning"), rows)]


def _members(body: str) -> Iterator[tuple[str, str]]:
    """Yield each member with its comments: those above it, and the one behind it or continued below."""
    above: list[str] = []
    rows: list[list[str]] = []
    text, ends = _flat(body)
    for number, line in enumerate(text):
        if isinstance(line, str):
            rows.append([line, " ".join(above)])
            above = []
        elif ends[number]:
            rows[-1][1] = " ".join([rows[-1][1], line[0]]).strip()
        else:
            above.append(line[0])
    for member, meaning in rows:
        yield code(member), cell(meaning)


def _flat(body: str) -> tuple[list[str | tuple[str]], list[bool]]:
    """Return members (strings) and comments (tuples), and for each comment whether it is behind a member."""
    parts: list[str | tuple[str]] = []
    behind: list[bool] = []
    position = 0
    for match in [*_COMMENT.finditer(body), None]:
        code_before = body[position : match.start() if match else len(body)]
        for member in re.split(r"[;,]", code_before):
            if member.strip():
                parts.append(" ".join(member.split()))
                behind.append(False)
        if match:
            line = body[body.rfind("\n", 0, match.start()) + 1 : match.start()]
            parts.append((" ".join(re.sub(r"\n\s*\*", " ", match[1]).split()),))
            behind.append(bool(line.strip()))
            position = match.end()
    return parts, behind
