"""The house is small: files stay under their limit, functions fit on a screen."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from python_sources import python_source

ROOT = Path(__file__).resolve().parents[2]
FILE_LIMIT = 600
PYTHON_FUNCTION_LIMIT = 40
C_FUNCTION_LIMIT = 60
C_FUNCTION = re.compile(r"^(?!\s|#|/\*|\*|typedef|struct \w+ \{|enum|union|_Static_assert|\})[^;=]*\)\s*\{\s*$")


def sources(*suffixes: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    paths = [ROOT / line for line in listed.stdout.splitlines()]
    return [p for p in paths if p.suffix in suffixes and p.is_file() and "dist" not in p.relative_to(ROOT).parts]


def test_no_file_is_longer_than_the_limit() -> None:
    long = {
        str(p.relative_to(ROOT)): n
        for p in sources(".py", ".c", ".h", ".S", ".ts", ".tsx", ".css")
        if (n := len(p.read_text().splitlines())) > FILE_LIMIT
    }
    assert not long


def test_no_python_function_is_longer_than_the_limit() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{name}": lines
        for path in sources(".py")
        for name, lines in python_source(path).functions
        if lines > PYTHON_FUNCTION_LIMIT
    }
    assert not long


def c_functions(text: str) -> list[tuple[int, int]]:
    """Return (first line, number of lines) of each function definition.

    It relies on our layout: a body closes in column 0.
    """
    found, start = [], None
    for number, line in enumerate(text.splitlines(), 1):
        if start is None and C_FUNCTION.match(line):
            start = number
        elif start is not None and line.startswith("}"):
            found.append((start, number - start + 1))
            start = None
    return found


def test_no_c_function_is_longer_than_the_limit() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{start}": lines
        for path in sources(".c", ".h")
        for start, lines in c_functions(path.read_text())
        if lines > C_FUNCTION_LIMIT
    }
    assert not long


def test_the_c_function_finder_finds_functions() -> None:
    text = "int f(int a) {\n  if (a) {\n  }\n  return 0;\n}\nstruct s {\n  int x;\n};\nstatic void g(void) {\n}\n"
    assert c_functions(text) == [(1, 5), (9, 2)]


def test_every_package_module_says_what_it_owns() -> None:
    silent = [
        str(p.relative_to(ROOT))
        for p in sources(".py")
        if p.relative_to(ROOT).parts[0] in {"client", "demo", "gateway", "provisioner", "gpu_hook"}
        and p.read_text().strip()
        and not python_source(p).docstring
    ]
    assert not silent


@pytest.mark.parametrize(
    "pattern",
    [r"/(?:w[o]rk|f[a]rm|r[o]ot)/", r"\b(?:TO[D]O|FIX[M]E)\b", r"registry\.npmjs|pypi\.org|deb\.debian\.org"],
)
def test_no_machine_path_registry_host_or_unfinished_mark(pattern: str) -> None:
    found = [
        f"{p.relative_to(ROOT)}:{n}"
        for p in sources(
            ".py", ".c", ".h", ".ts", ".tsx", ".md", ".toml", ".txt", ".yaml", ".yml", ".json", ".lock", ""
        )
        if re.search(pattern, text := p.read_text(errors="replace"))
        for n, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert not found
