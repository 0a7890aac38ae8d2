"""Kernels that lost their relay and its record: found by what /proc tells, for the relay host to end.

With record and relay no gateway finds such a kernel, and with the host it has no parent that knows it. Ends nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.relay.wire.proc import command_line, stat_fields
from jupyter_aliquot.provisioner.relay.wire.spare_names import is_listened_at

_PROC = Path("/proc")


def folders_without_relay(runtime: RuntimeDir) -> tuple[Path, ...]:
    """Return the relay folders in which no relay left a record, nor listens for gateways."""
    try:
        folders = sorted(runtime.relays.iterdir())
    except FileNotFoundError:
        return ()
    return tuple(
        folder
        for folder in folders
        if folder.is_dir() and not os.path.lexists(folder / "relay.json") and not is_listened_at(folder / "link.sock")
    )


def kernels_of(folder: Path) -> set[int]:
    """Return the pids of our own account that were started as the kernel of this folder, and whose relay is gone.

    A kernel leads a group of its own, and its command names its connection file.
    """
    started_with = os.fspath(folder / "k" / "connection.json")
    found = set()
    for pid in (int(name) for name in os.listdir(_PROC) if name.isdigit()):
        if started_with in command_line(pid) and _is_ours(pid) and _has_no_relay(pid):
            found.add(pid)
    return found


def _is_ours(pid: int) -> bool:
    try:
        return (_PROC / str(pid)).stat().st_uid == os.geteuid()
    except OSError:
        return False


def _has_no_relay(pid: int) -> bool:
    """A relay that lives is its kernel's parent; a killed one's kernel is the host's child, or an ancestor's of it."""
    fields = stat_fields(pid)
    if not fields or int(fields[2]) != pid:
        return False
    parent = int(fields[1])
    line = command_line(parent)
    return parent == os.getpid() or not ("aliquot" in line and "relay" in line)
