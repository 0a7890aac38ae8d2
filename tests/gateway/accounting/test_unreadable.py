"""A file that another program has locked: no wrong answer, no mark lost, no budget forgotten."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_aliquot.gateway.accounting.amounts import CHARGE_PER_UNIT, UNITS_PER_HOUR
from jupyter_aliquot.provisioner.errors import StateError

from .life import ALICE, HOUR, NOON, Life, part, settings

# Longer than the book waits before it tries a locked file again.
LATER = 10_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "accounting.sqlite"


@pytest.fixture
def life(path: Path) -> Life:
    """A life of one kernel on a whole GPU for an hour, written."""
    made = Life(settings(path), periods=("month",))
    made.look()
    look(made)
    made.go(HOUR)
    look(made)
    return made


def look(life: Life, **other: int) -> None:
    life.look([part(hundredths=100, own=0, **other)])


def charged(life: Life) -> float:
    """Return the GPU-hours that the month's budgets are held against."""
    return sum(life.book.spending.charges["month"].values()) / (UNITS_PER_HOUR * CHARGE_PER_UNIT)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock the file, as a backup does."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


def test_a_file_that_is_locked_at_the_start_loses_no_mark(life: Life, path: Path) -> None:
    life.book.close(life.monotonic / 1000)
    life.go(8 * HOUR)
    with locked(path):
        life.begin()
        look(life)
        life.go(HOUR)
    look(life)
    life.go(HOUR)
    look(life)
    assert life.ask()["total"]["on_gpu"] == 11.0


def test_kernels_that_come_and_go_before_the_file_can_be_read_are_counted(life: Life, path: Path) -> None:
    with locked(path):
        life.restart()
        life.look()
        born = life.wall
        for _ in range(3):
            life.go(HOUR)
            life.look([part("k2", hundredths=100, began=born, own=0)])
        life.look()
    life.go(LATER)
    life.look()
    assert life.ask()["total"]["on_gpu"] == 1.0 + 3.0


def test_looks_at_a_file_that_stays_locked_are_bounded(life: Life, path: Path) -> None:
    life.restart()
    with locked(path):
        for _ in range(1000):
            life.go(1)
            look(life)
        assert len(life.book._held_back) <= 64
    life.go(HOUR - 1000)
    look(life)
    assert life.ask()["total"]["on_gpu"] == 2.0


def test_a_locked_file_gives_no_answer_of_less(life: Life, path: Path) -> None:
    life.go(HOUR)
    with locked(path):
        look(life)
        with pytest.raises(StateError, match="database is locked"):
            life.ask()
        assert charged(life) == 2.0
    assert life.ask()["total"]["on_gpu"] == 2.0


def test_a_budget_that_is_not_known_yet_is_told_and_known_with_the_next_look(life: Life, path: Path) -> None:
    life.book.close(life.monotonic / 1000)
    with locked(path):
        life.begin()
        look(life)
        assert life.book.spending.charges == {}
        assert ["admit nothing new" in problem for problem in life.book.problems] == [True]
        with pytest.raises(StateError, match="cannot be read"):
            life.ask()
    life.go(LATER)
    look(life)
    assert life.book.problems == ()
    assert charged(life) == pytest.approx(1.0, abs=0.01)


def test_a_file_that_cannot_be_made_leaves_the_charges_known(tmp_path: Path) -> None:
    """All that was used is in memory then, and goes into the file once it can be made."""
    folder = tmp_path / "state"
    folder.write_text("no folder")
    life = Life(settings(folder / "accounting.sqlite"), periods=("month",))
    look(life)
    assert life.book.spending.charges == {"month": {}}
    life.go(HOUR)
    look(life)
    assert charged(life) == 1.0
    folder.unlink()
    folder.mkdir()
    life.go(HOUR)
    look(life)
    assert (charged(life), life.book.problems) == (2.0, ())
    life.restart()
    look(life)
    assert charged(life) == 2.0


def test_charges_that_were_known_stay_while_the_file_is_opened_again(life: Life, path: Path) -> None:
    life.book.kept.close()
    life.go(HOUR)
    with locked(path):
        look(life)
        assert charged(life) == 2.0
    life.go(HOUR)
    look(life)
    assert charged(life) == 3.0
    assert life.wall == NOON + 3 * HOUR


def test_a_second_gateway_on_the_file_counts_nothing_and_goes_on_when_the_first_is_gone(life: Life, path: Path) -> None:
    second = Life(life.settings, life.wall, life.monotonic, periods=("month",))
    look(second)
    [problem] = second.book.problems
    assert f"process {os.getpid()} writes {path}" in problem
    for one in (life, second):
        one.go(2 * HOUR)
    look(life)
    look(second)
    assert (life.ask()["total"]["on_gpu"], second.ask()["total"]["on_gpu"]) == (3.0, 3.0)
    assert (charged(second), second.book.since_start) == (3.0, {})
    life.book.kept.close()  # as a gateway that was killed leaves it
    second.go(HOUR)
    look(second)
    assert second.book.problems == ()
    assert (second.ask()["total"]["on_gpu"], charged(second)) == (4.0, 4.0)
    second.restart()
    assert second.ask()["total"]["on_gpu"] == 4.0


def test_a_gateway_that_lost_its_file_to_another_counts_no_hour_twice(life: Life, path: Path) -> None:
    """The lock is free for a moment when a file is opened again."""
    second = Life(life.settings, life.wall, life.monotonic)
    look(second)
    life.book.kept.close()
    look(second)
    for one in (life, second):
        one.go(HOUR)
        look(one)
    assert (life.book.since_start.keys(), [path.name in told for told in life.book.problems]) == ({ALICE}, [True])
    second.book.close(second.monotonic / 1000)
    life.go(HOUR)
    look(life)
    assert life.ask()["total"]["on_gpu"] == 3.0
