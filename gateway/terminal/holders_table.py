"""The tables of `aliquot holders`, from the gateway's report. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_aliquot.provisioner.resources import Bytes

from .tables import age_text, plain_table, printable, short_ids, size_text

Report = Mapping[str, Any]
_NOTHING = "–"


def holders_tables(report: Report) -> RenderableType:
    """Make a table of users and one of the most idle kernels."""
    if not report["kernels"]:
        return Text("no kernel holds a GPU or waits for one")
    parts: list[RenderableType] = [_users(report)]
    if report["most_idle"]:
        parts += [Text(""), _most_idle(report)]
    return Group(*parts)


def _users(report: Report) -> RenderableType:
    columns = ("user", "team", "kernels", "held", "limit", "used", "idle", "queued", "memory used", "CPUs", "RAM")
    table = plain_table(*columns, drop_first=("team", "queued", "CPUs", "RAM"))
    for user in report["users"]:
        table.add_row(
            printable(user["name"]),
            printable(", ".join(user["teams"])) or _NOTHING,
            str(user["kernels"]),
            f"{user['gpus']:g}",
            _amount(user["gpu_limit"]),
            _amount(user["gpus_used"]),
            _NOTHING if user["idle_share"] is None else f"{user['idle_share']:.0%}",
            f"{user['queued_gpus']:g}",
            str(Bytes(user["used_bytes"])),
            _amount(user["cpus"]),
            _memory(user["host_memory_bytes"]),
        )
    return table


def _most_idle(report: Report) -> RenderableType:
    columns = ("most idle", "id", "owner", "size", "idle for", "memory used", "CPUs", "RAM")
    table = plain_table(*columns, drop_first=("CPUs", "RAM", "owner"))
    kernels = {kernel["id"]: kernel for kernel in report["kernels"]}
    ids = short_ids(list(kernels))
    for kernel in (kernels[one] for one in report["most_idle"]):
        host = kernel["host"] or {"cpus": None, "memory_bytes": None}
        table.add_row(
            printable(kernel["label"] or kernel["name"]) or _NOTHING,
            ids[kernel["id"]],
            printable(kernel["owner"]),
            size_text(round(100 * kernel["gpus"]), kernel["priority"]),
            age_text(kernel["idle_seconds"] or 0.0),
            str(Bytes(kernel["used_bytes"])),
            _amount(host["cpus"]),
            _memory(host["memory_bytes"]),
        )
    return table


def _amount(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.2f}".rstrip("0").rstrip(".")


def _memory(value: int | None) -> str:
    return _NOTHING if value is None else str(Bytes(value))
