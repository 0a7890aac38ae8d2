"""Runners of coroutines: periodically in the background, in groups, patiently, or with a bounded time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from jupyter_aliquot.gpu_hook.base.pacing import Backoff
from jupyter_aliquot.gpu_hook.waiting import end_task
from jupyter_aliquot.provisioner.errors import EngineError

from .clock import Clock

_AT_ONCE = 16
_STOP_SECONDS = 5.0
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.5, 15.0

_Answer = TypeVar("_Answer")


class Recurring:
    """A periodic task.

    The error of a turn is logged with the task's name, and the next turn follows.
    """

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
        """Begin with the first turn at once. Idempotent."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"aliquot-{self._name}")

    async def stop(self) -> None:
        """Stop. No turn runs when this returns. Idempotent."""
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
    """Run the calls in groups, in their order.

    A group ends before the next one begins. The first False ends it.

    The other side gets the calls in their order, and a thousand calls do not take a thousand round
    trips.
    """
    if len(questions) == 1:
        await questions[0]()
        return
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


async def until_answered(
    subject: str, read: Callable[[], _Answer], sleep: Callable[[float], Awaitable[None]], log: logging.Logger
) -> _Answer:
    """Return the answer of *read*, which blocks, however long the other side is away or busy.

    Raises the EngineError of a refusal that does not pass.
    """
    waits = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS)
    while True:
        try:
            return await asyncio.to_thread(read)
        except EngineError as error:
            if not error.is_passing:
                raise
            log.warning("%s=unread reason=%s; they are read again", subject, error)
        await sleep(waits.next_seconds())


async def within_patience(part: str, stop: Coroutine[Any, Any, None], log: logging.Logger) -> None:
    """Stop a part with a bounded time, so that it delays neither the others nor the server."""
    task = asyncio.ensure_future(stop)
    await asyncio.wait({task}, timeout=_STOP_SECONDS)
    if not task.done():
        task.cancel()
        log.error("%s=stuck it did not stop within %g s", part, _STOP_SECONDS)
    elif task.exception() is not None:
        log.error("%s=failed at its stop: %s", part, task.exception())
