"""The history as people and programs get it: JSON for charts, CSV for tables. Pure."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from jupyter_aliquot.provisioner.resources import WorkloadClass

from .database import COLUMNS
from .query import Answer, Series
from .samples import DEVICE_FIGURES, FIGURES, KERNEL_FIGURES, Subject

_PARTS = ("min", "mean", "max")
# What REST calls a figure or a fact that the file keeps under another name.
_NAMES = {
    "share_entitled": "fair_share",
    "quota_bytes": "memory_limit_bytes",
    "memory_limit_bytes": "requested_memory_bytes",
    "workload_class": "priority",
}
# What a table program would take for a formula. Labels and ids are what users wrote.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_FACTS = ("kind", "id", "owner", "label", "kernelspec", "gpus", "memory_limit_bytes", "workload_class", "device_index")

Labels = Mapping[tuple[str, str], str]


def json_report(answer: Answer, labels: Labels) -> str:
    """``labels``: newer ones of kernels that run, by id and owner."""
    by_kind: dict[str, list[str]] = {"kernel": [], "device": []}
    for series in answer.series:
        # One by one: json keeps other threads, the server's loop among them, from running while it writes.
        by_kind[series.subject.kind].append(json.dumps(_report(answer, series, labels)))
    head = {
        "range": answer.range.name,
        "start": _iso(answer.start),
        "end": _iso(answer.end),
        "step_seconds": answer.range.step_seconds,
        "omitted": answer.omitted,
    }
    lists = {"kernels": by_kind["kernel"], "devices": by_kind["device"]}
    members = [json.dumps(head)[:-1], *(f'"{name}": [{", ".join(ones)}]' for name, ones in lists.items())]
    return ", ".join(members) + "}"


def csv_report(answer: Answer, labels: Labels) -> str:
    """A line for each step of each kernel and device; what is not known is an empty cell, a gap no line."""
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
            table.writerow([_cell(cell) for cell in cells])
    return text.getvalue()


def _report(answer: Answer, series: Series, labels: Labels) -> dict[str, Any]:
    subject = series.subject
    known = [series.steps.get(at) for at in range(answer.start, answer.end, answer.range.step_seconds)]
    names = KERNEL_FIGURES if subject.kind == "kernel" else DEVICE_FIGURES
    figures = {
        "known_seconds": [None if row is None else _rounded(row[0]) for row in known],
        "figures": {
            _NAMES.get(name, name): {part: _column(known, f"{name}_{part}") for part in _PARTS} for name in names
        },
    }
    if subject.kind == "device":
        return {"uuid": subject.id, "index": subject.device_index, "name": subject.label, **figures}
    return {
        "id": subject.id,
        "owner": subject.owner,
        "label": labels.get((subject.id, subject.owner), subject.label),
        "name": subject.kernelspec,
        "gpus": subject.gpus,
        "requested_memory_bytes": subject.memory_limit_bytes,
        "priority": _priority(subject.workload_class),
        **figures,
    }


def _fact(subject: Subject, name: str) -> object:
    return _priority(subject.workload_class) if name == "workload_class" else getattr(subject, name)


def _priority(workload_class: str) -> str:
    """Devices have none."""
    return WorkloadClass(workload_class).priority if workload_class else ""


def _column(known: Iterable[tuple[float | None, ...] | None], column: str) -> list[float | None]:
    place = 1 + COLUMNS.index(column)
    return [None if row is None else _rounded(row[place]) for row in known]


def _rounded(value: float | None) -> float | None:
    """Bytes whole; shares to a ten-thousandth."""
    if value is None:
        return None
    return round(value) if value == round(value) or abs(value) >= 10_000 else round(value, 4)


def _cell(value: object) -> object:
    """No cell of text begins a formula."""
    if value is None:
        return ""
    if isinstance(value, str) and value.lstrip(" \u00a0").startswith(_FORMULA):
        return f"'{value}"
    return value


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat().replace("+00:00", "Z")
