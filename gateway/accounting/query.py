"""Questions to the accounting, and their answers: sums of days by user, team, size and so on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from jupyter_aliquot.gateway.base.gil import giving_way
from jupyter_aliquot.provisioner.errors import RequestError

from .amounts import Amounts, Subject
from .days import Span, day_text

# Of one answer: 40 MB of JSON.
MOST_ROWS = 100_000
# While a statement reads, the book cannot write: so many days are read at once.
_DAYS_AT_ONCE = 7
# So many subjects are looked up one by one in each day; of more, all rows of the day are read.
_FEW_SUBJECTS = 200

GROUPS = ("user", "team", "size", "priority", "model", "day")


@dataclass(frozen=True)
class Question:
    """A question for the use of some days.

    Args:
        span: The days.
        by: What the rows are by, of GROUPS; nothing: one row of all.
        users, teams: Only these; empty: all.
        former: Former names of teams, which are counted for their present name.
    """

    span: Span
    by: tuple[str, ...] = ("user",)
    users: frozenset[str] = frozenset()
    teams: frozenset[str] = frozenset()
    former: Mapping[str, str] = field(default_factory=dict)

    def wants(self, subject: Subject) -> bool:
        """Return whether this subject counts."""
        if self.users and subject.user not in self.users:
            return False
        return not self.teams or self.team_of(subject) in self.teams

    def team_of(self, subject: Subject) -> str:
        """Return the present name of the subject's team."""
        return self.former.get(subject.team, subject.team)

    def key(self, day: int, subject: Subject) -> tuple[str, ...]:
        """Return what the subject's row is named by, in the order of ``by``."""
        return tuple(self._name(word, day, subject) for word in self.by)

    def _name(self, word: str, day: int, subject: Subject) -> str:
        if word == "day":
            return day_text(day)
        return self.team_of(subject) if word == "team" else str(getattr(subject, word))


@dataclass(frozen=True)
class Sums:
    """Amounts of several rows. ``idle`` is the sum of each day's, so that busy days hide no idle ones."""

    amounts: Amounts = field(default_factory=Amounts)
    idle: int = 0

    def with_row(self, amounts: Amounts, sign: int = 1) -> Sums:
        """Return it with one more row, or without it."""
        return Sums(_signed(self.amounts, amounts, sign), self.idle + sign * amounts.idle)


@dataclass(frozen=True)
class Answer:
    """The answer: rows in order of their names, and the sum of all of them."""

    question: Question
    rows: tuple[tuple[tuple[str, ...], Sums], ...]
    total: Sums
    first_day: int | None = None


_SUMS = "SUM(used), SUM(on_gpu), SUM(swapped_out), SUM(waiting), SUM(charged), SUM(MAX(0, on_gpu - used))"
_ROWS_OF_FEW = """
WITH RECURSIVE days(day) AS (VALUES (?) UNION ALL SELECT day + 1 FROM days WHERE day + 1 < ?)
SELECT {day}, use.subject, {sums} FROM days CROSS JOIN use ON use.day = days.day AND use.subject IN ({numbers})
GROUP BY {key} use.subject
"""
_ROWS_OF_ALL = "SELECT {day}, subject, {sums} FROM use WHERE day >= ? AND day < ? GROUP BY {key} subject"


def answer(
    question: Question, file: sqlite3.Connection | None, pending: Mapping[tuple[int, Subject], Amounts]
) -> Answer:
    """Return the answer. ``pending``: what no file has yet. Raises sqlite3.Error and RequestError."""
    found: dict[tuple[str, ...], Sums] = {}
    days = None if file is None else _days(file)
    for day, subject, sums in () if file is None or days is None else _rows(file, question, days):
        key = question.key(day, subject)
        known = found.get(key)
        found[key] = sums if known is None else Sums(known.amounts + sums.amounts, known.idle + sums.idle)
        _check_size(len(found))
    for (day, subject), more in pending.items():
        if question.span.first <= day < question.span.end and question.wants(subject):
            key, before = question.key(day, subject), Amounts() if file is None else _amounts_of(file, day, subject)
            # A row's idle time is not the sum of its parts'.
            found[key] = found.get(key, Sums()).with_row(before, -1).with_row(before + more)
            _check_size(len(found))
    first = min([day for day, _ in pending] + ([days.first] if days is not None else []), default=None)
    return Answer(question, tuple(sorted(found.items())), _total(found.values()), first)


