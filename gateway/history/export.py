"""The history in the forms for clients: JSON for charts, CSV for tables. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

from jupyter_aliquot.gateway.reports import to_json
from jupyter_aliquot.gateway.reports.cells import safe_cell
from jupyter_aliquot.gateway.reports.history import Column, HistoryDevice, HistoryFigure, HistoryHead, HistoryKernel
from jupyter_aliquot.provisioner.resources import WorkloadClass

from .database import COLUMNS
from .query import Answer, Series
from .samples import FIGURES, Subject

_PARTS = ("min", "mean", "max")
# The table's names of figures and facts that have another name in the file.
_NAMES = {
    "share_entitled": "fair_share",
    "quota_bytes": "memory_limit_bytes",
    "memory_limit_bytes": "requested_memory_bytes",
    "workload_class": "priority",
}
_FACTS = ("kind", "id", "owner", "label", "kernelspec", "gpus", "memory_limit_bytes", "workload_class", "device_index")

Labels = Mapping[tuple[str, str], str]
# One row for each step: the seconds known, then the figures in the order of COLUMNS; None for a
# step that is not known.
Rows = Sequence[tuple[float | None, ...] | None]


def json_report(answer: Answer, labels: Labels) -> str:
    """Return the answer as JSON. ``labels``: newer labels of running kernels, by id and owner."""
    by_kind: dict[str, list[str]] = {"kernel": [], "device": []}
    for series in answer.series:
        # One by one: json blocks other threads, the server's loop among them, while it writes.
        by_kind[series.subject.kind].append(to_json(_report(answer, series, labels)))
    head: HistoryHead = {
        "range": answer.range.name,
        "start": _iso(answer.start),
        "end": _iso(answer.end),
        "step_seconds": answer.range.step_seconds,
        "omitted": answer.omitted,
    }
    lists = {"kernels": by_kind["kernel"], "devices": by_kind["device"]}
    members = [to_json(head)[:-1], *(f'"{name}": [{", ".join(ones)}]' for name, ones in lists.items())]
    return ", ".join(members) + "}"


def csv_report(answer: Answer, labels: Labels) -> str:
    """Return the answer as CSV, with a line for each step of each kernel and device.

    An unknown figure is an empty cell; a gap has no line.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\r\n")
    columns = [f"{_NAMES.get(name, name)}_{part}" for name in FIGURES for part in _PARTS]
    facts_told = [_NAMES.get(name, name) for name in _FACTS]
    table.writerow(["start", "step_seconds", *facts_told, "known_seconds", *columns])
    for series in answer.series:
        subject = series.subject
        label = labels.get((subject.id, subject.owner), subject.label)
        facts = [label if name == "label" else _fact(subject, name) for name in _FACTS]
        for at, row in sorted(series.steps.items()):
            cells = [_iso(at), answer.range.step_seconds, *facts, *map(_rounded, row)]
            table.writerow([safe_cell(cell) for cell in cells])
    return text.getvalue()


def _report(answer: Answer, series: Series, labels: Labels) -> HistoryKernel | HistoryDevice:
    rows = [series.steps.get(at) for at in range(answer.start, answer.end, answer.range.step_seconds)]
    return _device(series.subject, rows) if series.subject.kind == "device" else _kernel(series.subject, rows, labels)


def _kernel(subject: Subject, rows: Rows, labels: Labels) -> HistoryKernel:
    return {
        "id": subject.id,
        "owner": subject.owner,
        "label": labels.get((subject.id, subject.owner), subject.label),
        "name": subject.kernelspec,
        "gpus": subject.gpus or 0.0,
        "requested_memory_bytes": subject.memory_limit_bytes,
        "priority": _priority(subject.workload_class),
        "known_seconds": [None if row is None else _rounded(row[0]) for row in rows],
        "figures": {
            "busy_gpus": _figure(rows, "busy_gpus"),
            "own_gpus": _figure(rows, "own_gpus"),
            "fair_share": _figure(rows, "share_entitled"),
            "share_used": _figure(rows, "share_used"),
            "used_bytes": _figure(rows, "used_bytes"),
            "memory_limit_bytes": _figure(rows, "quota_bytes"),
            "swapped_bytes": _figure(rows, "swapped_bytes"),
        },
    }


def _device(subject: Subject, rows: Rows) -> HistoryDevice:
    return {
        "uuid": subject.id,
        "index": subject.device_index or 0,
        "name": subject.label,
        "known_seconds": [None if row is None else _rounded(row[0]) for row in rows],
        "figures": {
            "utilization_percent": _figure(rows, "utilization_percent"),
            "used_bytes": _figure(rows, "used_bytes"),
            "temperature_celsius": _figure(rows, "temperature_celsius"),
            "power_watts": _figure(rows, "power_watts"),
        },
    }


def _figure(rows: Rows, name: str) -> HistoryFigure:
    """Return one figure's columns. ``name``: its name in the file."""
    return {
        "min": _column(rows, f"{name}_min"),
        "mean": _column(rows, f"{name}_mean"),
        "max": _column(rows, f"{name}_max"),
    }


def _fact(subject: Subject, name: str) -> object:
    return _priority(subject.workload_class) if name == "workload_class" else getattr(subject, name)


def _priority(workload_class: str) -> str:
    """Return the priority's name; empty for devices, which have none."""
    return WorkloadClass(workload_class).priority if workload_class else ""


def _column(rows: Rows, column: str) -> Column:
    place = 1 + COLUMNS.index(column)
    return [None if row is None else _rounded(row[place]) for row in rows]


def _rounded(value: float | None) -> float | None:
    """Round bytes to whole ones, shares to a ten-thousandth."""
    if value is None:
        return None
    return round(value) if value == round(value) or abs(value) >= 10_000 else round(value, 4)


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat().replace("+00:00", "Z")
