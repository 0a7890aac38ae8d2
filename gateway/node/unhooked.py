"""Texts about processes that use a GPU without the hook.

It imports little: the command line uses it, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_aliquot.gpu_hook.client.reports import UnhookedProcess
from jupyter_aliquot.provisioner.resources import Bytes


def count_processes(processes: Iterable[UnhookedProcess]) -> int:
    """Return how many processes they are. A process on several devices is listed for each."""
    return len({process.pid for process in processes})


def process_text(process: UnhookedProcess) -> str:
    """Return one line for users: the process, the memory that it has, and how that is known."""
    used = "memory" if process.used_bytes is None else str(Bytes(process.used_bytes))
    counted = f", {Bytes(process.charged_bytes)} of it counted" if process.charged_bytes else ""
    return f"process {process.pid} ({process.name}) has {used} on gpu{process.index}{counted}: {process.why}"
