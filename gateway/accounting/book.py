"""The book of the accounting: it takes looks, writes days' rows, and answers questions.

It is the one writer of its file, in one thread; times are arguments. Nothing here stops a gateway:
while the file cannot be written, the book counts on in memory, and says so. A file that exists and
cannot be read yet keeps its marks: the book holds looks back until it has read them. While another
gateway writes the file, the book reads it and counts nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from jupyter_aliquot.gateway.base.gil import unhurried, while_a_user_waits
from jupyter_aliquot.gateway.base.private_database import Keeper, files_set_aside
from jupyter_aliquot.provisioner.errors import StateError

from .amounts import Amounts, Subject
from .database import UsageFile
from .days import Calendar, Span, days_before, period_of
from .looks import Look
from .meter import Entry, Meter, Moment
from .policy import ChargePolicy
from .query import Answer, Question, answer as answer_question

# So many looks are held back; beyond, every other one goes, and kernels that came and went between.
_MOST_HELD_BACK = 64
_PRUNE_SECONDS = 3600.0
# So few days are removed at once, and none in the first hour or after the clock was set: by a wrong
# clock all of them would be too old.
_MOST_PRUNED = 7
_DRIFT_MILLISECONDS = 2000

T = TypeVar("T")
Sums = Mapping[tuple[int, Subject], Amounts]


@dataclass(frozen=True)
class BookSettings:
    """The settings of the book. ``path`` None: in memory."""

    path: Path | None
    calendar: Calendar
    policy: ChargePolicy
    keep_days: float
    most_bytes: int
    write_seconds: float


@dataclass(frozen=True)
class Unwritten:
    """The part of the book that its file lacks, for a question that another thread answers.

    ``path`` None: nothing but this is known. ``writes``: how often the book had written then.
    """

    path: Path | None
    pending: Sums
    writes: int


@dataclass(frozen=True)
class Spending:
    """The charges of the present day, week, month and so on. It is replaced whole.

    ``day``: the present day. ``charges``: by period, then by user and team, in thousandths of an
    amount's unit. A period that is not in it is unknown: no look asked for it yet, or the file did
    not tell.
    """

    day: int = 0
    charges: Mapping[str, Mapping[tuple[str, str], int]] = field(default_factory=dict)


class Book:
    """The rows of all days, and the meter that makes new ones. One thread at a time uses it.

    Other threads may read ``problems``, ``spending``, ``since_start`` and ``writes``, which are
    replaced whole.
    """

    def __init__(self, settings: BookSettings, log: logging.Logger) -> None:
        self._settings = settings
        self._log = log
        self._meter: Meter | None = None
        self._holder = ""
        self._pending: dict[tuple[int, Subject], Amounts] = {}
        self._periods: dict[str, tuple[Span, dict[tuple[str, str], int]]] = {}
        # Periods whose charges were read from another file.
        self._stale: set[str] = set()
        self._look: Look | None = None
        self._held_back: list[Look] = []
        self._is_written = True
        self._write_at = -float("inf")
        self._prune_at = float("inf")
        self.kept = Keeper("accounting", settings.path, self._open_file, log, "it counts on in memory")
        self.writes = 0
        self.problems: tuple[str, ...] = ()
        self.spending = Spending()
        self.since_start: Mapping[Subject, Amounts] = {}

    def take(self, look: Look, periods: Iterable[str] = ()) -> None:
        """Count up to this look, and write what was counted from time to time.

        ``periods``: those for which ``spending`` is wanted.
        """
        now = look.monotonic / 1000
        entries = self._counted(look, now)
        for entry in unhurried(entries):
            key = (entry.day, entry.subject)
            self._pending[key] = self._pending.get(key, Amounts()) + entry.amounts
        self._count_since_start(entries)
        if now >= self._write_at:
            self.write(now)
        self._spend(entries, look, periods, now)

    def answer(self, question: Question, now: float) -> Answer:
        """Return the answer to a question. Raises StateError."""
        with while_a_user_waits():
            self.write(now)
        found = self._with_file(lambda file: answer_question(question, file.database, self._pending), now)
        if found is None:
            found = answer_question(question, None, self.unwritten(now).pending)
        return found

    def unwritten(self, now: float) -> Unwritten:
        """Write what can be written, and return the rest. Raises StateError if the file cannot be read."""
        with while_a_user_waits():
            self.write(now)
        if self._with_file(lambda file: file.last(), now) is not None:
            return Unwritten(self._settings.path, dict(self._pending), self.writes)
        if self._pending and not self._has_earlier_rows():
            # All that is known is in memory.
            return Unwritten(None, dict(self._pending), self.writes)
        raise StateError(
            f"The accounting cannot be read: {self.kept.problem}. Try again in a moment. If it stays so, ask an "
            f"administrator to look at {self._settings.path}"
        )

    def write(self, now: float) -> None:
        """Write what was counted, with the marks up to which it counts. ``now``: monotonic seconds."""
        meter = self._meter
        if meter is None or self._is_written:
            return
        self._write_at = now + self._settings.write_seconds

        def write(file: UsageFile) -> bool:
            file.write(self._pending, meter.marks.values(), meter.last)
            return True

        if self._with_file(write, now, is_write=True):
            self._pending, self._is_written = {}, True
            self.writes += 1
            if now >= self._prune_at:
                self._prune_at = now + _PRUNE_SECONDS
                self._with_file(self._prune, now, is_write=True)

    def close(self, now: float) -> None:
        """Write all of it, and close the file. Idempotent."""
        self.write(now)
        self.kept.close()

    def _counted(self, look: Look, now: float) -> list[Entry]:
        before, self._look = self._look, look
        if before is None:
            self._prune_at = now + _PRUNE_SECONDS
        elif before.boot == look.boot:
            drift = (look.wall - before.wall) - (look.monotonic - before.monotonic)
            if abs(drift) > _DRIFT_MILLISECONDS:
                self._log.info("accounting=clock_set by_seconds=%+.0f; no time is lost or counted twice", drift / 1000)
                self._prune_at = now + _PRUNE_SECONDS
        if self._meter is None:
            self._meter = self._made_meter(now)
        if self._meter is None:
            self._hold_back(look)
            self._publish()
            return []
        self._is_written = False
        # Another gateway has counted up to its last look.
        last = self._meter.last
        late = [one for one in self._held_back if one.boot != last.boot or one.monotonic > last.monotonic]
        looks, self._held_back = [*late, look], []
        return [entry for one in looks for entry in self._meter.take(one)]

    def _made_meter(self, now: float) -> Meter | None:
        """Return a meter that goes on where the last gateway stopped.

        None while its marks cannot be read: a meter without them would replace them.
        """
        calendar, policy = self._settings.calendar, self._settings.policy
        found = self._with_file(lambda file: None if file.holder else (file.last(), file.marks()), now)
        if found is not None:
            return Meter(calendar, policy, *found)
        return None if self._has_earlier_rows() else Meter(calendar, policy, Moment())

    def _has_earlier_rows(self) -> bool:
        """Return whether there are, or may be, rows that are not in memory."""
        path = self._settings.path
        if self.kept.file is not None or path is None:
            return self.kept.file is not None
        try:
            return path.lstat().st_size > 0
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True

    def _hold_back(self, look: Look) -> None:
        self._held_back.append(look)
        if len(self._held_back) > _MOST_HELD_BACK:
            del self._held_back[1::2]

    def _count_since_start(self, entries: Iterable[Entry]) -> None:
        found = dict(self.since_start)
        for entry in unhurried(entries):
            found[entry.subject] = found.get(entry.subject, Amounts()) + entry.amounts
        self.since_start = found

    def _spend(self, entries: Iterable[Entry], look: Look, periods: Iterable[str], now: float) -> None:
        # The other gateway has written.
        if bool(self._holder) and self._with_file(lambda file: file.has_changed(), now):
            self._stale = set(self._periods)
        day = self._settings.calendar.day_of(look.wall)
        wanted = {period: period_of(day, period) for period in periods}
        self._periods = {name: known for name, known in self._periods.items() if wanted.get(name) == known[0]}
        for name, span in wanted.items():
            is_known = name in self._periods and name not in self._stale
            if not is_known and (read := self._earlier_charges(name, span, now)) is not None:
                for (at, subject), amounts in self._pending.items():
                    _add(read, span, at, subject, amounts.charged)
                self._periods[name] = (span, read)
                self._stale.discard(name)
            elif name in self._periods:
                # While the file cannot be read, what was known before goes on to count.
                for entry in unhurried(entries):
                    _add(self._periods[name][1], span, entry.day, entry.subject, entry.amounts.charged)
        charges = {name: dict(charged) for name, (_, charged) in self._periods.items()}
        self.spending = Spending(day, charges)

    def _earlier_charges(self, name: str, span: Span, now: float) -> dict[tuple[str, str], int] | None:
        """Return the charges that the file has of a period; None if it does not tell them now."""
        found = self._with_file(partial(_charges, span), now)
        if found is None and name not in self._periods and self._meter is not None and not self._has_earlier_rows():
            # All that was used is in memory, for the file was never made.
            return {}
        return found

    def _prune(self, file: UsageFile) -> None:
        assert self._look is not None  # something was counted
        today = self._settings.calendar.day_of(self._look.wall)
        old = file.prune(days_before(today, self._settings.keep_days), _MOST_PRUNED)
        if old:
            self._log.info("accounting=pruned days=%d they were older than c.Accounting.keep_days", old)
        if large := file.shrink():
            self._log.warning("accounting=shrunk days=%d the file was full; see c.Accounting.most_megabytes", large)

    # ---- the file

    def _with_file(self, act: Callable[[UsageFile], T], now: float, *, is_write: bool = False) -> T | None:
        """Return the result of ``act`` on the file; None if the file cannot be used, which is told once."""
        before = self.kept.problem
        result = self.kept.use(act, now, is_write=is_write)
        if before != self.kept.problem:
            self._publish()
        return result

    def _open_file(self) -> UsageFile:
        """Called by the keeper of the file."""
        file = UsageFile(self._settings.path, self._settings.most_bytes, self._log)
        # Rows of a new file are not those that the sums were made of.
        self._stale = set(self._periods)
        self._holder = file.holder
        if file.holder:
            # That process counts from the marks in the file, and what is not written as well.
            self._meter, self._pending, self._is_written = None, {}, True
        self._publish()
        return file

    def _publish(self) -> None:
        path, found = self._settings.path, []
        problem = self.kept.problem
        if self._holder:
            found.append(
                f"The accounting does not count: process {self._holder} writes {path}. This gateway answers from "
                "that file, and goes on when that process ends. Set another c.Accounting.path if both should count"
            )
        elif problem and self._held_back:
            found.append(
                f"The accounting cannot read {path}: {problem}. Until it can, it answers no question, and "
                "budgets with atLimit: refuse admit nothing new. Free the file, or set c.Accounting.path"
            )
        elif problem:
            found.append(
                f"The accounting cannot write {path}: {problem}. It counts on in memory, and writes all of it "
                "when it can. Make room, or set c.Accounting.path"
            )
        for aside in [] if path is None else files_set_aside(path):
            found.append(
                f"The accounting's file was damaged, or of another version, and lies at {aside}. A new one was begun. "
                "Repair or remove the old one"
            )
        self.problems = tuple(found)


def _charges(span: Span, file: UsageFile) -> dict[tuple[str, str], int]:
    """Return what was charged in these days, by user and team."""
    query = """SELECT user, team, SUM(charged) FROM use JOIN subject ON subject.number = use.subject
        WHERE day >= ? AND day < ? GROUP BY user, team"""
    rows = file.database.execute(query, (span.first, span.end))
    return {(str(user), str(team)): int(charged) for user, team, charged in rows}


def _add(charges: dict[tuple[str, str], int], span: Span, day: int, subject: Subject, charged: int) -> None:
    if charged and span.first <= day < span.end:
        key = (subject.user, subject.team)
        charges[key] = charges.get(key, 0) + charged
