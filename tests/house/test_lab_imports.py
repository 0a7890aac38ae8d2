"""The folders of the lab extension import in the order of its README, from top to bottom."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "labextension/src"
ENTRY = re.compile(r"^- `(?P<name>[\w./]+?)/?`: \S", re.MULTILINE)
IMPORT = re.compile(r"""(?:from|import\()\s*'(\.[^']*)'""")


def order() -> list[str]:
    return ENTRY.findall((ROOT / "labextension/README.md").read_text())


def part(module: Path, parts: list[str]) -> str:
    """Return the entry of the README that holds *module*, a path below ``src`` without its ending."""
    names = [f"{module}{ending}" for ending in (".ts", ".tsx")]
    return next((name for name in names if name in parts), str(module.parent))


def imports(source: Path) -> list[Path]:
    """Return the modules of ours that *source* imports, as paths below ``src`` without their ending."""
    folder = source.parent.relative_to(SOURCES)
    return [Path(os.path.normpath(folder / found)) for found in IMPORT.findall(source.read_text())]


def test_every_file_imports_downwards() -> None:
    parts = order()
    wrong = []
    for source in sorted(SOURCES.rglob("*.ts*")):
        module = source.relative_to(SOURCES).with_suffix("")
        here = part(module, parts)
        assert here in parts, f"labextension/README.md has no line for {source.relative_to(ROOT)}"
        wrong += [
            f"{module} imports {other}"
            for other in imports(source)
            if parts.index(part(other, parts)) < parts.index(here)
        ]
    assert wrong == []


def test_every_line_of_the_readme_is_there() -> None:
    generated = "api.ts"
    missing = [name for name in order() if name != generated and not (SOURCES / name).exists()]
    assert missing == []
    assert len(order()) > 10
