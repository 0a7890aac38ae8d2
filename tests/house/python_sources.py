"""The parts of a Python file that the tests of this folder read, found in one pass for all of them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


@dataclass(frozen=True)
class PythonSource:
    """A file's docstrings, its functions with their lines, and the values that it raises and returns.

    The module's docstring is None where it has none.
    """

    docstring: str | None
    docstrings: tuple[str, ...]
    functions: tuple[tuple[str, int], ...]
    answers: tuple[ast.expr, ...]


@functools.cache
def python_source(path: Path) -> PythonSource:
    """Return what a file has. It is parsed once in a run."""
    return parsed(path.read_text())


def parsed(text: str) -> PythonSource:
    """Return what a program has. Expressions are passed over: no function, class or return is in one."""
    module = ast.parse(text)
    docstrings, functions, answers = [ast.get_docstring(module)], [], []
    for node in _statements(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append((node.name, (node.end_lineno or node.lineno) - node.lineno + 1))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            docstrings.append(ast.get_docstring(node))
        elif isinstance(node, ast.Raise) and node.exc:
            answers.append(node.exc)
        elif isinstance(node, ast.Return) and node.value:
            answers.append(node.value)
    return PythonSource(docstrings[0], tuple(one for one in docstrings if one), tuple(functions), tuple(answers))


def _statements(module: ast.Module) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = [*module.body]
    while waiting:
        node = waiting.pop()
        yield node
        for name in _BLOCKS:
            waiting += getattr(node, name, ())
