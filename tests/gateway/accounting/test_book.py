"""The book and its file: damage, a full disk, a file that is gone, old days, charges, former names."""

from __future__ import annotations

import logging
import sqlite3
import stat
from pathlib import Path

import pytest

from jupyter_aliquot.gateway.accounting.looks import Place
from jupyter_aliquot.gateway.accounting.policy import ChargePolicy
from jupyter_aliquot.gateway.base.private_database import files_set_aside

from .life import ALICE, HOUR, NOON, Life, part, settings

DAY = 24 * HOUR


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "accounting.sqlite"


@pytest.fixture
def life(path: Path) -> Life:
    made = Life(settings(path))
    made.look()
    made.look([part(hundredths=100, own=0)])
    return made


def work(life: Life, hours: int = 1, used: int = 0) -> None:
    """Let a whole GPU be held for some hours, with a look each hour."""
    for _ in range(hours):
        life.go(HOUR)
        life.look([part(hundredths=100, own=used)])


def fill(life: Life) -> sqlite3.Connection:
    """Let the file take no page more, as on a full disk. Return its connection."""
    file = life.book.kept.file
    assert file is not None
    pages = file.database.execute("PRAGMA page_count").fetchone()[0]
    file.database.execute(f"PRAGMA max_page_count = {pages}")
    return file.database


