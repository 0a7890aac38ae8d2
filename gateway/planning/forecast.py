"""The forecast for a request that waits: when it starts, from simulated futures. Pure, with a seed.

Each future draws how long the work on the devices keeps them, from the sessions seen so far: the
rest of a cell, pauses between cells, and the cells after them. Requests ahead start in their order.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from random import Random

from .jobs import DEVICE

# Draws for all futures of one forecast, which bounds its time.
MOST_DRAWS = 6_000
MOST_FUTURES, LEAST_FUTURES = 400, 30
# Requests ahead that a future plays; those behind them count as having no estimate.
MOST_AHEAD = 64
# Cells after which a session counts as going on for ever.
_MOST_CELLS = 50
_PAUSES = 500  # that are drawn once for all holders
CHANCE = 0.8
# Bounds of the logarithm of the factor that calibrates medians: a seventh to twenty times.
_LEAST_LOG, _MOST_LOG = -2.0, 3.0
LEAST_MEDIAN = 1.0  # seconds


class Habits:
    """The lengths of cells and of the pauses between them that were seen, seconds.

    Args:
        cells: running times of cells. pauses: times from the end of a cell to the next.
        idle_timeout: seconds after which an idle kernel gives its devices back; 0: at once.
    """

    def __init__(self, cells: Iterable[float], pauses: Iterable[float] = (), idle_timeout: float = 0.0) -> None:
        self.cells = sorted(cells)
        self.pauses = sorted(pauses)
        for name, values in (("cell", self.cells), ("pause", self.pauses)):
            if values and not (values[0] >= 0 and math.isfinite(values[-1])):
                raise ValueError(
                    f"A {name} of {values[0] if values[0] < 0 else values[-1]} s. Give finite times, 0 or more"
                )
        if not self.cells:
            raise ValueError("There is no cell to learn from. Forecast when the first cells have ended")
        self.idle_timeout = idle_timeout
        self._after: list[float] | None = None

    @property
    def after(self) -> list[float]:
        """Draws of how long a kernel keeps its devices after a cell: pauses, and further cells."""
        if self._after is None:
            random = Random(0)
            self._after = [self._idle(random) for _ in range(_PAUSES)] if self.pauses else [self.idle_timeout]
        return self._after

    def _idle(self, random: Random) -> float:
        total = 0.0
        for _ in range(_MOST_CELLS):
            pause = random.choice(self.pauses)
            if pause >= self.idle_timeout:
                return total + self.idle_timeout
            total += pause + random.choice(self.cells)
        return total


@dataclass(frozen=True)
class Holder:
    """Work on devices: its parts (device, milli), and for how long it has run a cell, or been idle."""

    parts: tuple[tuple[int, int], ...]
    seconds: float
    is_busy: bool = True


@dataclass(frozen=True)
class Forecast:
    """Seconds until a request starts. Infinity where most futures do not end.

    Args:
        median: as likely earlier as later.
        within: it starts within so many seconds with a chance of ``CHANCE``.
        low, high: it starts between them with a chance of ``CHANCE``: the error bar.
        next_size: the largest smaller size that would start now, milli; 0 for none.
    """

    median: float
    within: float
    low: float
    high: float
    next_size: int = 0


def forecast(
    devices: int,
    holders: Sequence[Holder],
    ahead: Sequence[int],
    milli: int,
    habits: Habits,
    *,
    seed: int,
    level: float = CHANCE,
    sizes: Iterable[int] = (),
) -> Forecast:
    """Return when a request for so many milli starts behind those *ahead*, on one node of so many devices.

    *level* is the part of the futures that the error bars cover.
    """
    queue = [*ahead[:MOST_AHEAD], milli]
    found = forecasts(devices, holders, queue, habits, seed=seed, level=level)[-1]
    free = _free(devices, holders)
    fitting = [size for size in sizes if size < milli and not ahead and _fit(free, size) is not None]
    return replace(found, next_size=max(fitting, default=0))


def forecasts(
    devices: int,
    holders: Sequence[Holder],
    queue: Sequence[int],
    habits: Habits,
    *,
    seed: int,
    level: float = CHANCE,
) -> list[Forecast]:
    """Return when each request of a queue, in its order, starts: from the same futures for all of them."""
    free, random = _free(devices, holders), Random(seed)
    futures = max(LEAST_FUTURES, min(MOST_FUTURES, MOST_DRAWS // max(1, len(holders) + len(queue) - 1)))
    rests = [_Rest(holder, habits) for holder in holders]
    starts = [_future(list(free), rests, queue, habits, random) for _ in range(futures)]
    return [_forecast(sorted(one[place] for one in starts), level) for place in range(len(queue))]


def _forecast(found: Sequence[float], level: float) -> Forecast:
    tail = (1.0 - level) / 2
    low, high = _quantile(found, tail), _quantile(found, 1.0 - tail)
    return Forecast(_quantile(found, 0.5), _quantile(found, level), low, high)


def _free(devices: int, holders: Sequence[Holder]) -> list[int]:
    free = [DEVICE] * devices
    for holder in holders:
        for device, part in holder.parts:
            free[device] -= part
    return free


class _Rest:
    """The rest of a cell, or of a pause, of one holder."""

    def __init__(self, holder: Holder, habits: Habits) -> None:
        self.parts = holder.parts
        self._elapsed, self._is_busy = max(0.0, holder.seconds), holder.is_busy
        self._seen = habits.cells if holder.is_busy else habits.pauses
        self._first = bisect_right(self._seen, self._elapsed)
        self._count = len(self._seen) - self._first
        self._habits, self._after = habits, habits.after

    def draw(self, random: Random) -> float:
        """Return for how much longer it keeps its devices. Beyond all lengths seen: as long again, on average."""
        chance, elapsed, after = random.random, self._elapsed, self._after
        if self._count:
            rest = self._seen[self._first + int(chance() * self._count)] - elapsed
        else:
            rest = max(elapsed, 1.0) * random.expovariate(1.0)
        if self._is_busy:
            return rest + after[int(chance() * len(after))]
        if elapsed + rest >= self._habits.idle_timeout:
            return max(0.0, self._habits.idle_timeout - elapsed)
        cells = self._habits.cells
        return rest + cells[int(chance() * len(cells))] + after[int(chance() * len(after))]


def _future(
    free: list[int], holders: Sequence[_Rest], queue: Sequence[int], habits: Habits, random: Random
) -> list[float]:
    """Return when each request of the queue starts in one future."""
    ends = [(holder.draw(random), number, holder.parts) for number, holder in enumerate(holders)]
    heapify(ends)
    now, number, starts = 0.0, len(holders), list[float]()
    for milli in queue:
        parts = _fit(free, milli)
        while parts is None:
            if not ends:
                return starts + [math.inf] * (len(queue) - len(starts))
            now, _, freed = heappop(ends)
            for device, part in freed:
                free[device] += part
            parts = _fit(free, milli)
        for device, part in parts:
            free[device] -= part
        number += 1
        starts.append(now)
        heappush(ends, (now + random.choice(habits.cells) + random.choice(habits.after), number, parts))
    return starts


def _fit(free: Sequence[int], milli: int) -> tuple[tuple[int, int], ...] | None:
    """Return parts for a request, whole devices and the fullest device for the rest; None if it does not fit."""
    whole, part = divmod(milli, DEVICE)
    devices = [at for at, left in enumerate(free) if left == DEVICE]
    if len(devices) < whole:
        return None
    taken = tuple((at, DEVICE) for at in devices[len(devices) - whole :])
    if not part:
        return taken
    used = set(devices[len(devices) - whole :])
    rest = [(left, at) for at, left in enumerate(free) if left >= part and at not in used]
    return (*taken, (min(rest)[1], part)) if rest else None


def _quantile(found: Sequence[float], level: float) -> float:
    return found[min(len(found) - 1, max(0, math.ceil(level * len(found)) - 1))]


class Calibration:
    """The times that come true as often as promised, learned from past forecasts.

    The time told is the forecast's median times a factor. After each forecast that came true the
    factor falls by a fiftieth, after each that did not it rises by a twelfth, so that four of five come
    true: also where the futures are all too short, and soon after the work has changed.

    Source of the rule: Angelopoulos, Candès and Tibshirani, "Conformal PID Control for Time Series
    Prediction", NeurIPS 2023 (quantile tracking), here of the logarithm of the factor; after Gibbs and
    Candès, "Adaptive Conformal Inference Under Distribution Shift", NeurIPS 2021.
    """

    def __init__(self, chance: float = CHANCE, step: float = 0.1, start: float = 0.5) -> None:
        """Begin at a careful factor: of the first cells, the long ones have not ended yet."""
        self._chance, self._step = chance, step
        # The logarithm of the factor.
        self._log = start
        self.total = self.came_true = 0

    @property
    def factor(self) -> float:
        """The time within which a request starts with the promised chance, by its median."""
        return math.exp(self._log)

    def told(self, found: Forecast) -> Forecast:
        """Return a forecast with the time within which a request starts with the promised chance."""
        within = max(LEAST_MEDIAN, found.median) * self.factor
        return replace(found, within=within, low=min(found.low, within), high=max(found.high, within))

    def learn(self, *, came_true: bool) -> None:
        """Note whether a request started within the time that was told."""
        self.total += 1
        self.came_true += came_true
        self._log += self._step * (self._chance - came_true)
        self._log = min(_MOST_LOG, max(_LEAST_LOG, self._log))

    @property
    def share(self) -> float:
        """The part of all forecasts that came true."""
        return self.came_true / self.total if self.total else 0.0
