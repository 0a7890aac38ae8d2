"""Days, months and longer periods in the time zone of the accounting. Pure; reads no clock.

A day is the number that ``date.toordinal`` returns. Moments are milliseconds since the epoch. A day
has 23 or 25 hours where the clocks change, so its bounds are asked of the zone and never computed
from the length of a day.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from jupyter_aliquot.provisioner.errors import RequestError

PERIODS = ("day", "week", "month", "quarter", "year")
UTC = "UTC"
# What datetime can hold in every time zone, with a day to spare.
FIRST_DAY = date(1970, 1, 1).toordinal()
LAST_DAY = date(9990, 1, 1).toordinal()

_MONTH = re.compile(r"([0-9]{4})-([0-9]{2})")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})"
)


@dataclass(frozen=True)
class Span:
    """Whole days: from ``first`` on, before ``end``."""

    first: int
    end: int


def find_zone(name: str) -> tzinfo:
    """Return the time zone of this name. Raises KeyError, ValueError or OSError."""
    # UTC is known on machines without a table of time zones, too.
    return timezone.utc if name == UTC else ZoneInfo(name)


class Calendar:
    """The days of one time zone."""

    def __init__(self, zone: tzinfo, name: str = UTC) -> None:
        self.name = name
        self._zone = zone
        # The day that was asked for last, and its bounds: most moments are of today. Replaced whole,
        # since the event loop and the book's thread both ask.
        self._known = (0, 0, 0)

    def day_of(self, moment: int) -> int:
        """Return the day that this moment is in; the first or last known one beyond them."""
        return self._bounds(moment)[0]

    def _bounds(self, moment: int) -> tuple[int, int, int]:
        """Return the day that this moment is in, its first moment and the next day's."""
        known = self._known
        if not known[1] <= moment < known[2]:
            seconds = min(max(moment / 1000, 0.0), (LAST_DAY - FIRST_DAY) * 86400.0)
            day = max(FIRST_DAY, datetime.fromtimestamp(seconds, self._zone).date().toordinal())
            known = self._known = (day, self.start_of(day), self.start_of(day + 1))
        return known

    def start_of(self, day: int) -> int:
        """Return the first moment of the day."""
        at = date.fromordinal(day)
        return round(datetime(at.year, at.month, at.day, tzinfo=self._zone).timestamp() * 1000)

    def parts(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Divide a stretch of time among its days; yield each day and the milliseconds in it."""
        while begin < end:
            day, _, after = self._bounds(begin)
            # Beyond the last day that there is, all the rest is of that day.
            until = end if after <= begin else min(end, after)
            yield day, until - begin
            begin = until

    def iso(self, day: int) -> str:
        """Return the first moment of the day as text, with its offset from UTC."""
        moment = datetime.fromtimestamp(self.start_of(day) / 1000, self._zone)
        return moment.isoformat().replace("+00:00", "Z") if self.name == UTC else moment.isoformat()

    # ---- what a request names

    def month(self, text: str) -> Span:
        """Return the month of a text such as ``2026-11``. Raises RequestError."""
        match = _MONTH.fullmatch(text)
        year, number = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1 <= number <= 12 or not _is_known(year):
            raise RequestError(
                f"Requested the month {text[:40]!r}, which does not exist. Use a year and a month from 01 to 12, "
                "such as 2026-11"
            )
        return period_of(date(year, number, 1).toordinal(), "month")

    def day(self, text: str, name: str) -> tuple[int, bool]:
        """Return the day of a date or a moment, and whether it begins then. Raises RequestError.

        ``name``: the parameter, for the error.
        """
        try:
            if _DATE.fullmatch(text):
                found = date.fromisoformat(text)
                if _is_known(found.year):
                    return found.toordinal(), True
            if _MOMENT.fullmatch(text):
                moment = datetime.fromisoformat(_with_colon(text))
                if _is_known(moment.year):
                    at = round(moment.timestamp() * 1000)
                    day = self.day_of(at)
                    return day, at == self.start_of(day)
        except ValueError:
            pass  # such as a 30 February
        raise RequestError(
            f"Requested {name}={text[:40]!r}, which is no date. Use a day such as 2026-11-01, or a moment with its "
            "time zone's offset such as 2026-11-01T00:00:00+01:00 (%2B for + in an address)"
        )

    def span(self, begin: str, end: str) -> Span:
        """Return the days from one text on and before another one. Raises RequestError.

        A moment within a day stands for the whole day.
        """
        first, _ = self.day(begin, "from")
        last, is_its_start = self.day(end, "to")
        last += 0 if is_its_start else 1
        if last <= first:
            raise RequestError(
                f"Requested from={begin[:40]} to={end[:40]}, but the end does not come after the beginning. "
                "The end itself is not part of the answer: November is from=2026-11-01 to=2026-12-01"
            )
        return Span(first, last)


def period_of(day: int, period: str) -> Span:
    """Return the day, ISO week, month, quarter or year that this day is in."""
    at = date.fromordinal(day)
    if period == "day":
        return Span(day, day + 1)
    if period == "week":
        first = day - at.weekday()
        return Span(first, first + 7)
    months = {"month": 1, "quarter": 3, "year": 12}[period]
    number = (at.month - 1) // months * months
    begin, after = date(at.year, number + 1, 1), number + months
    return Span(begin.toordinal(), date(at.year + after // 12, after % 12 + 1, 1).toordinal())


def day_text(day: int) -> str:
    return date.fromordinal(day).isoformat()


def month_text(day: int) -> str:
    return date.fromordinal(day).isoformat()[:7]


def days_before(day: int, days: float) -> int:
    """Return the day so many days earlier; the first known one at least."""
    return max(FIRST_DAY, day - timedelta(days=days).days)


def _is_known(year: int) -> bool:
    return 1971 <= year <= 9980


def _with_colon(text: str) -> str:
    """Return the moment as Python 3.10 reads it."""
    text = text.replace("Z", "+00:00")
    offset = text[-5:]
    text = f"{text[:-2]}:{text[-2:]}" if ":" not in offset and offset[0] in "+-" else text
    head, dot, rest = text.partition(".")
    if not dot:
        return text
    digits = re.match(r"[0-9]+", rest)
    assert digits is not None  # the pattern has them
    return f"{head}.{digits[0]:0<6}{rest[digits.end() :]}"
