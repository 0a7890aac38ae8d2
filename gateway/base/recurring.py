"""Something that is done again and again in the background, until it is stopped. It knows nothing of what that is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from jupyter_aliquot.gpu_hook.waiting import end_task

from .clock import Clock


class Recurring:
    """One task, which is this object's. What a turn raises is logged by its name, and the next one comes."""

    def __init__(
        self, name: str, turn: Callable[[], Awaitable[None]], seconds: float, clock: Clock, log: logging.Logger
    ) -> None:
        self._name = name
        self._turn = turn
        self._seconds = seconds
        self._clock = clock
        self._log = log
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """The first turn is now. Idempotent."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"aliquot-{self._name}")

    async def stop(self) -> None:
        """No turn goes on when this returns. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            await end_task(task)

    async def _run(self) -> None:
        while True:
            try:
                await self._turn()
            except Exception:
                self._log.exception("%s=failed; it goes on", self._name)
            await self._clock.sleep(self._seconds)
