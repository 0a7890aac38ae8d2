"""Questions to the agent that the gateway sends several at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import pytest

from jupyter_aliquot.gateway.base.tasks import in_groups

Question = Callable[[], Awaitable[bool]]


class Agent:
    """An agent that notes the order of the questions, and refuses those in ``refused``."""

    def __init__(self, refused: Sequence[int] = ()) -> None:
        self.refused = refused
        self.asked: list[int] = []
        self.most_at_once = 0
        self._open = 0

    def questions(self, count: int) -> list[Question]:
        return [partial(self._ask, number) for number in range(count)]

    async def _ask(self, number: int) -> bool:
        self.asked.append(number)
        self._open += 1
        self.most_at_once = max(self.most_at_once, self._open)
        await asyncio.sleep(0)
        self._open -= 1
        return number not in self.refused


async def test_all_are_asked_in_their_order_so_many_at_once() -> None:
    agent = Agent()
    await in_groups(agent.questions(10), at_once=4)
    assert agent.asked == list(range(10))
    assert agent.most_at_once == 4


async def test_none_follows_a_group_in_which_one_was_refused() -> None:
    agent = Agent(refused=(5,))
    await in_groups(agent.questions(12), at_once=4)
    assert agent.asked == list(range(8)), "those that were on their way with it were heard, too"


async def test_an_error_is_the_callers_and_leaves_no_question_open() -> None:
    agent = Agent()

    async def fail() -> bool:
        raise RuntimeError("the agent is broken")

    with pytest.raises(RuntimeError, match="broken"):
        await in_groups([*agent.questions(2), fail, *agent.questions(2)], at_once=5)
    assert agent._open == 0
