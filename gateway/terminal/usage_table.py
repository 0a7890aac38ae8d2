"""The table of `aliquot usage`, from the gateway's report. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from .ranked_table import RankedTable
from .tables import moment_of, printable

Report = Mapping[str, Any]
_HOURS = ("working", "idle", "swapped out", "waiting", "charged")
_NOTHING = "–"
_CHARGED = {
    "wall_time": "size times the time on the GPU and swapped out",
    "on_gpu": "size times the time on the GPU",
    "use": "the GPU time used",
}
_STYLES = {"warning": "yellow", "exceeded": "red"}


def usage_table(report: Report, now: datetime | None = None) -> RenderableType:
    """Make a table of GPU-hours, the sum below it, and a table of budgets."""
    by = list(report["by"])
    table = RankedTable((*by, *_HOURS), ("waiting", "swapped out"), _HOURS)
    for row in report["rows"]:
        table.add_row(*(_name(row[word]) for word in by), *_cells(row["gpu_hours"]))
    if len(report["rows"]) > 1:
        table.add_row(*(["all", *[""] * len(by)][: len(by)]), *_cells(report["total"]))
    title = f"GPU-hours, {report['month'] or _days(report)} ({report['time_zone']})"
    parts: list[RenderableType] = [Text(title)]
    parts.append(table if report["rows"] else Text(_none_counted(report, now or datetime.now(timezone.utc))))
    parts.append(Text(f"charged: {_CHARGED[report['charge_by']]}"))
    if report["budgets"]:
        parts += [Text(""), _budgets(report)]
    return Group(*parts)


def _none_counted(report: Report, now: datetime) -> str:
    """Return why there is no row."""
    if moment_of(report["start"]) > now:
        return f"{report['month'] or 'this time'} has not begun: no GPU time is counted yet"
    return "no GPU time was counted"


def _budgets(report: Report) -> RenderableType:
    columns = ("budget of", "period", "used", "of", "left", "renews", "state")
    table = RankedTable(columns, ("left", "renews"), ("used", "of", "left"))
    for budget in report["budgets"]:
        name = f"{budget['kind']} {printable(budget['name'])}"
        hours = (f"{budget[key]:.2f}" for key in ("used_gpu_hours", "gpu_hours", "left_gpu_hours"))
        state = budget["state"]
        if state == "exceeded" and budget["at_limit"] == "refuse":
            state = "exceeded: new kernels are refused"
        style = _STYLES.get(budget["state"])
        table.add_row(name, budget["period"], *hours, budget["renews_at"][:10], state, style=style)
    return table


def _cells(hours: Report) -> list[str]:
    return [f"{hours[name.replace(' ', '_')]:.2f}" for name in _HOURS]


def _name(text: str) -> str:
    return printable(text) if text else _NOTHING


def _days(report: Report) -> str:
    return f"{report['start'][:10]} until {report['end'][:10]}"
