"""The account of a process, by /proc.

A file of its own: relays are many, and import little; the agent and the provisioner ask for it, too.
"""

from __future__ import annotations

from pathlib import Path

_PROC = Path("/proc")


def account_of(pid: int) -> int | None:
    """Return the number of a process's account; None once it is gone.

    The owner of its folder in /proc may be root, whatever its account is.
    """
    try:
        text = (_PROC / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return None
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Uid:")), None)
