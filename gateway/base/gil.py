"""Pauses of background threads, in which other threads get the interpreter's lock (GIL).

SQLite releases the lock for microseconds with each row. A waiting thread wakes, finds the lock
taken again, and never comes to request it, which takes an interval without a release (CPython's
ceval_gil.h). A thousand rows stop all others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_WORK_SECONDS = 0.003
# Long enough for another thread to wake up.
_PAUSE_SECONDS = 0.0003


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
