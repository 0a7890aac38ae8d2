"""The SQLite file of the history: opened or begun anew, written, made coarser, pruned.

One thread at a time uses it. A file that cannot be read is set aside under another name, never
deleted. query.py checks which user may see what.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.gateway.base.gil import giving_way
from jupyter_aliquot.gpu_hook.base.files import set_aside

from .buckets import COARSE, FINE_SECONDS, HOUR, RANGES, Point, step_start
from .samples import FIGURES, Key, Subject

_IN_MEMORY = ":memory:"
# "Aqhi", so that no other program's file is taken for ours.
_APPLICATION = 0x41716869
_VERSION = 1
_PAGE_BYTES = 4096
# The oldest part of all steps, which is removed when there are too many.
_CUT = 0.25
_FULL = 0.9

COLUMNS = tuple(f"{figure}_{part}" for figure in FIGURES for part in ("min", "mean", "max"))
_SUBJECT = "kind, id, owner, label, kernelspec, gpus, memory_limit_bytes, workload_class, device_index"
_SCHEMA = f"""
CREATE TABLE subject (number INTEGER PRIMARY KEY, {_SUBJECT}, first_at INTEGER, last_at INTEGER,
    UNIQUE (kind, id, owner));
CREATE TABLE point (step INTEGER, at INTEGER, subject INTEGER, seconds REAL, {", ".join(f"{c} REAL" for c in COLUMNS)},
    PRIMARY KEY (step, at, subject)) WITHOUT ROWID;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
"""
_SEEN = "UPDATE subject SET last_at = MAX(last_at, ?1), first_at = MIN(first_at, ?1) WHERE number = ?2"
# Of two records of a step, the more complete one stays, whichever came first: a gateway that comes
# back within a step has seen less of it.
_INSERT = f"""
INSERT INTO point (step, at, subject, seconds, {", ".join(COLUMNS)}) {{source}}
ON CONFLICT (step, at, subject) DO UPDATE SET seconds = excluded.seconds,
    {", ".join(f"{c} = excluded.{c}" for c in COLUMNS)} WHERE excluded.seconds >= seconds
