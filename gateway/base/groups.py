"""Questions asked several at a time, in their order, as long as all are answered well. Decides nothing itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

_AT_ONCE = 16


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
