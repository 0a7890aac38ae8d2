"""Waiting with a bound, and ending a task for sure, where asyncio.wait_for is not enough; and tasks that live long.

Before Python 3.12 it loses a cancellation that meets the end of what it waits for; its caller then waits on.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_ASK_AGAIN_SECONDS = 0.1


async def within(awaitable: Awaitable[T], seconds: float) -> T:
    """Its result, or asyncio.TimeoutError after that time. A cancellation is never lost; what was awaited ends too."""
    task = asyncio.ensure_future(awaitable)
    try:
        await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        await end_task(task)
        raise
    if task.done():
        return task.result()
    await end_task(task)
    raise asyncio.TimeoutError


async def until_first(*work: Coroutine[Any, Any, object]) -> None:
    """Return when the first of them is done, and cancel the others. Raises what the first raised."""
    tasks = {asyncio.ensure_future(one) for one in work}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


def outlasting(act: Callable[[], T]) -> T:
    """What ``act`` gives. What it begins outlasts the request that asked for it, and must not keep it.

    Tasks, timers and transports hold the context variables they were made with; a server's lead to the whole request.
    """
    return contextvars.Context().run(act)


def outlasting_task(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """A task that is begun so."""
    return outlasting(lambda: asyncio.create_task(work, name=name))


def forget_reading(transport: object) -> None:
    """Of a connection that is lost: asyncio's transport holds itself by the method that reads.

    With its socket it would wait for a look for garbage. The name is private to CPython's selector_events.
    """
    with contextlib.suppress(AttributeError):
        transport._read_ready_cb = None  # type: ignore[attr-defined]


async def end_task(task: asyncio.Future[Any]) -> None:
    """Cancel until it is done: what it awaits may swallow a cancellation. Its exception is not raised here."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_ASK_AGAIN_SECONDS)
    if not task.cancelled():
        task.exception()
