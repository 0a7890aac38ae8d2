"""Read a process's facts in /proc: its start time, and whether it lives."""

from __future__ import annotations

from pathlib import Path

_PROC = Path("/proc")
_LONGEST_STAT = 4096


def start_time_ticks(pid: int) -> int | None:
    """Return field 22 of /proc/<pid>/stat; None once the process is gone."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else None


def is_process(pid: int, ticks: int) -> bool:
    """Tell whether this very process lives: same pid, same start time, not a zombie."""
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in ("Z", "X") and int(fields[19]) == ticks


def command_line(pid: int) -> str:
    """Return the words of a process's command, joined by blanks; empty once it is gone."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def read_boot_id() -> str:
    """Return the id of this boot."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def stat_fields(pid: int) -> list[str]:
    """Return the fields from the third on: the second, the name, may hold blanks and brackets.

    The gateway asks this of a thousand kernels every three seconds, so a path and a text file are
    too slow.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            told = file.read(_LONGEST_STAT)
    except OSError:
        return []
    return told.decode(errors="replace").rpartition(")")[2].split()
