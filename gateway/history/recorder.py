"""The history of devices and kernels: it records each reading of the node, and answers questions.

It owns the one thread of its file. Nothing here stops a gateway: if the file cannot be written, a
gap remains, and one line in the log says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.provisioner.errors import StateError

from .buckets import COARSE, FINE_SECONDS, OpenSteps, step_start
from .database import HistoryFile, Limits
from .query import Answer, Question, answer as answer_question
from .samples import Reading, has_jumped, is_gap, samples

_PRUNE_SECONDS = 600.0
_RETRY_SECONDS = 60.0
# After the clock was set, nothing is removed for its age: by a wrong clock everything would be too
# old.
_DOUBT_SECONDS = 3600.0
# The most readings that wait for a disk that does not answer; further readings are gaps.
_MOST_WAITING = 30
_THREAD = "aliquot-history"

T = TypeVar("T")


@dataclass(frozen=True)
class HistorySettings:
    """The settings of the history.

    ``path`` None: in memory. ``sample_seconds``: the least time between two readings that count.
    """

    is_enabled: bool
    path: Path | None
    limits: Limits
    sample_seconds: float
    longest_gap_seconds: float


class UsageHistory:
    """The history as the event loop uses it.

    ``record`` and ``ask`` hand over to the thread, and wait for no disk.
    """

    def __init__(self, settings: HistorySettings, clock: Clock, log: logging.Logger) -> None:
        self._settings = settings
        self._clock = clock
        self._log = log
        self._keeper = HistoryKeeper(settings, log)
        # No other thread touches the history's file.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=_THREAD)
        self._waiting = 0
        self._last = -float("inf")

    def record(self, view: NodeView) -> None:
        """Called by NodeWatch with each new view."""
        now = self._clock.now()
        is_early = now - self._last < self._settings.sample_seconds
        if is_early or not self._settings.is_enabled or self._waiting >= _MOST_WAITING:
            return
        self._last = now
        self._waiting += 1
        reading = Reading(self._clock.wall(), now, view.status)
        future = asyncio.get_running_loop().run_in_executor(self._thread, self._keeper.take, reading)
        future.add_done_callback(self._taken)

    async def ask(self, question: Question, render: Callable[[Answer], T]) -> T:
        """Return the answer as ``render`` makes it. Raises StateError.

        ``render`` runs in the thread, too.
        """
        if not self._settings.is_enabled:
            raise StateError("this server keeps no history, for c.History.enabled is off")
        now, monotonic = self._clock.wall(), self._clock.now()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: render(self._keeper.answer(question, now, monotonic)))

    async def stop(self) -> None:
        """Write the steps up to now, and end the thread. Idempotent."""
        if not self._settings.is_enabled:
            return
        keeper, wall, now = self._keeper, self._clock.wall(), self._clock.now()
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, keeper.close, wall, now)
        except RuntimeError:
            return
        self._thread.shutdown(wait=False)

    def _taken(self, future: asyncio.Future[None]) -> None:
        self._waiting -= 1
        if not future.cancelled() and future.exception() is not None:
            self._log.error("history=failed; it goes on", exc_info=future.exception())


class HistoryKeeper:
    """The part that runs in the thread. One thread at a time uses it; times are arguments."""

    def __init__(self, settings: HistorySettings, log: logging.Logger) -> None:
        self._settings = settings
        self._log = log
        self._steps = OpenSteps()
        self._last: Reading | None = None
        self._file: HistoryFile | None = None
        self._try_again = self._prune_at = -float("inf")
        self._doubt_until = -float("inf")
        self._fine = 0
        self._growing: dict[int, int] = {}
        self._rolled: dict[int, float] = {}
        self._problem = ""

    def take(self, reading: Reading) -> None:
        """Add a reading of the node, and write the steps that ended by it."""
        before, self._last = self._last, reading
        if before is not None and has_jumped(before, reading):
            self._log.info("history=gap the clock went by %+.0f s", reading.wall - before.wall)
            self._doubt_until = reading.monotonic + _DOUBT_SECONDS
            self._write(before.wall, reading.monotonic, is_over=True)
        elif before is not None and not is_gap(before, reading, self._settings.longest_gap_seconds):
            self._steps.add(samples(before, reading), reading.wall, reading.monotonic - before.monotonic)
        fine = step_start(reading.wall, FINE_SECONDS)
        if fine != self._fine:
            self._fine = fine
            self._write(reading.wall, reading.monotonic)

    def answer(self, question: Question, now: float, monotonic: float) -> Answer:
        """Return the answer to a question. Raises StateError."""
        self._write(now, monotonic)
        step = question.range.step_seconds

        def read(file: HistoryFile) -> Answer:
            # Growing steps change little from one reading to the next.
            if step != FINE_SECONDS and monotonic - self._rolled.get(step, -step) >= step / 30:
                # A full disk: the steps rolled before are answered.
                with contextlib.suppress(sqlite3.OperationalError):
                    file.roll(step, now)
                    self._rolled[step] = monotonic
            return answer_question(file.database, question, now)

        found = self._with_file(read, now, monotonic, is_write=False)
        if found is None:
            raise StateError(f"the history cannot be read: {self._problem}")
        return found

    def close(self, now: float, monotonic: float) -> None:
        """Write the open steps, and close the file. Idempotent."""
        self._write(now, monotonic, is_over=True)
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, now: float, monotonic: float, is_over: bool = False) -> None:
        """Write the open steps. ``is_over``: none of them grows on."""
        points = self._steps.points()
        self._steps.forget_before(now)
        if is_over:
            self._steps.clear()

        def write(file: HistoryFile) -> None:
            file.write(points)
            for step in (each.step_seconds for each in COARSE):
                at = step_start(now, step)
                grown = self._growing.setdefault(step, at)
                if grown != at or is_over:
                    file.roll(step, grown)
                self._growing[step] = at
            if monotonic >= self._prune_at and monotonic >= self._doubt_until:
                self._prune_at = monotonic + _PRUNE_SECONDS
                file.prune(now)
            elif monotonic >= self._prune_at:
                self._prune_at = monotonic + _PRUNE_SECONDS
                file.shrink()

        if points or is_over:
            self._with_file(write, now, monotonic)

    def _with_file(
        self, act: Callable[[HistoryFile], T], now: float, monotonic: float, *, is_write: bool = True
    ) -> T | None:
        """Return the result of ``act`` on the file.

        None if the file cannot be used, which is logged once.
        """
        try:
            if self._file is None and monotonic < self._try_again and is_write:
                return None
            result = act(self._opened())
        except sqlite3.OperationalError as error:
            self._tell(str(error), monotonic)
            self._make_room(now)
            return None
        except (sqlite3.Error, OSError) as error:
            # A damaged file is set aside as it is opened again.
            self._tell(str(error), monotonic)
            if self._file is not None:
                self._file.close()
                self._file = None
                self._try_again = monotonic
            return None
        if self._problem and is_write:
            self._log.info("history=written again")
            self._problem = ""
        return result

    def _opened(self) -> HistoryFile:
        if self._file is not None and not self._file.is_ours:
            self._log.error("history=gone path=%s the file was removed; a new one is begun", self._settings.path)
            self._file.close()
            self._file = None
        if self._file is None:
            self._file = HistoryFile(self._settings.path, self._settings.limits, self._log)
        return self._file

    def _make_room(self, now: float) -> None:
        try:
            if self._file is not None:
                self._file.shrink()
        except sqlite3.Error as error:
            self._log.debug("history=not_shrunk reason=%s", error)

    def _tell(self, reason: str, monotonic: float) -> None:
        if self._file is None:
            self._try_again = monotonic + _RETRY_SECONDS
        if reason != self._problem:
            self._log.error("history=not_written path=%s reason=%s; a gap remains", self._settings.path, reason)
            self._problem = reason
