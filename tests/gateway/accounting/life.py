"""A life of the accounting: a test moves the clocks, and says which kernels are there."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jupyter_aliquot.gateway.accounting.amounts import Subject
from jupyter_aliquot.gateway.accounting.book import Book, BookSettings
from jupyter_aliquot.gateway.accounting.days import Calendar, find_zone, period_of
from jupyter_aliquot.gateway.accounting.export import json_report
from jupyter_aliquot.gateway.accounting.looks import NO_DEVICE, Look, Part, PartKey, Place
from jupyter_aliquot.gateway.accounting.policy import ChargePolicy
from jupyter_aliquot.gateway.accounting.query import Question

LOG = logging.getLogger("accounting")
# Tuesday, 10 November 2026, 12:00 UTC.
NOON = 1_794_312_000_000
HOUR = 3_600_000
ALICE = Subject("alice", "vision", "0.25", "normal", "H200")


def part(
    kernel_id: str = "k1",
    subject: Subject = ALICE,
    hundredths: int = 25,
    place: Place = Place.ON_GPU,
    began: int = NOON,
    device: str = "GPU-1",
    **other: Any,
) -> Part:
    return Part(PartKey(kernel_id, device), subject, hundredths, place, began, **other)


def request(kernel_id: str = "k1", hundredths: int = 25, began: int = NOON, subject: Subject = ALICE) -> Part:
    return Part(PartKey(kernel_id, NO_DEVICE), subject, hundredths, Place.WAITING, began, began)


def settings(path: Path | None, zone: str = "UTC", **other: Any) -> BookSettings:
    made = BookSettings(path, Calendar(find_zone(zone), zone), ChargePolicy(), 731.0, 64 << 20, 10.0)
    return replace(made, **other)


@dataclass
class Life:
    """A book and its clocks, in milliseconds."""

    settings: BookSettings
    wall: int = NOON
    monotonic: int = 500_000
    boot: str = "boot 1"
    agent: str = "1.000000"
    periods: tuple[str, ...] = ()
    book: Book = field(init=False)

    def __post_init__(self) -> None:
        self.book = Book(self.settings, LOG)

    def begin(self) -> None:
        """Start a gateway on the file of the last one, which ends and writes nothing more."""
        self.book.kept.close()
        self.book = Book(self.settings, LOG)

    def restart(self) -> None:
        self.book.close(self.monotonic / 1000)
        self.begin()

    def go(self, milliseconds: int) -> None:
        self.wall += milliseconds
        self.monotonic += milliseconds

    def look(
        self,
        parts: Iterable[Part] | None = (),
        waiting: Iterable[Part] = (),
        away: frozenset[str] = frozenset(),
        *,
        has_only_new: bool = False,
    ) -> None:
        """Look once. Parts without an agent are those of the present run of this machine's."""
        seen = None if parts is None else tuple(replace(one, agent=one.agent or self.agent) for one in parts)
        look = Look(self.wall, self.monotonic, self.boot, seen, tuple(waiting), away, has_only_new)
        self.book.take(look, self.periods)

    def ask(self, *by: str, span: str = "year", former: dict[str, str] | None = None) -> dict[str, Any]:
        """Return the report of the present year, or of another period."""
        calendar = self.settings.calendar
        days = period_of(calendar.day_of(self.wall), span)
        question = Question(days, by or ("user",), former=former or {})
        answer = self.book.answer(question, self.monotonic / 1000)
        report: dict[str, Any] = json.loads(json_report(answer, calendar, "wall_time", ()))
        return report

    def hours(self, *by: str, **other: Any) -> dict[str, Any]:
        """Return the GPU-hours of each row, by its name."""
        rows = self.ask(*by, **other)["rows"]
        return {"/".join(str(row[name]) for name in by or ("user",)): row["gpu_hours"] for row in rows}
