"""Waiting with a bound loses neither results, errors nor cancellations."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from jupyter_aliquot.gpu_hook.waiting import end_task, outlasting, outlasting_task, until_first, within


def test_a_result_and_an_error_come_through() -> None:
    async def fail() -> None:
        raise ValueError("asked for")

    async def check() -> None:
        assert await within(asyncio.sleep(0, "there"), 5) == "there"
        with pytest.raises(ValueError, match="asked for"):
            await within(fail(), 5)

    asyncio.run(check())


def test_what_takes_too_long_is_ended() -> None:
    async def check() -> None:
        event = asyncio.Event()
        task = asyncio.ensure_future(event.wait())
        with pytest.raises(asyncio.TimeoutError):
            await within(task, 0.01)
        assert task.cancelled()

    asyncio.run(check())


def test_a_cancellation_that_meets_the_end_is_not_lost() -> None:
    async def check() -> None:
        inner: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        outer = asyncio.create_task(within(inner, 5))
        await asyncio.sleep(0)
        inner.set_result(None)
        outer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await outer

    asyncio.run(check())


def test_a_task_that_swallows_a_cancellation_ends_at_the_next() -> None:
    swallowed = []

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed.append(True)
        await asyncio.Event().wait()

    async def check() -> None:
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        await end_task(task)
        assert task.cancelled()
        assert swallowed == [True]

    asyncio.run(check())


def test_what_outlasts_a_request_has_none_of_its_variables() -> None:
    request = ContextVar("request", default="none")

    async def look() -> str:
        await asyncio.sleep(0)
        return request.get()

    async def check() -> None:
        request.set("the one that is answered")
        heard = asyncio.get_running_loop().create_future()
        outlasting(lambda: asyncio.get_running_loop().call_later(0, lambda: heard.set_result(request.get())))
        assert await outlasting_task(look(), "a-look") == "none"
        assert await heard == "none"
        assert await asyncio.create_task(look()) == "the one that is answered"

    asyncio.run(check())


def test_the_first_that_is_done_ends_the_others_and_its_error_comes_through() -> None:
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waits")

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("asked for")

    async def check() -> None:
        await until_first(waits(), asyncio.sleep(0))
        with pytest.raises(ValueError, match="asked for"):
            await until_first(waits(), fails())
        await asyncio.sleep(0)
        assert ended == ["waits", "waits"]

    asyncio.run(check())
