"""Find, in /proc, kernels that lost their relay and its record, for the relay host to end.

With record and relay no gateway finds such a kernel, and with the host it has no parent that knows
it. This module ends nothing.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from jupyter_aliquot.gpu_hook.base.process_account import account_of
from jupyter_aliquot.provisioner.launch_spec import KERNEL_ID_VARIABLE
from jupyter_aliquot.provisioner.relay.wire.proc import command_line, stat_fields

_PROC = Path("/proc")


def kernels_of(folder: Path, host: int | None = None) -> set[int]:
    """Return the pids of this folder's kernels whose relay is gone.

    ``host``: the pid of the relay host, where that is not this process.
    """
    return {pid for pid in all_kernels_of(folder) if _has_no_relay(pid, os.getpid() if host is None else host)}


def all_kernels_of(folder: Path) -> set[int]:
    """Return the pids of this folder's kernels, whether or not their relay lives.

    They run as the folder's account. A kernel leads a group of its own, its command names its connection
    file, and its environment has its id. A program that reads the file (an editor, a client) shares
    at most the command.
    """
    file, kernel_id = os.fspath(folder / "k" / "connection.json"), f"{KERNEL_ID_VARIABLE}={folder.name}"
    try:
        owner = folder.stat().st_uid
    except OSError:
        return set()
    return {
        pid
        for pid in (int(name) for name in os.listdir(_PROC) if name.isdigit())
        if _names(_words(pid, "cmdline"), file)
        and kernel_id in _words(pid, "environ")
        and account_of(pid) == owner
        and _leads_a_group(pid)
    }


def _names(command: list[str], file: str) -> bool:
    """Tell whether a command contains the path.

    It is a word of the command, an option's value, or a word of a shell's script.
    """
    return any(file == word or file in re.split(r"[\s='\"]+", word) for word in command)


def _words(pid: int, name: str) -> list[str]:
    """Return what a file of /proc has between its NULs.

    Returns nothing once the process is gone, or if it is another account's.
    """
    try:
        return (_PROC / str(pid) / name).read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _leads_a_group(pid: int) -> bool:
    fields = stat_fields(pid)
    return bool(fields) and int(fields[2]) == pid


def _has_no_relay(pid: int, host: int) -> bool:
    """Tell whether no relay is the process's parent.

    A living relay is its kernel's parent. The kernel of a killed one is a child of the host or of
    an ancestor of it.
    """
    fields = stat_fields(pid)
    if not fields:
        return False
    parent = int(fields[1])
    line = command_line(parent)
    return parent == host or not ("aliquot" in line and "relay" in line)