def _check_size(rows: int) -> None:
    if rows > MOST_ROWS:
        raise RequestError(
            f"Requested more than {MOST_ROWS} rows, which is the most of one answer. Request fewer days, or rows by "
            "fewer of user, team, size, priority, model and day"
        )


def _rows(file: sqlite3.Connection, question: Question, days: Span) -> Iterator[tuple[int, Subject, Sums]]:
    """Yield sums by subject, and by day where that is asked for, of some days at once."""
    query = "SELECT number, user, team, size, priority, model FROM subject"
    subjects = {int(row[0]): Subject(*row[1:]) for row in giving_way(file.execute(query))}
    wanted = {number: subject for number, subject in subjects.items() if question.wants(subject)}
    by_day = "day" in question.by
    names = {"day": "day", "key": "day,"} if by_day else {"day": "0", "key": ""}
    if len(wanted) <= _FEW_SUBJECTS:
        names["day"] = "days.day" if by_day else "0"
        names["key"] = "days.day," if by_day else ""
        query = _ROWS_OF_FEW.format(sums=_SUMS, numbers=", ".join(map(str, wanted)), **names)
    else:
        query = _ROWS_OF_ALL.format(sums=_SUMS, **names)
    begin, end = max(question.span.first, days.first), min(question.span.end, days.end)
    while begin < end and wanted:
        until = min(end, begin + _DAYS_AT_ONCE)
        rows = list(giving_way(file.execute(query, (begin, until))))
        for row in giving_way(rows):
            if (subject := wanted.get(int(row[1]))) is not None:
                yield int(row[0]), subject, Sums(Amounts(*row[2:7]), int(row[7]))
        begin = until


def _days(file: sqlite3.Connection) -> Span | None:
    """Return the days from the first to the last one with a row; None without any."""
    first, last = file.execute("SELECT (SELECT MIN(day) FROM use), (SELECT MAX(day) FROM use)").fetchone()
    return None if first is None else Span(int(first), int(last) + 1)


def _amounts_of(file: sqlite3.Connection, day: int, subject: Subject) -> Amounts:
    """Return a row's amounts; nothing for a row that is not there."""
    query = """SELECT used, on_gpu, swapped_out, waiting, charged FROM use WHERE day = ? AND subject =
        (SELECT number FROM subject WHERE (user, team, size, priority, model) = (?, ?, ?, ?, ?))"""
    row = file.execute(query, (day, *subject)).fetchone()
    return Amounts() if row is None else Amounts(*row)


def _total(all_sums: Iterable[Sums]) -> Sums:
    amounts, idle = Amounts(), 0
    for one in all_sums:
        amounts, idle = amounts + one.amounts, idle + one.idle
    return Sums(amounts, idle)


def _signed(known: Amounts, amounts: Amounts, sign: int) -> Amounts:
    if sign > 0:
        return known + amounts
    less = Amounts(-amounts.used, -amounts.on_gpu, -amounts.swapped_out, -amounts.waiting, -amounts.charged)
    return known + less


def read_groups(names: Iterable[str]) -> tuple[str, ...]:
    """Return what rows are by, of texts such as ``team`` and ``user,day``. Raises RequestError."""
    found: list[str] = []
    for name in (part.strip() for text in names for part in text.split(",")):
        if name not in GROUPS:
            raise RequestError(f"Requested by={name[:40]!r}, which does not exist. Use one of {', '.join(GROUPS)}")
        if name not in found:
            found.append(name)
    return tuple(found)


Render = Callable[[Answer], str]
