"""The tables of `aliquot quota` and `aliquot queue`, from the gateway's reports. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from .tables import age_text, clock_text, moment_of, plain_table, printable, size_text

Report = Mapping[str, Any]
_NOTHING = "–"
OF_GROUPS = (
    "In the row of a team with teams below it, quota is its own. Held and borrowed are of all of them together, "
    "without quota that they do not lend; GPUs that they lend each other are held and not borrowed."
)
_KINDS = {"start": "start", "grow": "larger size", "return": "evicted"}


def quota_table(report: Report) -> RenderableType:
    """Make a table of teams, each below its parent's row as the file has them."""
    if not report["teams"]:
        text = "no team of yours has a quota" if report["order"] else "this gateway has no quota file"
        return Group(*_notes(report), Text(text))
    columns = (
        "team",
        "model",
        "quota",
        "held",
        "borrowed",
        "free to take",
        "queued",
        "evicted",
        "weight",
        "overcommit",
    )
    past = ("past use",) if report["usage_half_life_seconds"] else ()
    order = ("order",) if any(team.get("queue_order") for team in report["teams"]) else ()
    table = plain_table(*columns, *past, *order, drop_first=("weight", "overcommit", *order, *past, "evicted", "model"))
    for team in report["teams"]:
        name = f"{printable(team['name'])}{' (yours)' if team['is_yours'] else ''}"
        for place, gpus in enumerate(team["gpus"]):
            amounts = (gpus[f"{word}_gpus"] for word in ("nominal", "held", "borrowed", "available"))
            first = place == 0
            table.add_row(
                name if first else "",
                printable(gpus["model"] or "all"),
                *(f"{amount:g}" for amount in amounts),
                str(team["queued"]) if first else "",
                str(team["evicted"]) if first else "",
                f"{team['over_quota_weight']:g}" if first else "",
                f"{team['overcommit']:g}" if first and team["overcommit"] else "",
                *(f"{team['past_use']:.1%}" if first else "" for _ in past),
                *(team.get("queue_order") or report["order"] if first else "" for _ in order),
            )
    above = {team.get("parent") for team in report["teams"]} & {team["name"] for team in report["teams"]}
    return Group(*_notes(report), table, *([Text(OF_GROUPS)] if above else []))


def queue_table(report: Report, now: datetime) -> RenderableType:
    """Make a table of the requests that wait, in the order in which they are served."""
    if not report["requests"]:
        others = f"; {report['length']} of other users wait" if report["length"] else ""
        return Text(f"no request of yours waits{others}")
    columns = ("position", "kernel", "owner", "team", "size", "for", "waits", "starts", "reason")
    table = plain_table(*columns, drop_first=("starts", "team", "owner"), wrapped=("reason",))
    for one in report["requests"]:
        since = moment_of(one["since"])
        table.add_row(
            f"{one['position']} of {report['length']}",
            printable(one["label"] or one["kernel_id"][:8]),
            printable(one["owner"]),
            printable(one["team"] or _NOTHING),
            size_text(round(100 * one["gpus"]), one["priority"]),
            _KINDS.get(one["kind"], one["kind"]),
            age_text(max(0.0, (now - since).total_seconds())),
            _starts(one, now),
            printable(one["reason"]),
        )
    return Group(table)


def _starts(request: Report, now: datetime) -> str:
    """Return the announced start, or else between which minutes from now the request probably starts."""
    told: Mapping[str, str] | None = request["predicted_start"]
    if request["expected_start"]:
        return f"at {clock_text(request['expected_start'], now)}"
    if told is None:
        return _NOTHING
    low, high = (max(0.0, (moment_of(told[name]) - now).total_seconds() / 60) for name in ("earliest", "latest"))
    return f"in {math.floor(low)}–{max(1, math.ceil(high))} min"


def _notes(report: Report) -> list[Text]:
    head = "The last good quota file is in force, for the present one has errors:"
    problem = [head, *report["problem"].splitlines()] if report["problem"] else []
    return [Text(printable(line)) for line in (*problem, *report["warnings"])]
