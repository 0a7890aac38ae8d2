"""Divide samples into steps of equal length. Pure; keeps no file.

A step has the minimum, mean and maximum of each figure, weighted by the time for which the figure is
known; an amount's mean is over all that is known of the step. A step starts at a multiple of its
length since the epoch, so that steps of all runs of a gateway fit together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from jupyter_aliquot.gateway.base.gil import unhurried

from .counters import Figure
from .samples import AMOUNTS, FIGURES, Key, Sample, Subject


@dataclass(frozen=True)
class Range:
    """A range for a question: how far it goes back, and the length of its steps."""

    name: str
    step_seconds: int
    count: int

    @property
    def seconds(self) -> int:
        return self.step_seconds * self.count

    def start(self, now: float) -> int:
        """Return the start of its first step; the last step is the one that ``now`` is in."""
        return step_start(now, self.step_seconds) - (self.count - 1) * self.step_seconds


# The two resolutions: for the last hour, and for the last week.
FINE_SECONDS, COARSE_SECONDS = 10, 900
HOUR = Range("hour", FINE_SECONDS, 360)
DAY = Range("day", COARSE_SECONDS, 96)
WEEK = Range("week", COARSE_SECONDS, 672)
RANGES = {each.name: each for each in (HOUR, DAY, WEEK)}


@dataclass(frozen=True)
class Point:
    """One subject in one step. ``seconds``: how much of the step is known.

    ``least``, ``mean``, ``most`` are in the order of FIGURES.
    """

    subject: Subject
    at: int
    seconds: float
    least: tuple[Figure, ...]
    mean: tuple[Figure, ...]
    most: tuple[Figure, ...]


def step_start(moment: float, step_seconds: int) -> int:
    """Return the start of the step that this moment is in."""
    return math.floor(moment / step_seconds) * step_seconds


def parts(end: float, seconds: float, step_seconds: int) -> Iterator[tuple[int, float]]:
    """Divide a stretch of time among its steps; yield each step's start and the seconds in it."""
    begin = end - seconds
    at = step_start(begin, step_seconds)
    while at < end:
        inside = min(end, at + step_seconds) - max(begin, at)
        if inside > 0:
            yield at, inside
        at += step_seconds


class OpenSteps:
    """The steps of all subjects, as far as they are in no file yet."""

    def __init__(self, step_seconds: int) -> None:
        self._step_seconds = step_seconds
        self._sums: dict[tuple[int, Key], _Sums] = {}

    def parts(self, end: float, seconds: float) -> list[tuple[int, float]]:
        """Divide the ``seconds`` before ``end`` among the steps."""
        return list(parts(end, seconds, self._step_seconds))

    def add(self, sample: Sample, divided: Iterable[tuple[int, float]]) -> None:
        """Add a sample of the time that `parts` divided."""
        key = sample.subject.key
        for at, inside in divided:
            sums = self._sums.get((at, key))
            if sums is None:
                sums = self._sums[at, key] = _Sums(sample.subject)
            sums.add(sample, inside)

    def take(self) -> list[Point]:
        """Return what was added since the last call; steps that grow on have another part later."""
        taken, self._sums = self._sums, {}
        return [sums.point(at) for (at, _), sums in unhurried(taken.items())]


class _Sums:
    """One subject in one step that still grows.

    ``figures`` has four numbers for each figure: the seconds for which it is known, its sum, minimum
    and maximum. They are in one list, for the collector looks at each list of a thousand kernels.
    """

    __slots__ = ("figures", "seconds", "subject")

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.seconds = 0.0
        self.figures = [0.0, 0.0, math.inf, -math.inf] * len(FIGURES)

    def add(self, sample: Sample, seconds: float) -> None:
        self.subject = sample.subject
        self.seconds += seconds
        figures, place = self.figures, 0
        for value in sample.values:
            if value is not None:
                figures[place] += seconds
                figures[place + 1] += value * seconds
                figures[place + 2] = min(figures[place + 2], value)
                figures[place + 3] = max(figures[place + 3], value)
            place += 4

    def point(self, at: int) -> Point:
        known, sums, least, most = (self.figures[column::4] for column in range(4))
        known = [self.seconds if one and name in AMOUNTS else one for name, one in zip(FIGURES, known, strict=True)]
        return Point(
            subject=self.subject,
            at=at,
            seconds=self.seconds,
            least=tuple(value if seconds else None for value, seconds in zip(least, known, strict=True)),
            mean=tuple(value / seconds if seconds else None for value, seconds in zip(sums, known, strict=True)),
            most=tuple(value if seconds else None for value, seconds in zip(most, known, strict=True)),
        )
