"""Turns of the event loop and background threads at the interpreter's lock (GIL).

The loop releases the lock with each read and write of a socket. A thread that computes then keeps it
for an interval, and an answer takes several.

SQLite releases the lock for microseconds with each row. A waiting thread wakes, finds the lock
taken again, and never comes to request it, which takes an interval without a release (CPython's
ceval_gil.h). A thousand rows stop all others.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_WORK_SECONDS = 0.003
# Long enough for another thread to wake up.
_PAUSE_SECONDS = 0.0003
# Python's own is ten times as long. The gateway's threads then hold up each read and write for a frame.
_TURN_SECONDS = 0.0005


def take_short_turns() -> None:
    """Let a thread that waits for the lock have it after half a millisecond. Keeps a shorter interval."""
    sys.setswitchinterval(min(_TURN_SECONDS, sys.getswitchinterval()))


def giving_way(
    items: Iterable[T],
    monotonic: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[T]:
    """Return the same items.

    Every few milliseconds it pauses between two of them, without the lock.
    """
    began = monotonic()
    for item in items:
        if monotonic() - began >= _WORK_SECONDS:
            pause(_PAUSE_SECONDS)
            began = monotonic()
        yield item
