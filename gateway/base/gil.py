"""For threads in the background: give the interpreter's lock to whoever waits for it. Knows nothing of what they do.

SQLite lets go of the lock for microseconds with each row. Whoever waits is woken, finds it taken again, and never gets
to ask for it by force, which takes an interval without a release (CPython's ceval_gil.h): a thousand rows stop all.
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
    """The same items; every few milliseconds it pauses between two of them, without the lock."""
    began = monotonic()
    for item in items:
        if monotonic() - began >= _WORK_SECONDS:
            pause(_PAUSE_SECONDS)
            began = monotonic()
        yield item
