"""Run coroutines: again and again in the background, several at a time, or to an end within a bounded time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from jupyter_aliquot.gpu_hook.waiting import end_task

from .clock import Clock

_AT_ONCE = 16
_STOP_SECONDS = 5.0


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


async def in_groups(questions: Sequence[Callable[[], Awaitable[bool]]], at_once: int = _AT_ONCE) -> None:
    """Ask them. Each group begins in its order and ends before the next; none follows one in which a False was.

    Whoever is asked hears them in their order, and a thousand of them do not take a thousand ways there and back.
    """
    for start in range(0, len(questions), at_once):
        group = [asyncio.ensure_future(question()) for question in questions[start : start + at_once]]
        try:
            await asyncio.wait(group)
        finally:
            for each in group:
                each.cancel()
            answers = await asyncio.gather(*group, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        if not all(answers):
            return


async def within_patience(part: str, stop: Coroutine[Any, Any, None], log: logging.Logger) -> None:
    """A part that does not stop in time keeps neither the others nor the server."""
    task = asyncio.ensure_future(stop)
    await asyncio.wait({task}, timeout=_STOP_SECONDS)
    if not task.done():
        task.cancel()
        log.error("%s=stuck it did not stop within %g s", part, _STOP_SECONDS)
    elif task.exception() is not None:
        log.error("%s=failed at its stop: %s", part, task.exception())
