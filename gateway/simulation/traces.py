"""Traces of jobs: CSV files with a header line, read into jobs. Each error names file and line.

The columns say which trace it is. Amounts of GPUs may be fractions in our own format only.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from jupyter_aliquot.gateway.planning.jobs import DEVICE, Job
from jupyter_aliquot.provisioner.errors import AliquotError

# Seconds that a job of unknown kind takes to start, in Muri's and Tiresias' simulator.
UNKNOWN_OVERHEAD = 10.0
# The measured time of one iteration beside the traced one, in Muri's simulator.
ITERATION_FACTOR = 1.015

Row = Mapping[str, str]
_T = TypeVar("_T")


class TraceError(AliquotError):
    """A trace that cannot be read. The message names the file, the line, and what is wrong."""


@dataclass(frozen=True)
class TraceFormat:
    """One kind of trace: the columns that it must have, and the function that reads a row."""

    name: str
    columns: frozenset[str]
    read: Callable[[Row, Mapping[str, Mapping[int, float]]], Job | None]


def read_trace(path: Path, overheads: Path | None = None) -> tuple[Job, ...]:
    """Return the jobs of a trace, in the order of the file.

    Args:
        path: the trace.
        overheads: start overheads by model and GPUs (columns ``model_name``, ``gpus_1``, …), for
            traces that name models.

    Raises:
        TraceError: the file cannot be read, has unknown columns or a bad value.
    """
    known = {} if overheads is None else _read_overheads(overheads)
    rows = _rows(path)
    first = next(rows, None)
    if first is None:
        raise TraceError(f"{path}: The file has no jobs. A trace is a header line and one line for each job")
    form = _format_of(path, frozenset(first[1]))
    jobs: dict[str, Job] = {}
    for line, row in _and_then(first, rows):
        job = _job(path, line, row, form, known)
        if job is None:
            continue
        if job.name in jobs:
            raise TraceError(f"{path}:{line}: The job {job.name!r} occurs twice. Each job needs a name of its own")
        jobs[job.name] = job
    if not jobs:
        raise TraceError(f"{path}: No job of the file has a duration. There is nothing to simulate")
    return tuple(jobs.values())


def read_services(path: Path) -> tuple[float, ...]:
    """Return the GPU-seconds of past jobs (column ``duration``), for the Gittins index.

    Raises TraceError.
    """
    found = []
    for line, row in _rows(path):
        if "duration" not in row:
            raise TraceError(f"{path}:1: The column 'duration' is missing. It holds the GPU-seconds of each past job")
        found.append(_at(path, line, partial(_positive, row, "duration")))
    if not found:
        raise TraceError(f"{path}: The file has no past jobs. The Gittins index needs at least one")
    return tuple(found)


def _own(row: Row, _: Mapping[str, Mapping[int, float]]) -> Job:
    milli = round(_positive(row, "gpus") * DEVICE)
    if not milli:
        raise ValueError(f"gpus is {row['gpus']!r}, and has to be at least 0.001")
    return Job(
        row["name"],
        milli,
        _not_negative(row, "submit"),
        _positive(row, "seconds"),
        row.get("team") or "",
        _not_negative(row, "start_overhead") if row.get("start_overhead") else 0.0,
    )


def _muri(row: Row, overheads: Mapping[str, Mapping[int, float]]) -> Job:
    gpus = _devices(row)
    iteration = _positive(row, "iteration_time") * ITERATION_FACTOR / 1000
    seconds = _positive(row, "iterations") * iteration
    return Job(
        row["job_id"],
        gpus * DEVICE,
        _not_negative(row, "submit_time") / 1000,
        seconds,
        start_overhead=_overhead(overheads, row["model_name"], gpus),
    )


def _tiresias(row: Row, overheads: Mapping[str, Mapping[int, float]]) -> Job:
    gpus = _devices(row)
    overhead = _overhead(overheads, row["model_name"], gpus)
    submit, seconds = _not_negative(row, "submit_time"), _positive(row, "duration")
    return Job(row["job_id"], gpus * DEVICE, submit, seconds, start_overhead=overhead)


def _philly(row: Row, _: Mapping[str, Mapping[int, float]]) -> Job | None:
    """Read a job of Philly as derived by Gavel. It has no name; jobs without a duration are left out."""
    if not row["duration_s_on_v100"]:
        return None
    submit, seconds = _not_negative(row, "arrival_s"), _positive(row, "duration_s_on_v100")
    return Job("", _devices(row, "num_gpus") * DEVICE, submit, seconds, row["vc"])


# The first format whose columns a trace has is its format.
FORMATS = (
    TraceFormat("aliquot", frozenset({"name", "gpus", "submit", "seconds"}), _own),
    TraceFormat(
        "muri", frozenset({"job_id", "num_gpu", "submit_time", "iterations", "model_name", "iteration_time"}), _muri
    ),
    TraceFormat("tiresias", frozenset({"job_id", "num_gpu", "submit_time", "model_name", "duration"}), _tiresias),
    TraceFormat("philly", frozenset({"vc", "arrival_s", "num_gpus", "duration_s_on_v100"}), _philly),
)


def _format_of(path: Path, columns: frozenset[str]) -> TraceFormat:
    found = next((form for form in FORMATS if form.columns <= columns), None)
    if found is None:
        wanted = "; ".join(f"{form.name}: {', '.join(sorted(form.columns))}" for form in FORMATS)
        raise TraceError(
            f"{path}:1: The columns {', '.join(sorted(columns))} are those of no known trace. Known: {wanted}"
        )
    return found


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each row with its line number."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            for row in reader:
                if None in row or None in row.values():
                    raise TraceError(
                        f"{path}:{reader.line_num}: The line has not as many values as the header has columns"
                    )
                yield reader.line_num, row
    except OSError as error:
        raise TraceError(f"{path}: The trace cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: The trace is no CSV file in UTF-8: {error}") from None


def _and_then(
    first: tuple[int, dict[str, str]], rest: Iterator[tuple[int, dict[str, str]]]
) -> Iterator[tuple[int, dict[str, str]]]:
    yield first
    yield from rest


def _job(
    path: Path, line: int, row: Row, form: TraceFormat, overheads: Mapping[str, Mapping[int, float]]
) -> Job | None:
    job = _at(path, line, partial(form.read, row, overheads))
    if job is None or job.name:
        return job
    return replace(job, name=f"line {line}")


def _at(path: Path, line: int, read: Callable[[], _T]) -> _T:
    try:
        return read()
    except ValueError as error:
        raise TraceError(f"{path}:{line}: {error}") from None


def _positive(row: Row, column: str) -> float:
    value = _number(row, column)
    if value <= 0:
        raise ValueError(f"{column} is {row[column]!r}, and has to be above 0")
    return value


def _not_negative(row: Row, column: str) -> float:
    value = _number(row, column)
    if value < 0:
        raise ValueError(f"{column} is {row[column]!r}, and has to be 0 or more")
    return value


def _number(row: Row, column: str) -> float:
    try:
        value = float(row[column])
    except ValueError:
        raise ValueError(f"{column} is {row[column]!r}, which is no number") from None
    if not math.isfinite(value):
        raise ValueError(f"{column} is {row[column]!r}, which is no finite number")
    return value


def _devices(row: Row, column: str = "num_gpu") -> int:
    value = _positive(row, column)
    if value != int(value):
        raise ValueError(f"{column} is {row[column]!r}, and has to be a whole number of GPUs")
    return int(value)


def _overhead(overheads: Mapping[str, Mapping[int, float]], model: str, gpus: int) -> float:
    if not overheads:
        return 0.0
    return overheads.get(model, {}).get(gpus, UNKNOWN_OVERHEAD)


def _read_overheads(path: Path) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for line, row in _rows(path):
        if "model_name" not in row:
            raise TraceError(f"{path}:1: The column 'model_name' is missing. The others are gpus_1, gpus_2 and so on")
        sizes: Sequence[str] = [column for column in row if column.startswith("gpus_")]
        found[row["model_name"]] = {
            int(size.removeprefix("gpus_")): _at(path, line, partial(_not_negative, row, size)) for size in sizes
        }
    return found
