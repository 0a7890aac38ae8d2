"""Make docs/reference/errors.md: each error class whose text users read, with its messages as the code has them.

The messages are read from the source. A test holds that each class of ours is here or in ``INTERNAL``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from jupyter_aliquot.gateway.base.http_errors import HTTP_STATUS

from .error_advice import ADVICE, IN_CELLS
from .tables import GENERATED, cell, code

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("client", "gateway", "provisioner", "gpu_hook", "demo")
_FEWEST_WORDS = 3
_HEAD = f"""\
# Errors and their messages

{GENERATED}

Find a message here by its words; `…` stands for a value. The number behind a class is the HTTP status
with which REST answers it: its own, or that of the class it is made of. [Troubleshoot](../how-to/troubleshooting.md)
begins with symptoms.
"""


@dataclass
class ErrorClass:
    """One exception class of ours. ``bases`` are the names of what it is made of."""

    name: str
    bases: tuple[str, ...]
    summary: str
    messages: set[str] = field(default_factory=set)


@cache
def error_classes() -> dict[str, ErrorClass]:
    """Return every exception class of the packages, with the messages that the code makes it with."""
    paths = [path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))]
    nodes = [
        node
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef | ast.Call)
    ]
    classes = list(_classes(nodes))
    bases: dict[str, tuple[str, ...]] = {}
    for one in classes:
        bases[one.name] = bases.get(one.name, ()) + one.bases
    found: dict[str, ErrorClass] = {}
    for one in classes:
        if any(_is_error(base, bases) for base in one.bases):  # another class of the name may be no error
            same = found.setdefault(one.name, one)
            if same is not one:  # two folders use one name
                same.bases += one.bases
                same.summary = f"{same.summary} {one.summary}"
    for name, message in _messages(nodes, set(found)):
        found[name].messages.add(message)
    return found


def error_page() -> str:
    """Return the whole page."""
    lines = [_HEAD, "## In a cell", ""]
    lines += [f"- `{name}`: {advice}" for name, advice in IN_CELLS.items()]
    found = error_classes()
    statuses = {kind.__name__: status for kind, status in HTTP_STATUS.items()}
    for name in sorted(set(found) & set(ADVICE)):
        one = found[name]
        status = _status(name, found, statuses)
        lines += [
            "",
            f"## {name}" + (f" ({status})" if status else ""),
            "",
            one.summary,
            "",
            f"*What to do:* {_sentence(ADVICE[name])}",
        ]
        if one.messages:
            lines += ["", *(f"- {code(message)}" for message in sorted(one.messages))]
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _classes(nodes: list[ast.AST]) -> Iterator[ErrorClass]:
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            bases = tuple(ast.unparse(base).rpartition(".")[2] for base in node.bases)
            summary = (ast.get_docstring(node) or "").split("\n\n")[0]
            yield ErrorClass(node.name, bases, cell(summary))


def _is_error(name: str, bases: dict[str, tuple[str, ...]]) -> bool:
    if name not in bases:
        return name in ("Exception", "HTTPError") or (name.endswith("Error") and name not in ("Error",))
    return any(_is_error(base, bases) for base in bases[name] if base != name)


def _status(name: str, found: dict[str, ErrorClass], statuses: dict[str, int]) -> int | None:
    if name in statuses:
        return statuses[name]
    bases = found[name].bases if name in found else ()
    return next((status for base in bases if (status := _status(base, found, statuses))), None)


def _messages(nodes: list[ast.AST], names: set[str]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        # The last name of `a.b.name(…)`: to print the whole of each call takes seconds.
        name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
        if name in names:
            texts = [text for argument in node.args if len((text := _template(argument)).split()) >= _FEWEST_WORDS]
            for text in texts[:1]:
                yield name, text


def _template(node: ast.expr) -> str:
    """Return the text of an argument, with ``…`` for each value; empty: it is no text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
        return "".join(str(part) for part in parts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (_template(node.left) or "…") + (_template(node.right) or "…")
    return ""
