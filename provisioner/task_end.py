"""Ending a task for sure: a cancellation may be swallowed by what the task awaits, so one alone proves nothing."""

from __future__ import annotations

import asyncio
from typing import Any

# asyncio.wait_for before Python 3.12 loses a cancellation that meets the end of what it waits for.
_ASK_AGAIN_SECONDS = 0.1


async def end_task(task: asyncio.Future[Any]) -> None:
    """Cancel until it is done. What it raised is not raised here: its owner has stopped caring."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_ASK_AGAIN_SECONDS)
    if not task.cancelled():
        task.exception()
