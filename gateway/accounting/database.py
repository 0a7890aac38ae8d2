"""The SQLite file of the accounting: days' rows and the meter's marks, written in one transaction.

A file that has a row has the mark up to which it counts, so that a gateway that was killed goes on
without a gap and counts nothing twice. One thread uses it.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path

from jupyter_aliquot.gateway.base.gil import unhurried
from jupyter_aliquot.gateway.base.private_database import Form, PrivateDatabase

from .amounts import Amounts, Subject
from .looks import Part, PartKey, Place
from .meter import Mark, Moment

_AMOUNTS = "used, on_gpu, swapped_out, waiting, charged"
_SUBJECT = "user, team, size, priority, model"
_MARK = "kernel, device, subject, hundredths, place, began, since, part_own, part_busy, at, agent, own, busy"
_FORM = Form(
    name="accounting",
    application=0x41716163,  # "Aqac"
    version=1,
    schema=f"""
CREATE TABLE subject (number INTEGER PRIMARY KEY, {_SUBJECT}, UNIQUE ({_SUBJECT}));
CREATE TABLE use (day INTEGER, subject INTEGER, {_AMOUNTS}, PRIMARY KEY (day, subject)) WITHOUT ROWID;
CREATE TABLE mark ({_MARK}, PRIMARY KEY (kernel, device)) WITHOUT ROWID;
CREATE TABLE look (boot, monotonic INTEGER);
""",
    is_durable=True,
)
_ADD = f"""
INSERT INTO use (day, subject, {_AMOUNTS}) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (day, subject) DO UPDATE SET used = used + excluded.used, on_gpu = on_gpu + excluded.on_gpu,
    swapped_out = swapped_out + excluded.swapped_out, waiting = waiting + excluded.waiting,
    charged = charged + excluded.charged
"""


class UsageFile:
    """The file, open. ``path`` None: in memory. All methods raise sqlite3.Error and OSError."""

    def __init__(self, path: Path | None, most_bytes: int, log: logging.Logger) -> None:
        self._most_bytes = most_bytes
        self._numbers: dict[Subject, int] = {}
        self._file = PrivateDatabase(path, _FORM, log)
        self.database = self._file.connection
        self._version = self._data_version

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()

    @property
    def is_current(self) -> bool:
        """Return whether it need not be opened again."""
        return self._file.is_current

    @property
    def holder(self) -> str:
        """Return the process that writes the file, if that is another one."""
        return self._file.holder

    def has_changed(self) -> bool:
        """Return whether another process has written the file since the last call."""
        before, self._version = self._version, self._data_version
        return before != self._version

    @property
    def _data_version(self) -> int:
        return int(self.database.execute("PRAGMA data_version").fetchone()[0])

    def last(self) -> Moment:
        """Return the last look up to which the file counts."""
        row = self.database.execute("SELECT boot, monotonic FROM look").fetchone()
        return Moment() if row is None else Moment(str(row[0]), int(row[1]))

    def marks(self) -> list[Mark]:
        """Return the meter's marks."""
        query = f"SELECT {_MARK}, {_SUBJECT} FROM mark JOIN subject ON subject.number = mark.subject"
        return [_mark(row) for row in self.database.execute(query)]

    def write(self, sums: Mapping[tuple[int, Subject], Amounts], marks: Iterable[Mark], last: Moment) -> None:
        """Add the sums to their days, and replace the marks by those up to which the sums count."""
        try:
            self._write(sums, marks, last)
        except BaseException:
            self._numbers.clear()  # those given in this transaction are not in use
            raise

    def _write(self, sums: Mapping[tuple[int, Subject], Amounts], marks: Iterable[Mark], last: Moment) -> None:
        with self._file.transaction():
            rows = [(day, self._number(subject), *_row(amounts)) for (day, subject), amounts in sums.items()]
            self.database.executemany(_ADD, unhurried(rows))
            self.database.execute("DELETE FROM mark")
            holes = ", ".join("?" * len(_MARK.split(", ")))
            known = [_mark_row(mark, self._number(mark.part.subject)) for mark in unhurried(marks)]
            self.database.executemany(f"INSERT INTO mark VALUES ({holes})", unhurried(known))
            self.database.execute("DELETE FROM look")
            self.database.execute("INSERT INTO look VALUES (?, ?)", (last.boot, last.monotonic))

    def prune(self, before: int, most_days: int) -> int:
        """Remove days before this one, the oldest first and at most so many. Return how many were removed."""
        query = "SELECT DISTINCT day FROM use WHERE day < ? ORDER BY day LIMIT ?"
        days = [int(row[0]) for row in self.database.execute(query, (before, most_days))]
        if days:
            self._remove(days)
        return len(days)

    def shrink(self) -> int:
        """Remove the oldest days while the file is larger than it may be. Return how many were removed."""
        gone = 0
        while self._file.used_bytes > self._most_bytes:
            days = [int(row[0]) for row in self.database.execute("SELECT DISTINCT day FROM use ORDER BY day LIMIT 8")]
            if len(days) < 2:
                break
            self._remove(days[:-1])
            gone += len(days) - 1
        return gone

    def _remove(self, days: list[int]) -> None:
        with self._file.transaction():
            self.database.executemany("DELETE FROM use WHERE day = ?", [(day,) for day in days])
            left = "SELECT subject FROM use UNION SELECT subject FROM mark"
            self.database.execute(f"DELETE FROM subject WHERE number NOT IN ({left})")
        self._numbers.clear()

    def _number(self, subject: Subject) -> int:
        number = self._numbers.get(subject)
        if number is None:
            self.database.execute(f"INSERT OR IGNORE INTO subject ({_SUBJECT}) VALUES (?, ?, ?, ?, ?)", subject)
            query = f"SELECT number FROM subject WHERE ({_SUBJECT}) = (?, ?, ?, ?, ?)"
            number = self._numbers[subject] = int(self.database.execute(query, subject).fetchone()[0])
        return number


def _row(amounts: Amounts) -> tuple[int, ...]:
    return (amounts.used, amounts.on_gpu, amounts.swapped_out, amounts.waiting, amounts.charged)


def _mark_row(mark: Mark, number: int) -> tuple[object, ...]:
    part = mark.part
    facts = (*part.key, number, part.hundredths, part.place.value, part.began, part.since, part.own, part.busy)
    return (*facts, mark.at, mark.agent, mark.own, mark.busy)


def _mark(row: tuple[object, ...]) -> Mark:
    kernel, device, _, hundredths, place, began, since, part_own, part_busy, at, agent, own, busy, *subject = row
    key, of = PartKey(str(kernel), str(device)), Subject(*(str(one) for one in subject))
    part = Part(
        key, of, _whole(hundredths), Place(place), _whole(began), _maybe(since), _maybe(part_own), _whole(part_busy)
    )
    return Mark(part, _whole(at), str(agent), _maybe(own), _whole(busy))


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise sqlite3.DatabaseError(f"a mark has {value!r} in the place of a number")
    return value


def _maybe(value: object) -> int | None:
    return None if value is None else _whole(value)
