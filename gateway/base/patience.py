"""How long a part of the gateway may take to stop, and what happens to one that takes longer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

_STOP_SECONDS = 5.0


async def within_patience(part: str, stop: Coroutine[Any, Any, None], log: logging.Logger) -> None:
    """A part that does not stop in time keeps neither the others nor the server."""
    task = asyncio.ensure_future(stop)
    await asyncio.wait({task}, timeout=_STOP_SECONDS)
    if not task.done():
        task.cancel()
        log.error("%s=stuck it did not stop within %g s", part, _STOP_SECONDS)
    elif task.exception() is not None:
        log.error("%s=failed at its stop: %s", part, task.exception())
