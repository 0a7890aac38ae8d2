"""The history of devices and kernels: it records each reading of the node, and answers questions.

It owns the one thread of its file. Nothing here stops a gateway: if the file cannot be written, a
gap remains, and one line in the log says so.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.base.gil import while_a_user_waits
from jupyter_aliquot.gateway.base.private_database import Keeper
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.provisioner.errors import StateError

from .buckets import COARSE_SECONDS, FINE_SECONDS, OpenSteps, Point
from .counters import KernelCounters
from .database import HistoryFile, Limits
from .query import Answer, Question, answer as answer_question
from .samples import Reading, has_jumped, is_gap, samples

# A gateway that is killed loses so much of each resolution.
_WRITE_SECONDS = {FINE_SECONDS: 10.0, COARSE_SECONDS: 60.0}
_PRUNE_SECONDS = 600.0
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
        self._steps = {step: OpenSteps(step) for step in _WRITE_SECONDS}
        self._write_at = dict.fromkeys(_WRITE_SECONDS, -float("inf"))
        self._last: Reading | None = None
        self._counters = KernelCounters()
        self._prune_at = self._doubt_until = -float("inf")
        path = settings.path
        self.kept = Keeper("history", path, lambda: HistoryFile(path, settings.limits, log), log, "a gap remains")

    def take(self, reading: Reading) -> None:
        """Add a reading of the node, and write what is due."""
        before, self._last = self._last, reading
        if before is not None and has_jumped(before, reading):
            self._log.info("history=gap the clock went by %+.0f s", reading.wall - before.wall)
            self._doubt_until = reading.monotonic + _DOUBT_SECONDS
            self._counters.skip(reading.status)
        elif before is not None and not is_gap(before, reading, self._settings.longest_gap_seconds):
            seconds = reading.monotonic - before.monotonic
            open_steps = [(steps, steps.parts(reading.wall, seconds)) for steps in self._steps.values()]
            # One at a time: the garbage collector would look at a thousand, and at their values.
            for sample in samples(before, reading, self._counters):
                for steps, divided in open_steps:
                    steps.add(sample, divided)
        else:
            self._counters.skip(reading.status)
        due = [step for step, at in self._write_at.items() if reading.monotonic >= at]
        self._write(due, reading.wall, reading.monotonic)

    def answer(self, question: Question, now: float, monotonic: float) -> Answer:
        """Return the answer to a question. Raises StateError."""
        with while_a_user_waits():
            self._write([question.range.step_seconds], now, monotonic)
        found = self.kept.use(lambda file: answer_question(file.database, question, now), monotonic)
        if found is None:
            raise StateError(f"the history cannot be read: {self.kept.problem}")
        return found

    def close(self, now: float, monotonic: float) -> None:
        """Write all of it, and close the file. Idempotent."""
        self._write(list(self._steps), now, monotonic)
        self.kept.close()

    def _write(self, steps: Iterable[int], now: float, monotonic: float) -> None:
        """Write what is known of the steps of these lengths and not in the file."""
        points: list[tuple[int, Point]] = []
        for step in steps:
            self._write_at[step] = monotonic + _WRITE_SECONDS[step]
            points += [(step, point) for point in self._steps[step].take()]
        if not points:
            return

        def write(file: HistoryFile) -> bool:
            file.write(points)
            if monotonic >= self._prune_at:
                self._prune_at = monotonic + _PRUNE_SECONDS
                if monotonic >= self._doubt_until:
                    file.prune(now)
                else:
                    file.shrink()
            return True

        if not self.kept.use(write, monotonic, is_write=True):
            self._make_room()

    def _make_room(self) -> None:
        try:
            if self.kept.file is not None:
                self.kept.file.shrink()
        except sqlite3.Error as error:
            self._log.debug("history=not_shrunk reason=%s", error)
