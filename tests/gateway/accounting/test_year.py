"""A simulated year against an independent reckoning.

Kernels of some users come, work, are swapped out, change their size and end, and requests wait. The
gateway stops and is killed, the agent is restarted and away, the clock is set, days have 23 and 25
hours, a team is renamed. The reckoning knows the true times and counters, hour by hour, and none of
the accounting's code but the names of the places. Times are compared by day, and GPU time by year:
of what was used while the agent was away, no day is known.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

import pytest

from jupyter_aliquot.gateway.accounting.amounts import UNITS_PER_HOUR, Subject
from jupyter_aliquot.gateway.accounting.looks import Part, Place

from .life import HOUR, Life, part, request, settings

ZONE = "Europe/Berlin"
USERS = {"alice": "vision", "bob": "vision", "carol": "speech", "dan": "", "erin": "speech"}
SIZES = {"0.25": 25, "0.5-8g": 50, "1": 100, "2.5": 250}
MODELS = ("NVIDIA H200", "NVIDIA A100")
# 4 January 2026, 00:00 there: a clock that is late by two days is in the same year.
START = 1_767_481_200_000
# Of one step.
HOURS = 4
RENAMED_AT = START + 120 * 24 * HOUR


@dataclass
class Kernel:
    """A kernel of the simulation, at its true state."""

    name: str
    subject: Subject
    hundredths: int
    place: Place
    began: int
    own: int = 0
    # What the present agent has counted; it begins with the agent.
    told: int = 0


@dataclass
class Reckoning:
    """The true amounts, by day, user, present team and model, in the accounting's units."""

    used: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    held: Counter[tuple[str, str, str, str, str]] = field(default_factory=Counter)

    def add(self, wall: int, length: int, kernel: Kernel, used: int) -> None:
        day = datetime.fromtimestamp(wall / 1000, ZoneInfo(ZONE)).date().isoformat()
        team = "sight" if kernel.subject.team == "vision" else kernel.subject.team
        key = (kernel.subject.user, team, kernel.subject.model)
        self.used[key] += 100 * used
        self.held[(day, *key, kernel.place.value)] += kernel.hundredths * length


class Year:
    """The machine, the agent and the kernels, hour by hour."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = Random(seed)
        self.life = Life(settings(path, zone=ZONE, write_seconds=0.0), wall=START)
        self.truth = Reckoning()
        self.kernels: dict[str, Kernel] = {}
        self.is_away = False
        self.count = 0
        # How far the wall clock is ahead of the true time.
        self.error = 0
        self.life.look()

    def step(self) -> None:
        """Let some hours pass as the kernels are, and look; then let something change, and look again."""
        for kernel in self.kernels.values():
            used = self.random.choice((0, HOUR // 8, HOUR)) if kernel.place is Place.ON_GPU else 0
            kernel.own += HOURS * used
            kernel.told += HOURS * used
            for hour in range(HOURS):
                self.truth.add(self.life.wall + hour * HOUR, HOUR, kernel, used)
        self.life.go(HOURS * HOUR)
        self.look()
        if not self.is_away:
            self.change()
            self.look()
        self.trouble()

    def look(self) -> None:
        parts = [self.part_of(one) for one in self.kernels.values() if one.place is not Place.WAITING]
        waiting = [
            request(one.name, one.hundredths, one.began, one.subject)
            for one in self.kernels.values()
            if one.place is Place.WAITING
        ]
        self.life.look(None if self.is_away else parts, waiting)

    def part_of(self, kernel: Kernel) -> Part:
        return part(kernel.name, kernel.subject, kernel.hundredths, kernel.place, kernel.began, own=kernel.told)

    def change(self) -> None:
        """Start a kernel, end one, swap one out or in, or give one another size."""
        choice = self.random.random()
        if choice < 0.25 and len(self.kernels) < 12:
            self.begin()
        elif choice < 0.45 and self.kernels:
            self.end(self.random.choice(sorted(self.kernels)))
        elif choice < 0.7 and self.kernels:
            kernel = self.kernels[self.random.choice(sorted(self.kernels))]
            self.move(kernel)
        elif choice < 0.8 and self.kernels:
            kernel = self.kernels[self.random.choice(sorted(self.kernels))]
            size = self.random.choice(sorted(SIZES))
            if kernel.place is not Place.WAITING:
                kernel.subject, kernel.hundredths = kernel.subject._replace(size=size), SIZES[size]

    def begin(self) -> None:
        self.count += 1
        user = self.random.choice(sorted(USERS))
        team, size = USERS[user], self.random.choice(sorted(SIZES))
        if team == "vision" and self.life.wall - self.error >= RENAMED_AT:
            team = "sight"
        subject = Subject(user, team, size, self.random.choice(("normal", "low")), self.random.choice(MODELS))
        place = self.random.choice((Place.ON_GPU, Place.WAITING))
        self.kernels[f"k{self.count}"] = Kernel(f"k{self.count}", subject, SIZES[size], place, self.life.wall)

    def end(self, name: str) -> None:
        del self.kernels[name]

    def move(self, kernel: Kernel) -> None:
        if kernel.place is Place.WAITING:
            # Its request is granted: the kernel begins.
            kernel.place, kernel.began = Place.ON_GPU, self.life.wall
        else:
            kernel.place = Place.SWAPPED_OUT if kernel.place is Place.ON_GPU else Place.ON_GPU

    def trouble(self) -> None:
        """Stop or kill the gateway, restart the agent or let it be away, or set the clock."""
        choice = self.random.random()
        if choice < 0.03:
            self.life.restart()
        elif choice < 0.06:
            self.life.begin()
        elif choice < 0.09:
            self.is_away = not self.is_away
        elif choice < 0.11 and not self.is_away:
            self.life.agent += "'"
            for kernel in self.kernels.values():
                kernel.told = 0
        elif choice < 0.13 and not self.is_away:
            step = self.random.choice((-50, -3, 2, 30)) * HOUR
            step = -self.error if self.error else step
            self.error += step
            self.life.wall += step


def counted(life: Life) -> Reckoning:
    """Return what the accounting has, in the form of the reckoning."""
    found = Reckoning()
    for row in life.ask("day", "user", "team", "model", former={"vision": "sight"}, span="year")["rows"]:
        for place in Place:
            key = (row["day"], row["user"], row["team"], row["model"], place.value)
            found.held[key] = units(row["gpu_hours"][place.value])
    for row in life.ask("user", "team", "model", former={"vision": "sight"}, span="year")["rows"]:
        found.used[(row["user"], row["team"], row["model"])] = units(row["gpu_hours"]["working"])
    return found


def units(hours: float) -> int:
    """Return the thousands of units of a figure: the report's decimals are finer."""
    return 1000 * round(hours * UNITS_PER_HOUR / 1000)


def in_report(counter: Mapping[tuple[str, ...], int]) -> dict[tuple[str, ...], int]:
    return {key: amount // 1000 for key, amount in counter.items() if amount}


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A file in memory: the year has thousands of writes, each of which waits for a disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder) / "accounting.sqlite"


@pytest.mark.parametrize("seed", [1, 2])
def test_a_year_is_counted_as_an_independent_reckoning_counts_it(memory_path: Path, seed: int) -> None:
    year = Year(memory_path, seed)
    for _ in range(359 * 24 // HOURS):
        year.step()
    year.is_away = False
    year.look()
    found = counted(year.life)
    assert in_report(found.held) == in_report(year.truth.held)
    assert in_report(found.used) == in_report(year.truth.used)
    assert year.life.book.problems == ()
    year.life.restart()
    assert memory_path.stat().st_size < 4 << 20
