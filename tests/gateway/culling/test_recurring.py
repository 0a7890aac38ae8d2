"""Recurring tasks: they go on after a turn that failed, and end when they are stopped."""

from __future__ import annotations

import asyncio
import logging

import pytest

from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.base.tasks import Recurring

LOG = logging.getLogger("test.recurring")


def test_a_turn_that_fails_is_told_and_the_next_one_comes(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        turns, is_third = [0], asyncio.Event()

        async def turn() -> None:
            turns[0] += 1
            if turns[0] == 1:
                raise OSError("the first one")
            if turns[0] == 3:
                is_third.set()

        recurring = Recurring("look", turn, 0.001, SystemClock(), LOG)
        recurring.start()
        recurring.start()
        await asyncio.wait_for(is_third.wait(), 60)
        await recurring.stop()
        await recurring.stop()
        ended_at = turns[0]
        for _ in range(10):
            await asyncio.sleep(0)
        assert turns[0] == ended_at
        assert [task.get_name() for task in asyncio.all_tasks()] == [asyncio.current_task().get_name()]  # type: ignore[union-attr]

    asyncio.run(scenario())
    assert "look=failed; it goes on" in caplog.text


def test_stopping_ends_a_turn_that_goes_on() -> None:
    async def scenario() -> None:
        has_begun = asyncio.Event()
        ended = []

        async def turn() -> None:
            has_begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)

        recurring = Recurring("look", turn, 60.0, SystemClock(), LOG)
        recurring.start()
        await asyncio.wait_for(has_begun.wait(), 60)
        await recurring.stop()
        assert ended == [True]

    asyncio.run(scenario())
