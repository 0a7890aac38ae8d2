"""Questions to the accounting, and their answers: sums of days by user, team, size and so on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from jupyter_aliquot.gateway.base.gil import giving_way
from jupyter_aliquot.provisioner.errors import RequestError

from .amounts import Amounts, Subject
from .database import UsageFile
from .days import Span, day_text

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


_GROUPED = """
SELECT {day} AS day, user, team, size, priority, model, SUM(used), SUM(on_gpu), SUM(swapped_out), SUM(waiting),
    SUM(charged), SUM(MAX(0, on_gpu - used))
FROM use CROSS JOIN subject ON subject.number = use.subject WHERE day >= ? AND day < ? GROUP BY {key} use.subject
"""


def answer(question: Question, file: UsageFile | None, pending: Mapping[tuple[int, Subject], Amounts]) -> Answer:
    """Return the answer. ``pending``: what no file has yet. Raises sqlite3.Error."""
    found: dict[tuple[str, ...], Sums] = {}
    for day, subject, sums in () if file is None else _rows(file, question):
        if question.wants(subject):
            key = question.key(day, subject)
            known = found.get(key)
            found[key] = sums if known is None else Sums(known.amounts + sums.amounts, known.idle + sums.idle)
    for (day, subject), more in pending.items():
        if question.span.first <= day < question.span.end and question.wants(subject):
            key, before = question.key(day, subject), Amounts() if file is None else file.amounts_of(day, subject)
            # A row's idle time is not the sum of its parts'.
            found[key] = found.get(key, Sums()).with_row(before, -1).with_row(before + more)
    total = _total(found.values())
    days = [day for day, _ in pending] + (
        [first] if file is not None and (first := file.first_day()) is not None else []
    )
    return Answer(question, tuple(sorted(found.items())), total, min(days, default=None))


def _rows(file: UsageFile, question: Question) -> Iterable[tuple[int, Subject, Sums]]:
    by_day = "day" in question.by
    query = _GROUPED.format(day="day" if by_day else "0", key="day," if by_day else "")
    for row in giving_way(file.database.execute(query, (question.span.first, question.span.end))):
        yield int(row[0]), Subject(*row[1:6]), Sums(Amounts(*row[6:11]), int(row[11]))


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
