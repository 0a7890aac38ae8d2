"""The accounting in the forms for clients: JSON for programs, CSV for tables. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from jupyter_aliquot.gateway.reports import to_json
from jupyter_aliquot.gateway.reports.cells import safe_cell
from jupyter_aliquot.gateway.reports.usage import Budget, GpuHours, UsageHead, UsageRow

from .amounts import CHARGE_PER_UNIT, UNITS_PER_HOUR
from .days import Calendar, day_text, month_text, period_of
from .query import GROUPS, Answer, Sums

# Hours with so many digits are exact to less than a second of a hundredth of a GPU.
_DIGITS = 6
_HOURS = ("working", "idle", "on_gpu", "swapped_out", "held", "waiting", "charged")


def json_report(answer: Answer, calendar: Calendar, charge_by: str, budgets: Sequence[Budget]) -> str:
    """Return ``UsageReport`` of api/openapi.yaml as JSON."""
    span, by = answer.question.span, answer.question.by
    head: UsageHead = {
        "month": month_text(span.first) if period_of(span.first, "month") == span else None,
        "start": calendar.iso(span.first),
        "end": calendar.iso(span.end),
        "time_zone": calendar.name,
        "by": list(by),
        "charge_by": charge_by,
        "kept_since": None if answer.first_day is None else day_text(answer.first_day),
        "total": gpu_hours(answer.total),
        "budgets": list(budgets),
    }
    # One by one: json blocks other threads, the server's loop among them, while it writes.
    rows = ", ".join(to_json(_row(by, key, sums)) for key, sums in answer.rows)
    return f'{to_json(head)[:-1]}, "rows": [{rows}]}}'


def csv_report(answer: Answer) -> str:
    """Return the answer's rows as CSV."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\r\n")
    table.writerow([*answer.question.by, *(f"{name}_gpu_hours" for name in _HOURS)])
    for key, sums in answer.rows:
        hours = gpu_hours(sums)
        table.writerow([*map(safe_cell, key), *hours.values()])
    return text.getvalue()


def gpu_hours(sums: Sums) -> GpuHours:
    """Return the sums in GPU-hours."""
    amounts = sums.amounts
    return {
        "working": _hours(amounts.used),
        "idle": _hours(sums.idle),
        "on_gpu": _hours(amounts.on_gpu),
        "swapped_out": _hours(amounts.swapped_out),
        "held": _hours(amounts.on_gpu + amounts.swapped_out),
        "waiting": _hours(amounts.waiting),
        "charged": round(amounts.charged / (UNITS_PER_HOUR * CHARGE_PER_UNIT), _DIGITS),
    }


def _row(by: Sequence[str], key: Sequence[str], sums: Sums) -> UsageRow:
    names = dict(zip(by, key, strict=True))
    assert set(names) <= set(GROUPS)  # read_groups has checked them
    return {
        "user": names.get("user"),
        "team": names.get("team"),
        "size": names.get("size"),
        "priority": names.get("priority"),
        "model": names.get("model"),
        "day": names.get("day"),
        "gpu_hours": gpu_hours(sums),
    }


def _hours(units: int) -> float:
    return round(units / UNITS_PER_HOUR, _DIGITS)
