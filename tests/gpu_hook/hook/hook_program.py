"""Build a C program together with the hook's sources.

The program can call internal functions, and a sanitizer sees both.
"""

from __future__ import annotations

import fcntl
import hashlib
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from hook_sources import HEADERS, SOURCES, c_sources, source

HERE = Path(__file__).parent
MADE = HERE.parents[2] / "build" / "hook-objects"
SHARED = ["entry_points.c", "log.c", "page.c", "settings.c", "socket.c", "version.c"]
NVML = [*SHARED, "observer.c", *sorted(one.name for one in SOURCES.rglob("nvml_*.c"))]
NOT_CUDA = {"kernel_start.c", "self_check.c", "audit.c", "preload.c", *NVML} - set(SHARED)


def build(main: str, folder: Path, include: Path, sanitizer: str = "", kind: str = "cuda") -> Path:
    """Build the program of the file ``main`` beside this one, in ``folder``.

    The hook's own objects are compiled once for each sanitizer and kind, by the first process that
    needs them, and again when a source has changed.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler, "a C compiler is needed: install gcc"
    command = [compiler, "-std=gnu11", "-O1", "-g1", "-w", "-D_GNU_SOURCE", "-pthread"]
    command += [f"-fsanitize={sanitizer}"] if sanitizer else []
    command += [f"-I{include}", f"-I{SOURCES}", f"-I{HEADERS}"]
    objects = MADE / f"{kind}-{sanitizer.replace(',', '-') or 'plain'}"
    objects.mkdir(parents=True, exist_ok=True)
    program = folder / Path(main).stem
    with (objects / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made_of, stamp = _fingerprint(command), objects / "made of"
        if not (stamp.exists() and stamp.read_text() == made_of):
            stamp.unlink(missing_ok=True)
            for old in objects.glob("*.o"):
                old.unlink()
            sources = map(str, _sources(kind, objects, include))
            subprocess.run([*command, f"-I{objects}", "-c", *sources], check=True, cwd=objects)
            stamp.write_text(made_of)
        parts = sorted(str(one) for one in objects.glob("*.o"))
        link = ["-Wl,-Bsymbolic", str(HERE / main), *parts, "-o", str(program), "-ldl"]
        subprocess.run([*command, f"-I{objects}", *link], check=True)
    return program


def _fingerprint(command: list[str]) -> str:
    """Return a hash of everything on which the objects depend."""
    digest = hashlib.sha256(" ".join(command).encode())
    digest.update(subprocess.run([command[0], "--version"], check=True, capture_output=True).stdout)
    for folder in (SOURCES, HEADERS):
        for path in sorted(one for one in folder.rglob("*") if one.suffix in (".c", ".h", ".S", ".py", ".txt")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _sources(kind: str, folder: Path, include: Path) -> list[Path]:
    """Return the sources of the hook's library; the generated ones are written to ``folder``."""
    generate = [sys.executable, str(source("generate_entry_points.py")), kind, platform.machine()]
    generate += [str(folder / "jumps")]
    if kind == "cuda":
        generate += [str(source("entry_points.txt"))]
        names = [one.name for one in c_sources() if one.name not in NOT_CUDA]
    else:
        newer = HEADERS / "nvml_names.txt"
        generate += [str(source("nvml_calls.h")), str(include / "nvml.h"), str(newer)]
        names = NVML
    subprocess.run(generate, check=True)
    (folder / "jumps.S").rename(folder / "entries.S")  # another object than that of entries' C file
    return [folder / "entries.S", folder / "jumps.c", *(source(name) for name in names)]
