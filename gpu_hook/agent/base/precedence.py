"""Lets the node agent run before other programs of its machine, where its account may say so."""

from __future__ import annotations

import contextlib
import os

NICENESS = -10


def take_precedence() -> None:
    """Raise this process's priority; leave it as it is for an account without that right.

    The agent computes little, but credit, production's protection and the restart of the agent itself wait for it, on
    machines whose processors kernels keep busy.
    """
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
