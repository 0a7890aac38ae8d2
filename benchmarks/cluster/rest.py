"""Wait for processors at rest: what the start before left is done then, and other work of the machine counts less."""

from __future__ import annotations

import os
import time
from pathlib import Path

_WINDOW_SECONDS = 0.35
_BUSY = 0.25  # of one processor
# The columns of /proc/stat: user, nice, system; irq, softirq, steal. See proc(5).
_WORK = (1, 2, 3, 6, 7, 8)


def wait_for_rest(patience_seconds: float) -> None:
    """Wait until the processors had hardly anything to do for a moment, but no longer than that."""
    until = time.monotonic() + patience_seconds
    while time.monotonic() < until:
        before, began = _busy_seconds(), time.monotonic()
        time.sleep(_WINDOW_SECONDS)
        if (_busy_seconds() - before) / (time.monotonic() - began) < _BUSY:
            return


def _busy_seconds() -> float:
    told = Path("/proc/stat").read_text().splitlines()[0].split()
    return sum(int(told[column]) for column in _WORK) / os.sysconf("SC_CLK_TCK")
