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


def build(
    main: str, folder: Path, include: Path, sanitizer: str = "", kind: str = "cuda", objects: Path | None = None
) -> Path:
    """The program of the file ``main`` beside this one, in ``folder``. In ``objects`` the hook's own are kept, for the
    next program with the same sanitizer and kind."""
    objects = objects or folder
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler, "a C compiler is needed: install gcc"
    command = [compiler, "-std=gnu11", "-O1", "-g", "-w", "-D_GNU_SOURCE", "-pthread"]
    command += [f"-fsanitize={sanitizer}"] if sanitizer else []
    command += [f"-I{objects}", f"-I{include}", f"-I{SOURCES}", f"-I{SOURCES.parent / 'include'}"]
    if not (objects / "entries.o").exists():
        sources = _sources(kind, objects, include)
        subprocess.run([*command, "-c", *map(str, sources)], check=True, cwd=objects)
    program = folder / Path(main).stem
    parts = sorted(str(one) for one in objects.glob("*.o"))
    subprocess.run([*command, "-Wl,-Bsymbolic", str(HERE / main), *parts, "-o", str(program), "-ldl"], check=True)
    return program


def _sources(kind: str, folder: Path, include: Path) -> list[Path]:
    """What the hook's library is made of; the generated ones are written to ``folder``."""
    generate = [sys.executable, str(SOURCES / "generate_entry_points.py"), kind, platform.machine()]
    generate += [str(folder / "jumps")]
    if kind == "cuda":
        generate += [str(SOURCES / "entry_points.txt")]
        names = [one.name for one in sorted(SOURCES.glob("*.c")) if one.name not in NOT_CUDA]
    else:
        newer = SOURCES.parent / "include" / "nvml_names.txt"
        generate += [str(SOURCES / "nvml_calls.h"), str(include / "nvml.h"), str(newer)]
        names = NVML
    subprocess.run(generate, check=True)
    (folder / "jumps.S").rename(folder / "entries.S")  # another object than that of entries' C file
    return [folder / "entries.S", folder / "jumps.c", *(SOURCES / name for name in names)]
