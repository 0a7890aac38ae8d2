"""The history over hours: the keeper writes steps of two lengths, and prunes them.

A test sets the clock by hand; the file is real.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import sqlite3
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gateway.history.buckets import DAY, HOUR, WEEK, Range
from jupyter_aliquot.gateway.history.database import Limits
from jupyter_aliquot.gateway.history.export import csv_report, json_report
from jupyter_aliquot.gateway.history.query import Question
from jupyter_aliquot.gateway.history.recorder import HistoryKeeper, HistorySettings
from jupyter_aliquot.gateway.history.samples import Reading
from jupyter_aliquot.gpu_hook.client.reports import NodeStatus

from .node import GIB, node

NOON = 1_800_000_000 // 900 * 900
LOG = logging.getLogger("history")
ROOMY = Limits(64 << 20, 2_000_000)


class Life:
    """A life of a history keeper, whose time a test moves."""

    def __init__(self, path: Path | None, limits: Limits = ROOMY, at: float = NOON) -> None:
        self.keeper = HistoryKeeper(HistorySettings(True, path, limits, 2.0, 10.0), LOG)
        self.wall, self.monotonic = float(at), 500.0
        self.busy = 0.0

    def look(self, status: NodeStatus | None) -> None:
        self.keeper.take(Reading(self.wall, self.monotonic, status))

    def run(self, seconds: float, busy: float = 0.0, every: float = 2.0, **known: Any) -> None:
        """Look every ``every`` seconds until ``seconds`` have passed.

        ``busy`` is the number of GPUs in use.
        """
        self.look(node(busy_seconds=self.busy, own_seconds=self.busy / 2, **known))
        for _ in range(round(seconds / every)):
            self.go(every)
            self.busy += busy * every
            self.look(node(busy_seconds=self.busy, own_seconds=self.busy / 2, **known))

    def go(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds

    def ask(self, each: Range = HOUR, owner: str = "alice", is_admin: bool = False, **fields: Any) -> dict[str, Any]:
        question = Question(each, owner, is_admin, **fields)
        report: dict[str, Any] = json.loads(json_report(self.keeper.answer(question, self.wall, self.monotonic), {}))
        return report

    def close(self) -> None:
        self.keeper.close(self.wall, self.monotonic)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def column(report: dict[str, Any], name: str = "busy_gpus", part: str = "mean") -> list[float]:
    """Return the known values of one figure of the first kernel."""
    return [value for value in report["kernels"][0]["figures"][name][part] if value is not None]


def test_steps_of_every_range_have_the_exact_mean(path: Path) -> None:
    life = Life(path)
    life.run(900, busy=0.2)
    life.run(900, busy=0.6, used=2 * GIB)
    assert column(life.ask(HOUR)) == [0.2] * 90 + [0.6] * 90
    assert column(life.ask(DAY)) == [0.2, 0.6]
    week = life.ask(WEEK)
    assert column(week) == [0.2, 0.6]
    assert column(week, "own_gpus") == [0.1, 0.3]
    assert column(week, "used_bytes") == [GIB, 2 * GIB]
    life.close()


def test_a_coarse_step_has_the_extremes_of_its_samples(path: Path) -> None:
    life = Life(path)
    life.run(100, busy=0.0)
    life.run(2, busy=1.0)
    life.run(198, busy=0.0)
    day = life.ask(DAY)
    assert column(day, part="max") == [1.0]
    assert column(day, part="min") == [0.0]
    assert column(day) == [round(2 / 300, 4)]
    assert day["kernels"][0]["known_seconds"][-1] == 300
    life.close()


def test_steps_are_the_same_however_often_they_are_asked_for_while_they_grow(path: Path) -> None:
    life = Life(path)
    for busy in (0.0, 0.6, 0.3):
        for _ in range(10):
            life.run(6, busy=busy)
            life.ask(HOUR)
            life.ask(DAY)
    assert column(life.ask(DAY)) == [0.3]
    assert column(life.ask(DAY), part="max") == [0.6]
    assert (column(life.ask(HOUR))[0], column(life.ask(HOUR))[-1]) == (0.0, 0.3)
    assert life.ask(DAY)["kernels"][0]["known_seconds"][-1] == 180
    life.close()


def test_a_step_of_a_time_that_was_there_twice_is_no_longer_than_it_can_be(path: Path) -> None:
    life = Life(path)
    life.run(60, busy=0.5)
    life.wall -= 60
    life.run(60, busy=0.5)
    assert set(column(life.ask(), "busy_gpus")) == {0.5}
    known = [seconds for seconds in life.ask()["kernels"][0]["known_seconds"] if seconds]
    assert max(known) == 10
    life.close()


def test_the_file_is_for_its_owner_alone(path: Path) -> None:
    life = Life(path)
    life.run(20)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    life.close()


def test_a_restart_leaves_a_gap_and_no_zero(path: Path) -> None:
    life = Life(path)
    life.run(60, busy=0.5)
    life.close()
    later = Life(path, at=NOON + 120)
    later.run(60, busy=0.5)
    report = later.ask()
    assert column(report) == [0.5] * 12
    known = report["kernels"][0]["known_seconds"][-19:-1]
    assert known == [10] * 6 + [None] * 6 + [10] * 6
    assert column(later.ask(DAY)) == [0.5]
    later.close()


def test_what_a_killed_gateway_saw_is_told_by_the_next(path: Path) -> None:
    killed = Life(path)
    killed.run(61, busy=0.5, every=1)
    killed.keeper.kept.close()
    later = Life(path, at=NOON + 120)
    later.run(60, busy=0.5)
    assert column(later.ask(DAY)) == [0.5]
    assert later.ask(DAY)["kernels"][0]["known_seconds"][-1] == 120
    assert column(later.ask(HOUR)) == [0.5] * 12
    later.close()


def test_a_second_gateway_on_the_file_reads_and_writes_when_the_first_is_gone(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Life(path), Life(path)
    first.run(60, busy=0.5)
    second.run(60, busy=0.75)
    assert column(second.ask()) == [0.5] * 6
    assert caplog.text.count(f"history=not_written path={path} reason=process {os.getpid()} writes this file") == 1
    first.close()
    second.run(60, busy=0.75)
    assert column(second.ask()) == [0.5] * 6 + [0.75] * 6
    second.close()


def test_a_file_of_earlier_gateways_goes_on_without_its_steps_of_five_minutes(path: Path) -> None:
    life = Life(path)
    life.run(900, busy=0.5)
    life.close()
    with sqlite3.connect(path) as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(point)")][1:]
        database.execute(f"INSERT INTO point SELECT 300, {', '.join(columns)} FROM point WHERE step = 900")
    later = Life(path, at=life.wall)
    later.run(60, busy=0.5)
    with sqlite3.connect(path) as database:
        assert {row[0] for row in database.execute("SELECT DISTINCT step FROM point")} == {10, 900}
    assert column(later.ask(WEEK)) == [0.5, 0.5]
    later.close()


def test_a_kernel_that_ended_can_still_be_read_and_devices_go_on(path: Path) -> None:
    life = Life(path)
    life.run(30, busy=0.5, label="train.ipynb")
    life.run(30, kernels=0)
    report = life.ask()
    [kernel] = report["kernels"]
    assert (kernel["label"], kernel["gpus"], kernel["priority"]) == ("train.ipynb", 0.25, "normal")
    assert column(report) == [0.5] * 3
    assert [value for value in report["devices"][0]["known_seconds"] if value] == [10] * 6
    life.close()


def test_kernels_that_ended_are_kept_in_the_file_alone(path: Path) -> None:
    life = Life(path)
    for number in range(30):
        life.run(20, owner=f"user-{number}")
    assert sum(len(steps._sums) for steps in life.keeper._steps.values()) < 30, "what is not written yet"
    life.run(20, owner="user-0")
    assert [len(life.ask(owner=f"user-{number}")["kernels"]) for number in (0, 7, 29)] == [1, 1, 1]
    life.close()


def test_an_agent_that_does_not_answer_is_a_gap(path: Path) -> None:
    life = Life(path)
    life.run(20, busy=0.5)
    for _ in range(10):
        life.go(2)
        life.look(None)
    life.go(2)
    life.run(18, busy=0.5)
    assert column(life.ask()) == [0.5] * 4
    life.close()


@pytest.mark.parametrize("jump", [-7200.0, 30 * 86400.0])
def test_a_clock_that_was_set_is_a_gap_and_removes_nothing(path: Path, jump: float) -> None:
    life = Life(path)
    life.run(60, busy=0.5)
    life.wall += jump
    life.run(700, busy=0.25, every=10)
    assert set(column(life.ask())) == {0.25}
    life.wall -= jump
    life.run(60, busy=0.5)
    assert {0.5} <= set(column(life.ask(DAY)))
    rows = sqlite3.connect(path).execute("SELECT COUNT(*) FROM point WHERE step = 10 AND at < ?", (NOON + 60,))
    assert rows.fetchone()[0] >= 12
    life.close()


def test_what_is_too_old_goes_and_steps_that_are_longer_stay(path: Path) -> None:
    life = Life(path)
    life.run(600, busy=0.5, every=10)
    life.go(2 * 86400)
    life.run(1300, busy=0.25, every=10)
    with sqlite3.connect(path) as database:
        steps = dict(database.execute("SELECT step, COUNT(*) FROM point WHERE at < ? GROUP BY step", (NOON + 900,)))
    assert steps == {900: 2}
    assert column(life.ask(WEEK))[0] == 0.5
    life.close()


@pytest.mark.parametrize("limits", [Limits(64 << 20, 500), Limits(256 << 10, 2_000_000)])
def test_rows_and_bytes_stay_below_their_limits(path: Path, limits: Limits) -> None:
    life = Life(path, limits)
    life.run(1300, busy=0.5, every=10, kernels=40)
    life.keeper.close(life.wall, life.monotonic)
    assert path.stat().st_size <= limits.bytes
    with sqlite3.connect(path) as database:
        [(rows,)] = database.execute("SELECT COUNT(*) FROM point")
    # Between two prunings a file may grow by the rows of ten minutes.
    assert rows <= limits.rows + 61 * 41
    again = Life(path, limits, at=life.wall)
    assert column(again.ask())[-1] == 0.5
    again.close()


def test_a_full_disk_is_a_gap_and_said_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    life = Life(path)
    life.run(60, busy=0.5)
    file = life.keeper.kept.file
    assert file is not None
    pages = file.database.execute("PRAGMA page_count").fetchone()[0]
    file.database.execute(f"PRAGMA max_page_count = {pages}")
    with caplog.at_level(logging.INFO, "history"):
        life.run(300, busy=0.5, kernels=40)
        assert [r for r in caplog.records if "database or disk is full" in r.getMessage()][1:] == []
        assert "history=not_written" in caplog.text
        file.database.execute("PRAGMA max_page_count = 100000")
        life.run(60, busy=0.75)
    assert "history=written again" in caplog.text
    assert {0.5, 0.75} <= set(column(life.ask()))
    life.close()


@pytest.mark.parametrize("each", [HOUR, DAY, WEEK], ids=["hour", "day", "week"])
def test_a_full_disk_refuses_no_reader(path: Path, each: Range, caplog: pytest.LogCaptureFixture) -> None:
    life = Life(path)
    life.run(7200, busy=0.5)
    life.close()
    life = Life(path, at=life.wall)
    life.ask(each)
    file = life.keeper.kept.file
    assert file is not None
    pages = file.database.execute("PRAGMA page_count").fetchone()[0]
    file.database.execute(f"PRAGMA max_page_count = {pages}")
    with caplog.at_level(logging.INFO, "history"):
        for _ in range(20):
            life.run(60, busy=0.5, kernels=40)
            assert 0.5 in set(column(life.ask(each)))
    assert "history=not_written" in caplog.text
    assert "history=written again" not in caplog.text, "a read is no writing"
    life.close()


@pytest.mark.parametrize("damage", ["not a database" * 200, ""])
def test_a_damaged_file_is_set_aside_and_begun_anew(path: Path, caplog: pytest.LogCaptureFixture, damage: str) -> None:
    if damage:
        path.write_text(damage)
    else:
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE somebody_elses (a)")
    before = path.read_bytes()
    life = Life(path)
    life.run(60, busy=0.5)
    assert column(life.ask()) == [0.5] * 6
    [aside] = path.parent.glob("history.sqlite.*-*")
    assert aside.read_bytes() == before
    assert "set aside as" in caplog.text
    life.close()


def test_a_file_that_is_damaged_while_it_is_used_does_not_end_the_history(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(path)
    life.run(60, busy=0.5)
    path.write_bytes(b"\xff" * path.stat().st_size)
    life.run(60, busy=0.25)
    life.run(60, busy=0.25)
    assert 0.25 in column(life.ask())
    assert list(path.parent.glob("history.sqlite.unreadable-*"))
    life.close()


def test_a_file_that_cannot_be_made_is_said_and_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    life = Life(tmp_path / "not there" / "history.sqlite")
    life.run(30, busy=0.5)
    assert caplog.text.count("history=not_written") == 1
    life.close()


def test_users_get_their_own_kernels_and_administrators_all(path: Path) -> None:
    life = Life(path)
    life.run(20)
    life.run(20, owner="bob")
    owners = lambda **who: [kernel["owner"] for kernel in life.ask(**who)["kernels"]]  # noqa: E731  (short)
    assert (owners(owner="alice"), owners(owner="bob"), owners(owner="")) == (["alice"], ["bob"], [])
    assert owners(owner="ada", is_admin=True) == ["alice", "bob"]
    assert life.ask(owner="bob", kernels=("k1",))["kernels"][0]["owner"] == "bob"
    assert life.ask(kernels=("k1",))["devices"] == []
    assert life.ask(devices=("GPU-1",))["kernels"] == []
    life.close()


def test_of_many_kernels_the_busiest_are_told_and_the_others_counted(path: Path) -> None:
    life = Life(path)
    life.run(20, kernels=9)
    life.run(20, busy=1.0, kernels=2)
    report = life.ask(most=3)
    assert [kernel["id"] for kernel in report["kernels"]] == ["k1", "k2"]
    assert (len(report["devices"]), report["omitted"]) == (1, 7)
    life.close()


@pytest.mark.parametrize("label", ["=1+1", "+1", "-1", "@x", " =1", "\t=1", "\r=1"])
def test_no_cell_of_csv_begins_a_formula(label: str) -> None:
    life = Life(None)
    life.run(20, busy=0.5, label=label)
    answer = life.keeper.answer(Question(HOUR, "alice", False), life.wall, life.monotonic)
    rows = list(csv.DictReader(io.StringIO(csv_report(answer, {}), newline="")))
    assert {row["label"] for row in rows if row["kind"] == "kernel"} == {f"'{label}"}
    assert {row["busy_gpus_mean"] for row in rows if row["kind"] == "kernel"} == {"0.5"}
    assert {row["temperature_celsius_mean"] for row in rows} == {""}


def test_kernels_that_are_no_more_leave_room_for_those_that_are(path: Path) -> None:
    life = Life(path, Limits(1 << 20, 100_000))
    status = node(label="a long name " * 400)
    for number in range(150):
        short = tuple(replace(status.kernels[0], kernel_id=f"{number}-{one}") for one in range(2))
        for _ in range(3):
            life.look(replace(status, kernels=short))
            life.go(5)
    life.run(600, busy=0.5)
    assert len(column(life.ask(kernels=("k1",)))) >= 59
    assert path.stat().st_size <= 1 << 20
    life.close()


def test_a_name_that_no_file_can_hold_is_spelled_out_and_stops_nobodys_history(path: Path) -> None:
    life = Life(path)
    life.run(60, busy=0.5, label="a\udcff.ipynb")
    report = life.ask()
    assert report["kernels"][0]["label"] == "a\\udcff.ipynb"
    assert column(report)
    life.close()
