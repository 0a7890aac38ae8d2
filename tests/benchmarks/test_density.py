"""The density simulation on days that can be computed by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from density.elastic import Cluster, Hardware
from density.trace import Cell, Session
from density.whole_gpus import FOR_THE_SESSION, Holding, WholeGpus

GB = 10**9
HOUR = 3600.0
HARDWARE = Hardware(memory_bytes=40 * GB, link_rate=20e9)


def a_day(count: int, gpus: int = 8, bytes_: int = 8 * 30 * GB, seconds: float = 600.0) -> list[Session]:
    """Notebooks that run one cell each, half an hour apart, and stay open."""
    cells = (Cell(60.0, seconds, gpus, bytes_, 0.5),)
    return [Session(str(number), number * HOUR / 2, gpus, cells, 10 * HOUR) for number in range(count)]


def seconds_of(_: Cell) -> float:
    return 2.0


def test_a_reservation_makes_the_second_notebook_wait_for_the_end_of_the_first() -> None:
    outcome = WholeGpus(1, Holding(FOR_THE_SESSION, seconds_of)).run(a_day(2))
    assert outcome.starts == (0.0, 60.0 + 600.0 + 10 * HOUR - HOUR / 2)
    assert outcome.peak_gpus == 8


def test_gpus_bound_to_a_cell_are_free_after_it() -> None:
    outcome = WholeGpus(1, Holding(0.0, seconds_of)).run(a_day(4))
    assert outcome.starts == (0.0,) * 4
    assert outcome.resumes == (0.0,) * 4  # the first cell has nothing to load
    assert outcome.gpu_hours_held == pytest.approx(4 * 8 * 600 / HOUR)


def test_idle_memory_leaves_for_the_next_cell_and_that_takes_its_copy() -> None:
    outcome = Cluster(1, HARDWARE).run(a_day(2))
    copy_seconds = 30 * GB / HARDWARE.link_rate + HARDWARE.policy.move_seconds
    assert outcome.resumes == (0.0, pytest.approx(copy_seconds))


def test_without_host_memory_nobody_is_admitted_beyond_the_devices() -> None:
    outcome = Cluster(1, Hardware(memory_bytes=40 * GB, link_rate=20e9, host_bytes=0)).run(a_day(2))
    assert max(outcome.starts) > 9 * HOUR


def test_small_notebooks_share_devices_without_a_swap() -> None:
    cluster = Cluster(1, HARDWARE)
    outcome = cluster.run(a_day(8, gpus=1, bytes_=GB))
    assert outcome.resumes == (0.0,) * 8
    assert cluster.swaps == 0


def test_the_same_day_gives_the_same_answer() -> None:
    assert Cluster(2, HARDWARE).run(a_day(9)) == Cluster(2, HARDWARE).run(a_day(9))
