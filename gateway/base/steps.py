"""Long work of the event loop in steps, between which the loop serves others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

# A request waits for a step that has begun. Shorter steps cost more turns of the loop.
_STEP_SECONDS = 0.002


async def each_in_steps(items: Iterable[T], monotonic: Callable[[], float] = time.monotonic) -> AsyncIterator[T]:
    """Yield the items.

    The iterator does the work, and may find the world changed between two items.
    """
    began = monotonic()
    for item in items:
        yield item
        if monotonic() - began >= _STEP_SECONDS:
            await asyncio.sleep(0)
            began = monotonic()


async def in_steps(items: Iterable[T], monotonic: Callable[[], float] = time.monotonic) -> list[T]:
    """Return the items as a list, as `each_in_steps` yields them; it is faster, for very short work."""
    found, began = [], monotonic()
    for item in items:
        found.append(item)
        if monotonic() - began >= _STEP_SECONDS:
            await asyncio.sleep(0)
            began = monotonic()
    return found
