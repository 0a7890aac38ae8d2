"""Let the node agent run before other programs of its machine, where its account permits it."""

from __future__ import annotations

import contextlib
import os

NICENESS = -10


def take_precedence() -> None:
    """Raise this process's priority; leave it as it is for an account without that right.

    The agent computes little. But credit, the protection of production and the agent's own restart
    wait for it, on machines whose processors kernels keep busy.
    """
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
