"""Days, months and periods of a time zone, and the texts that name them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st
from traitlets import TraitError

from jupyter_aliquot.gateway.accounting.config import Accounting
from jupyter_aliquot.gateway.accounting.days import PERIODS, Calendar, Span, days_before, find_zone, period_of
from jupyter_aliquot.provisioner.errors import RequestError

HOUR = 3_600_000
NO_DAYS = ("2026-02-29", "2026-11-01T25:00Z", "2026-11-01T00:00", "yesterday", "1-1-1", "9999-01-01")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo")


def calendar(zone: str = "UTC") -> Calendar:
    return Calendar(find_zone(zone), zone)


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def day(text: str) -> int:
    return date.fromisoformat(text).toordinal()


@pytest.mark.parametrize(("text", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-11-01", 24)])
def test_a_day_has_the_hours_that_the_zone_gives_it(text: str, hours: int) -> None:
    berlin = calendar("Europe/Berlin")
    assert berlin.start_of(day(text) + 1) - berlin.start_of(day(text)) == hours * HOUR
    [(found, length)] = berlin.parts(berlin.start_of(day(text)), berlin.start_of(day(text) + 1))
    assert (found, length) == (day(text), hours * HOUR)


@given(st.sampled_from(ZONES), st.integers(48 * HOUR, 4_000_000_000_000), st.integers(1, 400 * 24 * HOUR))
def test_the_parts_of_a_stretch_are_its_days_in_order_without_a_gap(zone: str, begin: int, length: int) -> None:
    found = list(calendar(zone).parts(begin, begin + length))
    assert sum(part for _, part in found) == length
    days = [number for number, _ in found]
    local = datetime.fromtimestamp(begin / 1000, timezone.utc if zone == "UTC" else ZoneInfo(zone))
    assert days == list(range(local.date().toordinal(), days[0] + len(days)))


@given(st.integers(-(10**18), 10**18), st.integers(0, 10**9))
def test_a_clock_that_is_far_off_names_some_day_and_loses_no_time(begin: int, length: int) -> None:
    assert sum(part for _, part in calendar().parts(begin, begin + length)) == length


@given(st.dates(date(1971, 1, 1), date(9979, 12, 31)), st.sampled_from(PERIODS))
def test_a_period_has_its_day_and_the_next_one_begins_where_it_ends(of: date, period: str) -> None:
    span = period_of(of.toordinal(), period)
    assert span.first <= of.toordinal() < span.end
    assert period_of(span.end, period).first == span.end
    assert period_of(span.end - 1, period) == span


def test_a_quarter_and_a_week_begin_where_calendars_have_them() -> None:
    assert period_of(day("2026-11-29"), "quarter") == Span(day("2026-10-01"), day("2027-01-01"))
    assert period_of(day("2026-11-29"), "week") == Span(day("2026-11-23"), day("2026-11-30"))


def test_a_month_is_read_or_refused() -> None:
    assert calendar().month("2026-12") == Span(day("2026-12-01"), day("2027-01-01"))
    for wrong in ("2026-13", "2026-00", "2026-1", "26-11", "2026-11-01", "", "9999-12", "٢٠٢٦-١١"):
        with pytest.raises(RequestError, match="does not exist"):
            calendar().month(wrong)


@pytest.mark.parametrize(
    ("begin", "end", "want"),
    [
        ("2026-11-01", "2026-12-01", ("2026-11-01", "2026-12-01")),
        ("2026-11-01T00:00:00+01:00", "2026-12-01T00:00:00+01:00", ("2026-11-01", "2026-12-01")),
        # Of another offset: within a day of Berlin, which is in the answer as a whole.
        ("2026-10-31T22:00:00Z", "2026-11-30T23:00:00Z", ("2026-10-31", "2026-12-01")),
        ("2026-10-31T23:00:00Z", "2026-11-30T23:00:00.001Z", ("2026-11-01", "2026-12-02")),
        ("2026-03-29T02:30+0100", "2026-03-30T00:00+02:00", ("2026-03-29", "2026-03-30")),
    ],
)
def test_moments_are_days_of_the_zone(begin: str, end: str, want: tuple[str, str]) -> None:
    span = calendar("Europe/Berlin").span(begin, end)
    assert (date.fromordinal(span.first).isoformat(), date.fromordinal(span.end).isoformat()) == want


@pytest.mark.parametrize("text", NO_DAYS)
def test_a_text_that_is_no_day_is_refused_with_one_that_is(text: str) -> None:
    with pytest.raises(RequestError, match="such as 2026-11-01"):
        calendar().span(text, "2026-12-01")


def test_the_bounds_of_a_day_have_the_offset_that_is_in_force() -> None:
    berlin = calendar("Europe/Berlin")
    assert berlin.iso(day("2026-07-01")) == "2026-07-01T00:00:00+02:00"
    assert calendar().iso(day("2026-07-01")) == "2026-07-01T00:00:00Z"
    assert berlin.day_of(at("2026-06-30T22:00:00+00:00")) == day("2026-07-01")


class InterruptedZone(tzinfo):
    """UTC, in which another thread's question comes between whenever an offset is looked up."""

    def __init__(self) -> None:
        self.between: Callable[[], object] | None = None

    def utcoffset(self, moment: datetime | None) -> timedelta:
        between, self.between = self.between, None
        if between is not None:
            between()
        self.between = between
        return timedelta()

    def dst(self, moment: datetime | None) -> timedelta:
        return timedelta()

    def tzname(self, moment: datetime | None) -> str:
        return "UTC"


def test_another_threads_question_changes_no_answer() -> None:
    zone = InterruptedZone()
    shared = Calendar(zone)
    others = [at("2020-01-01T12:00:00+00:00"), at("2021-01-01T12:00:00+00:00")]
    zone.between = lambda: [shared.day_of(moment) for moment in others]
    assert shared.day_of(at("2026-11-10T12:00:00+00:00")) == day("2026-11-10")
    begin = at("2026-11-11T23:00:00+00:00")
    assert list(shared.parts(begin, begin + 2 * HOUR)) == [(day("2026-11-11"), HOUR), (day("2026-11-12"), HOUR)]


@pytest.mark.parametrize("days", [1e10, 40_000.0, 0.0])
def test_days_that_no_date_can_be_so_long_ago_are_refused(days: float) -> None:
    with pytest.raises(TraitError, match="at most 36525"):
        Accounting(keep_days=days)
    assert days_before(day("2026-11-10"), Accounting(keep_days=36_525.0).keep_days) == day("1970-01-01")
