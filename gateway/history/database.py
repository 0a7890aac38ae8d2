"""The SQLite file of the history: steps of two lengths, written, merged with those there, and pruned.

One thread at a time uses it. query.py checks which user may see what.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.gateway.base.gil import unhurried
from jupyter_aliquot.gateway.base.private_database import Form, PrivateDatabase

from .buckets import COARSE_SECONDS, FINE_SECONDS, HOUR, WEEK, Point, step_start
from .samples import AMOUNTS, FIGURES, Subject

# The oldest part of all steps, which is removed when there are too many.
_CUT = 0.25
_FULL = 0.9
# Earlier gateways wrote steps of five minutes, too, which no question is for.
_FORMER_SECONDS = 300

COLUMNS = tuple(f"{figure}_{part}" for figure in FIGURES for part in ("min", "mean", "max"))
_SUBJECT = "kind, id, owner, label, kernelspec, gpus, memory_limit_bytes, workload_class, device_index"
_FORM = Form(
    name="history",
    application=0x41716869,  # "Aqhi"
    version=1,
    schema=f"""
CREATE TABLE subject (number INTEGER PRIMARY KEY, {_SUBJECT}, first_at INTEGER, last_at INTEGER,
    UNIQUE (kind, id, owner));
CREATE TABLE point (step INTEGER, at INTEGER, subject INTEGER, seconds REAL, {", ".join(f"{c} REAL" for c in COLUMNS)},
    PRIMARY KEY (step, at, subject)) WITHOUT ROWID;
""",
)


def _merged(figure: str) -> str:
    """Return the SQL that merges a figure with the one that is there; NULL is not known."""
    least, mean, most = (f"{figure}_{part}" for part in ("min", "mean", "max"))
    before, more = mean, f"excluded.{mean}"
    if figure in AMOUNTS:
        before, more = f"COALESCE({mean}, 0 * {more})", f"COALESCE({more}, 0 * {mean})"
    sums = f"({before} * seconds + {more} * excluded.seconds) / (seconds + excluded.seconds)"
    return (
        f"{least} = COALESCE(MIN({least}, excluded.{least}), {least}, excluded.{least}), "
        f"{mean} = COALESCE({sums}, {mean}, excluded.{mean}), "
        f"{most} = COALESCE(MAX({most}, excluded.{most}), {most}, excluded.{most})"
    )


_TELL = f"""
INSERT INTO subject ({_SUBJECT}, first_at, last_at) VALUES ({", ".join("?" * (len(_SUBJECT.split(", ")) + 2))})
ON CONFLICT (kind, id, owner) DO UPDATE SET {", ".join(f"{c} = excluded.{c}" for c in _SUBJECT.split(", ")[3:])},
    first_at = MIN(first_at, excluded.first_at), last_at = MAX(last_at, excluded.last_at)
"""
# Of a step that is there, this is the rest. After the clock was set back, both are of the same time.
_ADD = f"""
INSERT INTO point (subject, step, at, seconds, {", ".join(COLUMNS)})
VALUES ((SELECT number FROM subject WHERE kind = ? AND id = ? AND owner = ?), {", ".join("?" * (3 + len(COLUMNS)))})
ON CONFLICT (step, at, subject) DO UPDATE SET {", ".join(map(_merged, FIGURES))},
    seconds = MIN(step, seconds + excluded.seconds)
"""


@dataclass(frozen=True)
class Limits:
    """The most that the file keeps."""

    bytes: int
    rows: int
    days: float = 7.0


class HistoryFile:
    """The file, open. ``path`` None: in memory. All methods raise sqlite3.Error and OSError."""

    def __init__(self, path: Path | None, limits: Limits, log: logging.Logger) -> None:
        self._limits = limits
        self._log = log
        self._file = PrivateDatabase(path, _FORM, log)
        self._file.limit(limits.bytes)
        self.database = self._file.connection
        self._kept_seconds = {
            FINE_SECONDS: HOUR.seconds,
            COARSE_SECONDS: min(WEEK.seconds, limits.days * 86400),
            _FORMER_SECONDS: 0,
        }

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()

    @property
    def is_current(self) -> bool:
        """Return whether it need not be opened again."""
        return self._file.is_current

    def write(self, points: Sequence[tuple[int, Point]]) -> None:
        """Add what is known of steps of these lengths."""
        subjects = {point.subject.key: (*_facts(point.subject), point.at, point.at) for _, point in unhurried(points)}
        with self._file.transaction():
            self.database.executemany(_TELL, unhurried(subjects.values()))
            rows = (
                (*point.subject.key, step, point.at, point.seconds, *_figures(point))
                for step, point in unhurried(points)
            )
            self.database.executemany(_ADD, rows)

    def prune(self, now: float) -> None:
        """Remove steps that are too old, and the oldest part of everything while it is too much."""
        with self._file.transaction():
            for step, seconds in self._kept_seconds.items():
                oldest = step_start(now, step) - seconds
                self.database.execute("DELETE FROM point WHERE step = ? AND at < ?", (step, oldest))
        self.shrink()
        with self._file.transaction():
            self._forget_subjects(now - WEEK.seconds)

    def shrink(self) -> None:
        """Remove the oldest part of each kind of step as often as it takes.

        Subjects without a step left are removed, too.
        """
        while self._is_too_much():
            with self._file.transaction():
                before = self._rows()
                for step in self._kept_seconds:
                    span = "SELECT MIN(at), MAX(at) FROM point WHERE step = ?"
                    first, last = self.database.execute(span, (step,)).fetchone()
                    if first is not None:
                        until = first + max((last - first) * _CUT, 1)
                        self.database.execute("DELETE FROM point WHERE step = ? AND at < ?", (step, until))
                gone = before - self._rows()
                forgotten = self._forget_subjects(math.inf)
            self._log.info("history=shrunk rows=%d they were the oldest; see c.History.most_megabytes", gone)
            if not gone and not forgotten:
                return

    def _is_too_much(self) -> bool:
        return self._rows() > self._limits.rows or self._file.used_bytes > _FULL * self._limits.bytes

    def _rows(self) -> int:
        return int(self.database.execute("SELECT COUNT(*) FROM point").fetchone()[0])

    def _forget_subjects(self, before: float) -> int:
        """Remove subjects without a step left that were last seen before this.

        Return how many they were.
        """
        left = "SELECT DISTINCT subject FROM point"
        statement = f"DELETE FROM subject WHERE last_at < ? AND number NOT IN ({left})"
        return self.database.execute(statement, (before,)).rowcount


def _facts(subject: Subject) -> tuple[object, ...]:
    return tuple(getattr(subject, name) for name in _SUBJECT.split(", "))


def _figures(point: Point) -> Iterator[float | None]:
    for parts in zip(point.least, point.mean, point.most, strict=True):
        yield from parts
