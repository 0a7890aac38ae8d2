"""Processor time of a server's processes, from /proc: of itself, and of those that work for it in a folder."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

_PROC = Path("/proc")
_PROGRAMS = {
    "jupyter_aliquot.gpu_hook.agent": "node agent",
    "jupyter_aliquot.provisioner.relay": "relay",
    "ipykernel_launcher": "kernel",
}


def processor_seconds(server: int, folder: Path) -> dict[str, float]:
    """Return the seconds that each kind of process has used: the server, and those whose command names the folder."""
    found: dict[str, float] = {}
    for process in _PROC.iterdir():
        if process.name.isdigit() and (kind := _kind(process, server, folder)):
            found[kind] = found.get(kind, 0.0) + _seconds(process)
    return found


def each(before: Mapping[str, float], after: Mapping[str, float], times: int) -> dict[str, float]:
    """Return the milliseconds that each of these times cost, by the kind of process."""
    return {kind: (seconds - before.get(kind, 0.0)) * 1e3 / times for kind, seconds in after.items()}


def _kind(process: Path, server: int, folder: Path) -> str:
    if process.name == str(server):
        return "server"
    with contextlib.suppress(OSError):
        command = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        if any(str(folder) in word for word in command):
            return next((kind for program, kind in _PROGRAMS.items() if program in command), "")
    return ""


def _seconds(process: Path) -> float:
    nanoseconds = 0
    with contextlib.suppress(OSError):
        for task in (process / "task").iterdir():
            with contextlib.suppress(OSError):
                nanoseconds += int((task / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9
