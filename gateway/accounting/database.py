"""The SQLite file of the accounting: days' rows and the meter's marks, written in one transaction.

A file that has a row has the mark up to which it counts, so that a gateway that was killed goes on
without a gap and counts nothing twice. One thread uses it. A damaged file is set aside under
another name, never deleted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from jupyter_aliquot.gpu_hook.base.files import set_aside

from .amounts import Amounts, Subject
from .looks import Part, PartKey, Place
from .meter import Mark, Moment

_IN_MEMORY = ":memory:"
# "Aqac", so that no other program's file is taken for ours.
_APPLICATION = 0x41716163
_VERSION = 1
_PAGE_BYTES = 4096
UNREADABLE = "unreadable"
_OTHER = "version"

_AMOUNTS = "used, on_gpu, swapped_out, waiting, charged"
_SUBJECT = "user, team, size, priority, model"
_MARK = "kernel, device, subject, hundredths, place, began, since, part_own, part_busy, at, agent, own, busy"
_SCHEMA = f"""
CREATE TABLE subject (number INTEGER PRIMARY KEY, {_SUBJECT}, UNIQUE ({_SUBJECT}));
CREATE TABLE use (day INTEGER, subject INTEGER, {_AMOUNTS}, PRIMARY KEY (day, subject)) WITHOUT ROWID;
CREATE TABLE mark ({_MARK}, PRIMARY KEY (kernel, device)) WITHOUT ROWID;
CREATE TABLE look (boot, monotonic INTEGER);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
"""
_ADD = f"""
INSERT INTO use (day, subject, {_AMOUNTS}) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (day, subject) DO UPDATE SET used = used + excluded.used, on_gpu = on_gpu + excluded.on_gpu,
    swapped_out = swapped_out + excluded.swapped_out, waiting = waiting + excluded.waiting,
    charged = charged + excluded.charged
"""


class _OtherVersion(sqlite3.DatabaseError):
    """The error of an intact file of another version of ours, or of another program."""


class UsageFile:
    """The file, open. ``path`` None: in memory. All methods raise sqlite3.Error and OSError."""

    def __init__(self, path: Path | None, most_bytes: int, log: logging.Logger) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._log = log
        self._numbers: dict[Subject, int] = {}
        self.database = self._open()

    def close(self) -> None:
        """Close the file. Idempotent."""
        self.database.close()

    @property
    def is_ours(self) -> bool:
        """Return whether the path still leads to the open file: a user may have removed it."""
        return self._path is None or (self._path.exists() and self._path.stat().st_ino == self._inode)

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
        with self._transaction():
            rows = [(day, self._number(subject), *_row(amounts)) for (day, subject), amounts in sums.items()]
            self.database.executemany(_ADD, rows)
            self.database.execute("DELETE FROM mark")
            holes = ", ".join("?" * len(_MARK.split(", ")))
            known = [_mark_row(mark, self._number(mark.part.subject)) for mark in marks]
            self.database.executemany(f"INSERT INTO mark VALUES ({holes})", known)
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
        while self._used_bytes() > self._most_bytes:
            days = [int(row[0]) for row in self.database.execute("SELECT DISTINCT day FROM use ORDER BY day LIMIT 8")]
            if len(days) < 2:
                break
            self._remove(days[:-1])
            gone += len(days) - 1
        return gone

    def _remove(self, days: list[int]) -> None:
        with self._transaction():
            self.database.executemany("DELETE FROM use WHERE day = ?", [(day,) for day in days])
            left = "SELECT subject FROM use UNION SELECT subject FROM mark"
            self.database.execute(f"DELETE FROM subject WHERE number NOT IN ({left})")
        self._numbers.clear()

    def _used_bytes(self) -> int:
        pages, free = (
            int(self.database.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "freelist_count")
        )
        return (pages - free) * _PAGE_BYTES

    def _number(self, subject: Subject) -> int:
        number = self._numbers.get(subject)
        if number is None:
            self.database.execute(f"INSERT OR IGNORE INTO subject ({_SUBJECT}) VALUES (?, ?, ?, ?, ?)", subject)
            query = f"SELECT number FROM subject WHERE ({_SUBJECT}) = (?, ?, ?, ?, ?)"
            number = self._numbers[subject] = int(self.database.execute(query, subject).fetchone()[0])
        return number

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self.database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.database.execute("COMMIT")
        except BaseException:
            # Numbers given in this transaction are not in use; SQLite may have rolled back by itself.
            self._numbers.clear()
            if self.database.in_transaction:
                self.database.execute("ROLLBACK")
            raise

    def _open(self) -> sqlite3.Connection:
        if self._path is None:
            return self._connect(_IN_MEMORY)
        for name in (self._path, self._path.with_name(f"{self._path.name}-journal")):
            if name == self._path or name.exists():
                # Made before SQLite makes it, and the journal follows its mode: only this account
                # may read what users did.
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                descriptor = os.open(name, flags, 0o600)
                os.fchmod(descriptor, 0o600)
                os.close(descriptor)
        try:
            database = self._connect(str(self._path))
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            self._set_aside(self._path, error)
            return self._open()
        self._inode = self._path.stat().st_ino
        return database

    def _set_aside(self, path: Path, error: sqlite3.DatabaseError) -> None:
        why = _OTHER if isinstance(error, _OtherVersion) else UNREADABLE
        aside = set_aside(path, why)
        journal = path.with_name(f"{path.name}-journal")
        if journal.exists():
            os.replace(journal, aside.with_name(f"{aside.name}-journal"))
        self._log.error("accounting=%s reason=%s; set aside as %s, and begun anew", why, error, aside)

    def _connect(self, name: str) -> sqlite3.Connection:
        database = sqlite3.connect(name, isolation_level=None, check_same_thread=False, timeout=1.0)
        try:
            # No WAL: one thread uses it, and state folders may lie on a network disk.
            database.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            database.execute("PRAGMA journal_mode = TRUNCATE")
            database.execute("PRAGMA synchronous = FULL")
            _check(database)
        except BaseException:
            database.close()
            raise
        return database


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Return a connection that reads the file and never makes or changes it. Raises sqlite3.Error."""
    # SQLite percent-decodes the path of a URI.
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None, check_same_thread=False, timeout=1.0
    )


def files_set_aside(path: Path) -> list[Path]:
    """Return the files that were set aside beside this one and still lie there."""
    found = [one for why in (UNREADABLE, _OTHER) for one in path.parent.glob(f"{path.name}.{why}-*")]
    return sorted(one for one in found if not one.name.endswith("-journal"))


def _check(database: sqlite3.Connection) -> None:
    """Check the file, and make its tables if it is empty.

    Raises sqlite3.OperationalError if it cannot be used now, another sqlite3.DatabaseError if it is
    damaged.
    """
    found = database.execute("PRAGMA quick_check").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(found)
    application = database.execute("PRAGMA application_id").fetchone()[0]
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if (application, version) == (_APPLICATION, _VERSION):
        return
    if database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
        raise _OtherVersion(
            f"the file has version {version} of program {application:#x}; this program reads version "
            f"{_VERSION} of its own"
        )
    database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")


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
