"""Build the program that copies as the hook does, from the hook's own sources."""

from __future__ import annotations

from pathlib import Path

from report import ROOT
from subjects import compile_c

SOURCES = ROOT / "gpu_hook" / "hook"
# The hook's sources for copies, and their dependencies; the program replaces the rest of the hook.
COPYING = (
    *("copy_engine/mover.c", "copy_engine/copy_contexts.c", "copy_engine/copy_chunks.c", "copy_engine/ring.c"),
    *("copy_engine/segments.c", "agent_link/socket.c", "base/log.c", "base/settings.c"),
)


def compile_copies(output: Path, cuda: Path) -> Path:
    """Compile benchmarks/swap/copies.c, linked to this driver."""
    folder = ROOT / "benchmarks" / "swap"
    include = [f"-I{SOURCES}", f"-I{SOURCES.parent / 'protocol'}", "-include", str(folder / "direct_driver.h")]
    flags = ["-D_GNU_SOURCE", "-pthread", "-Wno-deprecated-declarations", *include]
    sources = [str(folder / "copy_twice.c"), *(str(SOURCES / name) for name in COPYING)]
    return compile_c("../swap/copies.c", output, *flags, *sources, str(cuda))
