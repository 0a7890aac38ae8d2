"""Turns of the event loop and background threads at the interpreter's lock (GIL).

The loop releases the lock with each read and write of a socket. A thread that computes then keeps it
for an interval, and an answer takes several.

SQLite releases the lock for microseconds with each row. A waiting thread wakes, finds the lock
taken again, and never comes to request it, which takes an interval without a release (CPython's
ceval_gil.h). A thousand rows stop all others.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
_thread = threading.local()

_WORK_SECONDS = 0.003
# Long enough for another thread to wake up.
_PAUSE_SECONDS = 0.0003
# What no user waits for leaves the lock free for most of the time. Between two writes the loop then
# finds it free, or waits for a slice of this length.
_SLICE_SECONDS = 0.0003
_REST_SECONDS = 0.0009
# Python's own is ten times as long. The gateway's threads then hold up each read and write for a frame.
_TURN_SECONDS = 0.0005


def take_short_turns() -> None:
    """Let a thread that waits for the lock have it after half a millisecond. Keeps a shorter interval."""
    sys.setswitchinterval(min(_TURN_SECONDS, sys.getswitchinterval()))


def giving_way(
    items: Iterable[T],
    monotonic: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
    work_seconds: float = _WORK_SECONDS,
    pause_seconds: float = _PAUSE_SECONDS,
) -> Iterator[T]:
    """Return the same items.

    Every few milliseconds it pauses between two of them, without the lock.
    """
    began = monotonic()
    for item in items:
        if monotonic() - began >= work_seconds:
            pause(pause_seconds)
            began = monotonic()
        yield item


@contextmanager
def while_a_user_waits() -> Iterator[None]:
    """Let `unhurried` rest for a tenth of the time in this thread, since a user waits for the result."""
    _thread.has_a_user = True
    try:
        yield
    finally:
        _thread.has_a_user = False


def unhurried(
    items: Iterable[T],
    monotonic: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Iterable[T]:
    """Return the same items; in a background thread, rest for most of the time between them.

    For work that no user waits for; `while_a_user_waits` shortens the rests. The main thread, which
    the loop runs in, gets them at once.
    """
    if threading.current_thread() is threading.main_thread():
        return items
    if getattr(_thread, "has_a_user", False):
        return giving_way(items, monotonic, pause)
    return giving_way(items, monotonic, pause, _SLICE_SECONDS, _REST_SECONDS)