def test_the_file_is_for_its_owner_alone(life: Life, path: Path) -> None:
    work(life)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_full_disk_is_told_and_counting_goes_on(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    work(life)
    database = fill(life)
    users = [f"a user with a long name {n}" * 20 for n in range(60)]
    many = [part(f"k{n}", ALICE._replace(user=user), 100, began=life.wall) for n, user in enumerate(users)]
    life.look(many)
    with caplog.at_level(logging.INFO, "accounting"):
        for _ in range(3):
            life.go(HOUR)
            life.look(many)
    assert caplog.text.count("accounting=not_written") == 1
    [problem] = life.book.problems
    assert "database or disk is full" in problem
    assert "It counts on in memory" in problem
    # Answers have what no file has yet.
    assert life.ask()["total"]["on_gpu"] == 1.0 + 3 * 60
    assert life.ask("team")["rows"][0]["gpu_hours"]["on_gpu"] == 1.0 + 3 * 60
    database.execute("PRAGMA max_page_count = 100000")
    life.go(HOUR)
    life.look(many)
    assert life.book.problems == ()
    life.restart()
    assert life.ask()["total"]["on_gpu"] == 1.0 + 4 * 60


def test_idle_time_of_what_no_file_has_is_that_of_whole_rows(life: Life) -> None:
    """A row of 1 hour on the GPU, idle, and one of 1 hour, all used, are half idle together."""
    life.look([part(hundredths=100, own=0)])
    work(life)
    database = fill(life)
    database.execute("PRAGMA query_only = ON")
    work(life, used=HOUR)
    in_memory = life.ask()["total"]
    database.execute("PRAGMA query_only = OFF")
    database.execute("PRAGMA max_page_count = 100000")
    work(life, used=HOUR)
    assert (in_memory["on_gpu"], in_memory["idle"]) == (2.0, 1.0)
    assert (life.ask()["total"]["on_gpu"], life.ask()["total"]["idle"]) == (3.0, 2.0)


@pytest.mark.parametrize("damage", ["not a database" * 400, ""])
def test_a_damaged_file_is_set_aside_told_and_counting_goes_on(path: Path, damage: str) -> None:
    if damage:
        path.write_text(damage)
    else:
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE another_programs (a)")
    before = path.read_bytes()
    life = Life(settings(path))
    life.look()
    life.look([part(hundredths=100, own=0)])
    work(life, 2)
    assert life.ask()["total"]["on_gpu"] == 2.0
    [aside] = path.parent.glob("accounting.sqlite.*-*")
    assert aside.read_bytes() == before
    assert [str(aside) in problem for problem in life.book.problems] == [True]
    # The next gateway says it, too, until the file is gone.
    life.restart()
    work(life)
    assert len(life.book.problems) == 1
    aside.unlink()
    life.restart()
    work(life)
    assert life.book.problems == ()
    assert life.ask()["total"]["on_gpu"] == 4.0


def test_damage_while_the_file_is_used_loses_the_earlier_days_alone(life: Life, path: Path) -> None:
    work(life)
    path.write_bytes(b"\xff" * path.stat().st_size)
    work(life, 3)
    assert life.ask()["total"]["on_gpu"] >= 2.0
    [aside] = files_set_aside(path)
    assert str(aside) in life.book.problems[0]


def test_a_file_that_was_removed_is_begun_anew_and_no_hour_is_counted_twice(life: Life, path: Path) -> None:
    work(life, 2)
    path.unlink()
    work(life, 3)
    life.restart()
    work(life)
    assert life.ask()["total"]["on_gpu"] == 4.0


def test_a_file_that_cannot_be_made_is_told_and_counting_goes_on(tmp_path: Path) -> None:
    life = Life(settings(tmp_path / "not there" / "accounting.sqlite"))
    life.look()
    life.look([part(hundredths=100, own=0)])
    work(life, 2)
    assert life.ask()["total"]["on_gpu"] == 2.0
    assert "not there" in life.book.problems[0]
    (tmp_path / "not there").mkdir()
    work(life)
    assert life.book.problems == ()
    assert life.ask()["total"]["on_gpu"] == 3.0


def test_without_a_state_folder_it_counts_in_memory() -> None:
    life = Life(settings(None))
    life.look()
    life.look([part(hundredths=100, own=0)])
    work(life, 2)
    assert (life.ask()["total"]["on_gpu"], life.book.problems) == (2.0, ())


def test_days_that_are_too_old_go_and_a_wrong_clock_takes_few(path: Path) -> None:
    life = Life(settings(path, keep_days=10.0))
    life.look()
    life.look([part(hundredths=100, own=0)])
    for _ in range(30):
        life.go(DAY)
        life.look([part(hundredths=100, own=0)])
    with sqlite3.connect(path) as database:
        [(days,)] = database.execute("SELECT COUNT(DISTINCT day) FROM use")
    assert 10 <= days <= 12
    life.wall += 5000 * DAY
    work(life)
    with sqlite3.connect(path) as database:
        [(left,)] = database.execute("SELECT COUNT(DISTINCT day) FROM use")
    assert left >= days, "nothing goes in the first hour after the clock was set"


def test_a_file_at_its_limit_loses_its_oldest_days(path: Path) -> None:
    life = Life(settings(path, most_bytes=200 << 10))
    life.look()
    for day in range(40):
        users = [f"user {n} of day {day}" for n in range(100)]
        kernels = [part(f"{day}-{user}"[:36], ALICE._replace(user=user), began=life.wall) for user in users]
        life.look(kernels)
        life.go(DAY)
        life.look(kernels)
    assert path.stat().st_size <= 400 << 10
    days = life.hours("day")
    assert max(days) == "2026-12-20"
    assert min(days) > "2026-11-15"


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        (ChargePolicy("wall_time"), 3.0),
        (ChargePolicy("on_gpu"), 1.0),
        (ChargePolicy("use"), 0.5),
        (ChargePolicy("wall_time", {"H200": 2.5, "H2": 100.0}), 7.5),
        (ChargePolicy("wall_time", {"A100": 2.0}, {"normal": 0.5, "low": 0.0}), 1.5),
        (ChargePolicy("use", {}, {"normal": 0.0}), 0.0),
    ],
)
def test_a_charge_is_what_counts_times_its_weights(path: Path, policy: ChargePolicy, want: float) -> None:
    life = Life(settings(path, policy=policy))
    life.look()
    life.look([part(hundredths=100, own=0)])
    work(life, used=HOUR // 2)
    out = part(hundredths=100, own=HOUR // 2, place=Place.SWAPPED_OUT, since=life.wall)
    life.look([out])
    life.go(2 * HOUR)
    life.look([out])
    assert life.ask()["total"]["charged"] == want


def test_a_charge_stays_when_the_policy_changes(life: Life, path: Path) -> None:
    work(life)
    life.book.close(life.monotonic / 1000)
    life.settings = settings(path, policy=ChargePolicy("wall_time", {"H200": 10.0}))
    life.begin()
    work(life)
    assert life.ask()["total"]["charged"] == 1.0 + 10.0


def test_a_team_that_was_renamed_has_the_time_of_its_former_names(life: Life) -> None:
    work(life)
    sight = ALICE._replace(team="sight")
    life.look([part(hundredths=100, own=0, subject=sight)])
    life.go(HOUR)
    life.look([part(hundredths=100, own=0, subject=sight)])
    assert {name: one["on_gpu"] for name, one in life.hours("team").items()} == {"sight": 1.0, "vision": 1.0}
    renamed = life.hours("team", former={"vision": "sight"})
    assert {name: one["on_gpu"] for name, one in renamed.items()} == {"sight": 2.0}


def test_days_of_another_time_zone_are_its_own(path: Path) -> None:
    life = Life(settings(path, zone="Asia/Kathmandu"), wall=NOON + 4 * HOUR)
    life.look()
    life.look([part(hundredths=100, own=0)])
    work(life, 4)
    # Midnight there is 18:15 UTC.
    hours = life.hours("day")
    assert {name: one["on_gpu"] for name, one in hours.items()} == {"2026-11-10": 2.25, "2026-11-11": 1.75}