"""


def _coarser(figure: str) -> str:
    weight = f"SUM(CASE WHEN {figure}_mean IS NULL THEN NULL ELSE seconds END)"
    return f"MIN({figure}_min), SUM({figure}_mean * seconds) / {weight}, MAX({figure}_max)"


_ROLL = _INSERT.format(
    source=f"""SELECT ?1, ?2, subject, SUM(seconds), {", ".join(map(_coarser, FIGURES))} FROM point
    WHERE step = {FINE_SECONDS} AND at >= ?2 AND at < ?2 + ?1 GROUP BY subject"""
)


@dataclass(frozen=True)
class Limits:
    """The most that the file keeps."""

    bytes: int
    rows: int
    days: float = 7.0


class _OtherVersion(sqlite3.DatabaseError):
    """The error of an intact file of another version of ours, or of another program."""


class HistoryFile:
    """The file, open. ``path`` None: in memory. All methods raise sqlite3.Error and OSError."""

    def __init__(self, path: Path | None, limits: Limits, log: logging.Logger) -> None:
        self._path = path
        self._limits = limits
        self._log = log
        # Only of the subjects written last: with those that have ended, they would become ever
        # more.
        self._numbers: dict[Key, int] = {}
        self._told: dict[Key, Subject] = {}
        self.database = self._open()
        try:
            self._roll_the_last()
        except sqlite3.OperationalError as error:  # a full disk: the file can still be read
            self._log.warning("history=not_rolled path=%s reason=%s", path, error)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self.database.close()

    @property
    def is_ours(self) -> bool:
        """Return whether the path still leads to the open file: a user may have removed it."""
        return self._path is None or (self._path.exists() and self._path.stat().st_ino == self._inode)

    def write(self, points: Sequence[Point]) -> None:
        """Write steps of the finest kind."""
        holes = ", ".join("?" * (4 + len(COLUMNS)))
        with self._transaction():
            rows = [
                (FINE_SECONDS, point.at, self._number(point), point.seconds, *_figures(point))
                for point in giving_way(points)
            ]
            self.database.executemany(_SEEN, giving_way((at, number) for _, at, number, *_ in rows))
            self.database.executemany(_INSERT.format(source=f"VALUES ({holes})"), giving_way(rows))
        there = {point.subject.key for point in points}
        self._numbers = {key: number for key, number in self._numbers.items() if key in there}
        self._told = {key: subject for key, subject in self._told.items() if key in there}

    def roll(self, step_seconds: int, moment: float) -> None:
        """Make the coarser step that ``moment`` is in from the fine ones that are there."""
        with self._transaction():
            self.database.execute(_ROLL, (step_seconds, step_start(moment, step_seconds)))

    def prune(self, now: float) -> None:
        """Remove steps that are too old, and the oldest part of everything while it is too much."""
        with self._transaction():
            for each in RANGES.values():
                keep = each.seconds if each is HOUR else min(each.seconds, self._limits.days * 86400)
                oldest = step_start(now, each.step_seconds) - keep
                self.database.execute("DELETE FROM point WHERE step = ? AND at < ?", (each.step_seconds, oldest))
        self.shrink()
        with self._transaction():
            self._forget_subjects(now - max(each.seconds for each in RANGES.values()))

    def shrink(self) -> None:
        """Remove the oldest part of each kind of step as often as it takes.

        Subjects without a step left are removed, too.
        """
        while self._is_too_much():
            with self._transaction():
                before = self._rows()
                for each in RANGES.values():
                    span = "SELECT MIN(at), MAX(at) FROM point WHERE step = ?"
                    first, last = self.database.execute(span, (each.step_seconds,)).fetchone()
                    if first is not None:
                        until = first + max((last - first) * _CUT, 1)
                        cut = "DELETE FROM point WHERE step = ? AND at < ?"
                        self.database.execute(cut, (each.step_seconds, until))
                gone = before - self._rows()
                forgotten = self._forget_subjects(math.inf)
            self._log.info("history=shrunk rows=%d they were the oldest; see c.History.most_megabytes", gone)
            if not gone and not forgotten:
                return

    def _is_too_much(self) -> bool:
        return self._rows() > self._limits.rows or self._used_pages() > _FULL * self._limits.bytes / _PAGE_BYTES

    def _rows(self) -> int:
        return int(self.database.execute("SELECT COUNT(*) FROM point").fetchone()[0])

    def _used_pages(self) -> int:
        return self._pragma("page_count") - self._pragma("freelist_count")

    def _pragma(self, name: str) -> int:
        return int(self.database.execute(f"PRAGMA {name}").fetchone()[0])

    def _forget_subjects(self, before: float) -> int:
        """Remove subjects without a step left that were last seen before this.

        Return how many they were.
        """
        left = "SELECT DISTINCT subject FROM point"
        statement = f"DELETE FROM subject WHERE last_at < ? AND number NOT IN ({left})"
        forgotten = self.database.execute(statement, (before,)).rowcount
        if forgotten:
            self._numbers.clear()
            self._told.clear()
        return forgotten

    def _number(self, point: Point) -> int:
        """Return the subject's number, and write what changed of the subject."""
        subject, key = point.subject, point.subject.key
        number = self._numbers.get(key)
        if number is None:
            find = "SELECT number FROM subject WHERE kind = ? AND id = ? AND owner = ?"
            row = self.database.execute(find, key).fetchone()
            if row is None:
                values = (*_facts(subject), point.at, point.at)
                holes = ", ".join("?" * len(values))
                insert = f"INSERT INTO subject ({_SUBJECT}, first_at, last_at) VALUES ({holes})"
                row = (self.database.execute(insert, values).lastrowid,)
            number = self._numbers[key] = int(row[0])
        if self._told.get(key) != subject:
            names = ", ".join(f"{name} = ?" for name in _SUBJECT.split(", "))
            self.database.execute(f"UPDATE subject SET {names} WHERE number = ?", (*_facts(subject), number))
            self._told[key] = subject
        return number

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self.database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.database.execute("COMMIT")
        except BaseException:
            # Numbers given in this transaction are not in use; SQLite may have rolled back by
            # itself.
            self._numbers.clear()
            self._told.clear()
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
        why = "version" if isinstance(error, _OtherVersion) else "unreadable"
        aside = set_aside(path, why)
        journal = path.with_name(f"{path.name}-journal")
        if journal.exists():
            os.replace(journal, aside.with_name(f"{aside.name}-journal"))
        self._log.error("history=%s reason=%s; set aside as %s, and begun anew", why, error, aside)

    def _connect(self, name: str) -> sqlite3.Connection:
        database = sqlite3.connect(name, isolation_level=None, check_same_thread=False, timeout=1.0)
        try:
            # No WAL: one thread uses it, and state folders may lie on a network disk.
            database.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            database.execute("PRAGMA journal_mode = TRUNCATE")
            database.execute("PRAGMA synchronous = NORMAL")
            _check(database)
            database.execute(f"PRAGMA max_page_count = {max(16, self._limits.bytes // _PAGE_BYTES)}")
        except BaseException:
            database.close()
            raise
        return database

    def _roll_the_last(self) -> None:
        """Make the coarser steps that a killed gateway did not make of its last fine ones."""
        fine = "SELECT MAX(at) FROM point WHERE step = ?"
        last = self.database.execute(fine, (FINE_SECONDS,)).fetchone()[0]
        for each in COARSE if last is not None else ():
            self.roll(each.step_seconds, last)


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


def _facts(subject: Subject) -> tuple[object, ...]:
    return tuple(getattr(subject, name) for name in _SUBJECT.split(", "))


def _figures(point: Point) -> Iterator[float | None]:
    for parts in zip(point.least, point.mean, point.most, strict=True):
        yield from parts
