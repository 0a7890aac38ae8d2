"""Compile tools/gpu_probe, and write the list of names that it queries from the driver.

Needs a C compiler and cuda.h.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from gpu_headers import header_folder

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "tools" / "gpu_probe"
BUILTINS = ROOT / "gpu_hook" / "builtins.ptx"
TABLE = ROOT / "gpu_hook" / "hook" / "interpose" / "entry_points.txt"


class ProbeError(Exception):
    """The probe was not compiled; the message says why."""


def compile_probe(program: Path, *flags: str) -> Path:
    """Return *program*, compiled with *flags* in addition to the usual ones.

    Raises ProbeError, HeaderMissingError.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise ProbeError("the probe needs a C compiler, and there is neither cc nor gcc: install gcc")
    command = [compiler, "-std=gnu11", "-D_GNU_SOURCE", "-O2", *flags, "-isystem", str(header_folder("cuda.h"))]
    sources = [str(source) for source in sorted(SOURCES.glob("*.c"))]
    done = subprocess.run(
        [*command, *sources, "-ldl", "-lpthread", "-o", str(program)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ProbeError(f"the probe does not compile: {done.stderr.strip()[-2000:]}")
    return program


def write_names(path: Path) -> Path:
    """Write every name of the hook's table into *path*, one a line."""
    sys.path.insert(0, str(TABLE.parent))
    from entry_points_table import read_table

    path.write_text("".join(f"{name}\n" for name in read_table(TABLE)))
    return path
