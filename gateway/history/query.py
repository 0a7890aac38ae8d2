"""Questions to the history and their answers: the subjects that a user may see, and their steps.

Writes nothing.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from typing import Any

from jupyter_aliquot.gateway.base.gil import giving_way

from .buckets import Range
from .database import COLUMNS
from .samples import Subject

# A chart of more could not be read, and an answer of more would delay other users' answers.
MOST_SERIES = 100

_SUBJECT = "number, kind, id, owner, label, kernelspec, gpus, memory_limit_bytes, workload_class, device_index"
_CANDIDATES = f"""
SELECT {_SUBJECT} FROM subject WHERE last_at >= :start AND first_at < :end AND (
    (kind = 'device' AND :wants_devices AND (:devices = '[]' OR id IN (SELECT value FROM json_each(:devices))))
    OR (kind = 'kernel' AND :wants_kernels AND (:is_admin OR (owner != '' AND owner = :owner))
        AND (:kernels = '[]' OR id IN (SELECT value FROM json_each(:kernels)))))
ORDER BY kind, device_index, first_at, number
"""
_BUSIEST = """
SELECT subject, SUM(COALESCE(own_gpus_mean, busy_gpus_mean, 0) * seconds) AS used FROM point
WHERE step = ? AND at >= ? AND at < ? GROUP BY subject ORDER BY used DESC, subject
"""
# Both lists come first: SQLite then reads the table by its key, however many kernels there are.
_POINTS = f"""
WITH RECURSIVE grid (at) AS (VALUES (:start) UNION ALL SELECT at + :step FROM grid WHERE at + :step < :end)
SELECT point.subject, point.at, point.seconds, {", ".join(f"point.{column}" for column in COLUMNS)}
FROM json_each(:numbers) AS asked CROSS JOIN grid CROSS JOIN point
ON point.step = :step AND point.at = grid.at AND point.subject = asked.value
"""


@dataclass(frozen=True)
class Question:
    """A question to the history.

    ``owner``: the user whose kernels are meant; ``is_admin``: all users' kernels. Without a filter
    all kernels and devices are meant.
    """

    range: Range
    owner: str
    is_admin: bool
    kernels: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    most: int = MOST_SERIES

    @property
    def wants_kernels(self) -> bool:
        return bool(self.kernels) or not self.devices

    @property
    def wants_devices(self) -> bool:
        return bool(self.devices) or not self.kernels


@dataclass(frozen=True)
class Series:
    """The steps of one subject.

    ``steps``: by their start, the seconds known and then the figures in the order of COLUMNS.
    """

    subject: Subject
    steps: dict[int, tuple[float | None, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """The answer to a question.

    ``omitted``: the number of subjects that were left out, those that used the least.
    """

    range: Range
    start: int
    series: tuple[Series, ...]
    omitted: int = 0

    @property
    def end(self) -> int:
        return self.start + self.range.seconds


def answer(database: sqlite3.Connection, question: Question, now: float) -> Answer:
    """Return the answer to a question. Raises sqlite3.Error."""
    asked, start = question.range, question.range.start(now)
    times = {"start": start, "end": start + asked.seconds, "step": asked.step_seconds}
    rows = list(giving_way(database.execute(_CANDIDATES, {**times, **_parameters(question)})))
    chosen = rows
    if len(rows) > question.most:
        used = giving_way(database.execute(_BUSIEST, (times["step"], start, times["end"])))
        places = {number: place for place, (number, _) in enumerate(used)}
        # Devices are few, and all users see them.
        ranked = sorted(rows, key=lambda row: (row[1] != "device", places.get(row[0], len(places))))
        kept = {row[0] for row in ranked[: question.most]}
        chosen = [row for row in rows if row[0] in kept]
    series = {row[0]: Series(Subject(*row[1:])) for row in chosen}
    points = database.execute(_POINTS, {**times, "numbers": json.dumps(list(series))})
    for number, at, *figures in giving_way(points):
        series[number].steps[at] = tuple(figures)
    return Answer(asked, start, tuple(one for one in series.values() if one.steps), len(rows) - len(chosen))


def _parameters(question: Question) -> dict[str, Any]:
    return {
        "owner": question.owner,
        "is_admin": question.is_admin,
        "wants_kernels": question.wants_kernels,
        "wants_devices": question.wants_devices,
        "kernels": json.dumps(question.kernels),
        "devices": json.dumps(question.devices),
    }
