"""Builds a C program together with the hook's sources: it can call what is inside, and a sanitizer sees both."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

from aliquot.gpu_hook import paths

HERE = Path(__file__).parent
SOURCES = Path(paths.__file__).resolve().parent / "src"
SHARED = ["entry_points.c", "log.c", "page.c", "settings.c", "socket.c", "version.c"]
NVML = [*SHARED, "observer.c", *sorted(one.name for one in SOURCES.glob("nvml_*.c"))]
NOT_CUDA = {"kernel_start.c", "self_check.c", "audit.c", "preload.c", *NVML} - set(SHARED)


def build(main: str, folder: Path, include: Path, sanitizer: str = "", kind: str = "cuda") -> Path:
    """The program of the file ``main`` beside this one, in ``folder``."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler, "a C compiler is needed: install gcc"
    generate = [sys.executable, str(SOURCES / "generate_entry_points.py"), kind, platform.machine()]
    if kind == "cuda":
        generate += [str(folder / "entries"), str(SOURCES / "entry_points.txt")]
        names = [one.name for one in sorted(SOURCES.glob("*.c")) if one.name not in NOT_CUDA]
    else:
        newer = SOURCES.parent / "include" / "nvml_names.txt"
        generate += [str(folder / "entries"), str(SOURCES / "nvml_calls.h"), str(include / "nvml.h"), str(newer)]
        names = NVML
    subprocess.run(generate, check=True)
    program = folder / Path(main).stem
    command = [compiler, "-std=gnu11", "-O1", "-g", "-w", "-D_GNU_SOURCE", "-pthread"]
    command += [f"-fsanitize={sanitizer}"] if sanitizer else []
    command += [f"-I{folder}", f"-I{include}", f"-I{SOURCES}", f"-I{SOURCES.parent / 'include'}", "-Wl,-Bsymbolic"]
    command += [str(HERE / main), str(folder / "entries.S"), str(folder / "entries.c")]
    subprocess.run([*command, *(str(SOURCES / one) for one in names), "-o", str(program), "-ldl"], check=True)
    return program
