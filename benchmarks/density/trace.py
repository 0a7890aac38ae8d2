"""The notebook trace: sessions and their cells, in seconds.

The module reads research data that lies outside the repository.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30
NAME = Path("notebookos") / "idlt_june1-2_events.csv"


@dataclass(frozen=True)
class Cell:
    """One run cell.

    ``pause``: from the end of the cell before it, or the session's start, to its submission.
    ``bytes``: of device memory, in all; ``utilization``: mean of each of its ``gpus``, 0 … 1.
    """

    pause: float
    seconds: float
    gpus: int
    bytes: int
    utilization: float


@dataclass(frozen=True)
class Session:
    """One notebook. It closes ``tail`` seconds after its last cell."""

    name: str
    start: float
    gpus: int
    cells: tuple[Cell, ...]
    tail: float


def read(folder: Path) -> tuple[Session, ...]:
    """Return the sessions that use a GPU, in order of their start. Raises OSError, ValueError."""
    rows: dict[str, list[dict[str, str]]] = defaultdict(list)
    with open(folder / NAME, newline="") as file:
        for row in csv.DictReader(file):
            rows[row["session"]].append(row)
    sessions = [_session(name, cells) for name, cells in rows.items()]
    return tuple(sorted((s for s in sessions if s.gpus), key=lambda s: (s.start, s.name)))


def a_made_up_day() -> tuple[Session, ...]:
    """Return six notebooks of half an hour, one GPU and 4 GB each: smoke runs need no trace."""
    cells = tuple(Cell(300.0, 30.0, 1, 4 * 10**9, 0.5) for _ in range(5))
    return tuple(Session(f"made up {number}", 120.0 * number, 1, cells, 150.0) for number in range(6))


def _session(name: str, rows: list[dict[str, str]]) -> Session:
    rows = sorted(rows, key=lambda row: float(row["start_min"]))
    start, stop = float(rows[0]["session_start_min"]) * 60, float(rows[0]["session_stop_min"]) * 60
    cells: list[Cell] = []
    before = start
    for row in rows:
        begin, seconds = float(row["start_min"]) * 60, float(row["duration_min"]) * 60
        cells.append(
            Cell(
                pause=max(0.0, begin - before),
                seconds=seconds,
                gpus=int(row["gpus"]),
                bytes=int(float(row["vram_gb"]) * 1e9) if int(row["gpus"]) else 0,
                utilization=float(row["mean_gpu_util"]) / 100,
            )
        )
        before = max(before, begin + seconds)
    gpus = max(int(rows[0]["session_max_gpus"]), *(cell.gpus for cell in cells))
    return Session(name, start, gpus, tuple(cells), max(0.0, stop - before))
