"""Questions on their way: few at once, each on a connection and in a thread of its own.

The book's thread only says what its file lacks; the reading and the rendering are done in other
threads, so that no question keeps looks waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

from jupyter_aliquot.gateway.base.private_database import open_for_reading
from jupyter_aliquot.provisioner.errors import StateError

from .book import Book, Unwritten
from .query import Answer, Question, answer as answer_question

_READERS = 2
# One question of a user is read at a time; a few more wait, of several tabs perhaps.
_MOST_OF_USER = 4
_MOST_IN_ALL = 32
_TRIES = 5
# SQLite asks after so many instructions whether it goes on: a fraction of a millisecond.
_INSTRUCTIONS = 1000

T = TypeVar("T")


class Questions:
    """The questions to one book. The event loop uses it.

    ``writer``: the book's thread.
    """

    def __init__(self, book: Book, is_in_memory: bool, writer: Executor) -> None:
        self._book = book
        self._is_in_memory = is_in_memory
        self._writer = writer
        self._readers = ThreadPoolExecutor(max_workers=_READERS, thread_name_prefix="aliquot-usage")
        self._asked: dict[str, int] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._stops: set[threading.Event] = set()

    def refusal(self, user: str) -> str:
        """Return why the user may ask nothing just now; empty: the user may."""
        of_user, in_all = self._asked.get(user, 0), sum(self._asked.values())
        if of_user < _MOST_OF_USER and in_all < _MOST_IN_ALL:
            return ""
        whose, count, most = (
            ("yours", of_user, _MOST_OF_USER) if of_user >= _MOST_OF_USER else ("all users", in_all, _MOST_IN_ALL)
        )
        return (
            f"Requested the GPU time, but {count} such requests of {whose} are under way, and {most} may be. "
            "Try again in a moment"
        )

    async def ask(self, user: str, question: Question, now: float, render: Callable[[Answer], T]) -> T:
        """Return the answer as ``render`` makes it, in a thread. Raises StateError and RequestError.

        A question that is cancelled ends its reading.
        """
        self._asked[user] = self._asked.get(user, 0) + 1
        try:
            async with self._turns.setdefault(user, asyncio.Lock()):
                return await self._answered(question, now, render)
        finally:
            self._asked[user] -= 1
            if not self._asked[user]:
                del self._asked[user], self._turns[user]

    def stop(self) -> None:
        """End all questions. Idempotent."""
        for stop in self._stops:
            stop.set()
        self._readers.shutdown(wait=False, cancel_futures=True)

    async def _answered(self, question: Question, now: float, render: Callable[[Answer], T]) -> T:
        loop, stop, book = asyncio.get_running_loop(), threading.Event(), self._book
        self._stops.add(stop)
        try:
            if self._is_in_memory:
                found = await loop.run_in_executor(self._writer, book.answer, question, now)
                return await loop.run_in_executor(self._readers, render, found)
            for _ in range(_TRIES):
                unwritten = await loop.run_in_executor(self._writer, book.unwritten, now)
                answer = await loop.run_in_executor(self._readers, _read, question, unwritten, stop)
                # What was written meanwhile may be counted twice, or not at all.
                if not unwritten.pending or book.writes == unwritten.writes:
                    return await loop.run_in_executor(self._readers, render, answer)
        finally:
            stop.set()
            self._stops.discard(stop)
        raise StateError("The accounting was written while it was read, several times. Try again in a moment")


def _read(question: Question, unwritten: Unwritten, stop: threading.Event) -> Answer:
    """Return the answer from a connection of its own. Raises StateError and RequestError."""
    if unwritten.path is None:
        return answer_question(question, None, unwritten.pending)
    try:
        with contextlib.closing(open_for_reading(unwritten.path)) as database:
            database.set_progress_handler(stop.is_set, _INSTRUCTIONS)
            return answer_question(question, database, unwritten.pending)
    except sqlite3.Error as error:
        raise StateError(f"The accounting cannot be read: {error}. Try again in a moment") from error
