"""Wait with a bound, end tasks for certain, and start tasks that live long.

Before Python 3.12, asyncio.wait_for loses a cancellation that meets the end of the awaited task;
its caller then waits on.
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
    """Return the result of *awaitable*, or raise asyncio.TimeoutError after that time.

    No cancellation is lost, and the awaited task ends, too.
    """
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
    """Wait for the first of these to finish, and cancel the others.

    Raises the exception of the first.
    """
    tasks = {asyncio.ensure_future(one) for one in work}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


def outlasting(act: Callable[[], T]) -> T:
    """Return the result of ``act``, which starts work that outlasts the current request.

    The work must not keep the request alive. Tasks, timers and transports hold the context
    variables they were made with; a server's lead to the whole request.
    """
    return contextvars.Context().run(act)


def outlasting_task(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """Start a task that outlasts the current request (see ``outlasting``)."""
    return outlasting(lambda: asyncio.create_task(work, name=name))


def forget_reading(transport: object) -> None:
    """Break the cycle in the transport of a lost connection.

    asyncio's transport holds itself by the method that reads. Without this it would wait, with its
    socket, for the garbage collector. The name is private to CPython's selector_events.
    """
    with contextlib.suppress(AttributeError):
        transport._read_ready_cb = None  # type: ignore[attr-defined]


async def end_task(task: asyncio.Future[Any]) -> None:
    """Cancel a task until it is done, since its awaited calls may swallow a cancellation.

    Its exception is not raised here.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_ASK_AGAIN_SECONDS)
    if not task.cancelled():
        task.exception()
