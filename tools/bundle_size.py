"""Bytes of the lab extension's committed bundle: what JupyterLab loads before it paints, and with the sidebar.

Bounds, held by tests/house/test_bundle_size.py; the benchmark of the lab extension reports the same figures.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from pathlib import Path

STATIC = Path(__file__).resolve().parents[1] / "labextension" / "dist" / "static"
# The module that registers the plugins: JupyterLab waits for it. It had 20.7 kB when the plugins' code left it.
MOST_FIRST_BYTES = 22_000
MOST_SIDEBAR_BYTES = 80_000
_FIRST = re.compile(r"labextension_lib_index_js\.")
# Chunks of the pages that are loaded when they are opened.
_LATER = re.compile(r"labextension_lib_(widgets_(admin|usage|folders)|admin)_")


@dataclass(frozen=True)
class BundleSize:
    """Bytes of the parts of a bundle; gzipped but for the first module."""

    first_module: int
    sidebar: int
    whole: int


def bundle_size(static: Path = STATIC) -> BundleSize:
    """Measure the bundle in this folder."""
    files = {path.name: path.read_bytes() for path in sorted(static.iterdir())}
    gzipped = {name: len(gzip.compress(data, 9, mtime=0)) for name, data in files.items()}
    return BundleSize(
        first_module=sum(len(data) for name, data in files.items() if _FIRST.match(name)),
        sidebar=sum(size for name, size in gzipped.items() if not _LATER.match(name)),
        whole=sum(gzipped.values()),
    )


def excesses(size: BundleSize) -> list[str]:
    """Return a sentence for each bound that the bundle exceeds."""
    return [
        f"{what} has {size} bytes, at most {most} are allowed. Import what a page alone needs when it is opened"
        for what, size, most in (
            ("the first module of the lab extension", size.first_module, MOST_FIRST_BYTES),
            ("the bundle of the sidebar, gzipped,", size.sidebar, MOST_SIDEBAR_BYTES),
        )
        if size > most
    ]
