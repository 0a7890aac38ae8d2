"""Locate the hook's C sources: a file by its name, in any folder of gpu_hook/hook."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jupyter_aliquot.gpu_hook import paths

SOURCES = Path(paths.__file__).resolve().parent / "hook"
HEADERS = SOURCES.parent / "protocol"


@cache
def source(name: str | Path) -> Path:
    """Return the path of the source file *name*; an absolute path is returned as it is."""
    if Path(name).is_absolute():
        return Path(name)
    (found,) = SOURCES.rglob(str(name))
    return found


def c_sources() -> list[Path]:
    """Return all C files of the hook, sorted by name."""
    return sorted(SOURCES.rglob("*.c"), key=lambda one: one.name)
