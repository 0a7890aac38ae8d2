"""How often the forecast of a start comes true: sessions of notebooks on too few GPUs."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from pathlib import Path
from random import Random

from report import Row, at_most, between

from jupyter_aliquot.gateway.planning.forecast import MOST_AHEAD, Calibration, Forecast, Habits, Holder, forecast

FOLDER = Path("notebookos")
WANT_SHARE = (75.0, 85.0)
WANT_MS = 20.0
LEAST_SEEN = 20  # cells that have ended before the first forecast
GPUS_PER_100 = 20  # GPUs for a hundred made-up sessions
KERNEL_GPUS_PER_100 = 46  # and for a thousand made-up kernels
KERNELS = 200
ROUNDS = 5


# A session and the number of a cell in it.
Cell = tuple[int, int]


@dataclass
class Session:
    """The cells of one notebook: (seconds, GPUs), each after a pause in seconds."""

    start: float
    cells: list[tuple[float, float, int]] = field(default_factory=list)


def read_sessions(data: Path) -> list[Session]:
    """Return the sessions with cells that use GPUs; the pause is that between such cells."""
    found: dict[str, Session] = {}
    ends: dict[str, float] = {}
    with open(data / FOLDER / "idlt_june1-2_events.csv", newline="") as file:
        for row in csv.DictReader(file):
            gpus, start, length = int(row["gpus"]), 60.0 * float(row["start_min"]), 60.0 * float(row["duration_min"])
            if gpus:
                session = found.setdefault(row["session"], Session(start))
                pause = max(0.0, start - ends.get(row["session"], start))
                session.cells.append((pause, length, gpus))
                ends[row["session"]] = start + length
    return list(found.values())


def made_up_sessions(count: int, seed: int = 1) -> list[Session]:
    """Return sessions of log-normal cells and pauses, of seconds to minutes."""
    random = Random(seed)
    found = []
    for _ in range(count):
        cells = [
            (random.lognormvariate(4.0, 1.2), random.lognormvariate(4.5, 1.3), random.choice((1, 1, 1, 2, 4)))
            for _ in range(random.randint(5, 40))
        ]
        found.append(Session(random.uniform(0.0, 20_000.0), cells))
    return found


def made_up_kernels(count: int, seed: int = 1) -> list[Session]:
    """Return kernels that keep their GPU for minutes to hours: what the gateway learns from."""
    random = Random(seed)
    return [
        Session(random.uniform(0.0, 100_000.0), [(0.0, random.lognormvariate(7.5, 1.2), random.choice((1, 1, 1, 2)))])
        for _ in range(count)
    ]


class Replay:
    """Sessions on so many GPUs, first come, first served, and a forecast for each cell that waits.

    A session that waits comes back later: its next cell comes its pause after the end of the last.
    A forecast knows the cells that have ended before it.
    """

    def __init__(self, sessions: Sequence[Session], gpus: int) -> None:
        self._sessions, self._gpus, self._free = sessions, gpus, gpus
        self.calibration = Calibration()
        # (time told, time waited) of each cell that waited.
        self.waits: list[tuple[float, float]] = []
        # Time, arrival or end, session, cell.
        self._events = [(session.start, True, at, 0) for at, session in enumerate(sessions)]
        self._running: dict[Cell, float] = {}
        self._queue: list[Cell] = []
        self._seen: list[float] = []
        self._pauses: list[float] = []
        # A cell that waits to when it was told, and within which time.
        self._told: dict[Cell, tuple[float, float]] = {}
        self._late: set[Cell] = set()
        # Cells that wait for their forecast, in their order.
        self._untold: list[Cell] = []

    def run(self) -> Replay:
        """Play until the last cell has ended."""
        heapify(self._events)
        while self._events:
            now, is_arrival, at, number = heappop(self._events)
            cell = (at, number)
            self._note_late(now)
            if is_arrival:
                self._queue.append(cell)
                self._pauses.append(self._of(cell)[0])
            else:
                self._end(cell, now)
            while self._queue and self._of(self._queue[0])[2] <= self._free:
                self._start(self._queue.pop(0), now)
            if is_arrival and self._queue and self._queue[-1] == cell and len(self._seen) >= LEAST_SEEN:
                self._untold.append(cell)
            self._tell(now)
        return self

    def _tell(self, now: float) -> None:
        """Make the forecast of each cell that has few enough ahead, as the gateway does."""
        while self._untold and (place := self._queue.index(self._untold[0])) < MOST_AHEAD:
            told = self._forecast(now, place)
            self._told[self._untold.pop(0)] = (now, told.within)

    def _of(self, cell: Cell) -> tuple[float, float, int]:
        return self._sessions[cell[0]].cells[cell[1]]

    def _end(self, cell: Cell, now: float) -> None:
        _, seconds, gpus = self._of(cell)
        del self._running[cell]
        self._free += gpus
        self._seen.append(seconds)
        following = (cell[0], cell[1] + 1)
        if following[1] < len(self._sessions[cell[0]].cells):
            heappush(self._events, (now + self._of(following)[0], True, *following))

    def _start(self, cell: Cell, now: float) -> None:
        _, seconds, gpus = self._of(cell)
        self._free -= gpus
        self._running[cell] = now
        heappush(self._events, (now + seconds, False, *cell))
        if cell in self._told:
            began, within = self._told.pop(cell)
            self.waits.append((within, now - began))
            if cell not in self._late:
                self.calibration.learn(came_true=now - began <= within)

    def _note_late(self, now: float) -> None:
        """Learn that a forecast was wrong as soon as its time is over, not when the cell starts."""
        for cell, (began, within) in self._told.items():
            if now - began > within and cell not in self._late:
                self._late.add(cell)
                self.calibration.learn(came_true=False)

    def _forecast(self, now: float, place: int) -> Forecast:
        holders, device = list[Holder](), 0
        for cell, began in self._running.items():
            gpus = self._of(cell)[2]
            holders.append(Holder(tuple((device + one, 1000) for one in range(gpus)), now - began))
            device += gpus
        *ahead, wanted = [1000 * self._of(cell)[2] for cell in self._queue[: place + 1]]
        # Cells that still run have lasted at least so long; without them the long ones would be missed.
        habits = Habits([*self._seen, *(now - began for began in self._running.values())], self._pauses)
        found = forecast(self._gpus, holders, ahead, wanted, habits, seed=len(self.waits))
        return self.calibration.told(found)


def rows(data: Path, sessions: int, trace_gpus: Sequence[int], told: Callable[[str], None]) -> Iterator[Row]:
    """Yield the share of forecasts that came true, by trace and GPUs, and the time of one forecast."""
    runs = [("made-up sessions", made_up_sessions(sessions), max(4, sessions * GPUS_PER_100 // 100))]
    # Their work is that of nine tenths of the GPUs while they come.
    runs += [("made-up kernels", made_up_kernels(10 * sessions), max(4, sessions * KERNEL_GPUS_PER_100 // 100))]
    if (data / FOLDER).is_dir():
        runs += [("notebook trace", read_sessions(data), gpus) for gpus in trace_gpus]
    else:
        print(f"plan: the trace {data / FOLDER} is not there; name its folder by --data")
    for name, played, gpus in runs:
        told(f"forecasts, {name}, {gpus} GPUs")
        done = Replay(played, gpus).run()
        calibration, waits = done.calibration, done.waits
        label = f"forecasts, {name}, {gpus} GPUs"
        yield Row(f"{label}: requests that waited", calibration.total, "requests")
        yield between(f"{label}: started within the time told", 100 * calibration.share, "%", *WANT_SHARE)
        finite = sorted(within - waited for within, waited in waits if within < math.inf)
        yield Row(f"{label}: time told beyond the wait, median", finite[len(finite) // 2] if finite else 0.0, "s")
    told("the time of a forecast")
    yield at_most(f"a forecast for a node of {KERNELS} kernels", _milliseconds(), "ms", WANT_MS)


def _milliseconds() -> float:
    random = Random(3)
    holders = [Holder(((at % 8, 40),), 60 * random.random(), at % 2 == 0) for at in range(KERNELS)]
    cells, pauses = ([random.lognormvariate(4, 1) for _ in range(500)] for _ in range(2))
    habits = Habits(cells, pauses, 300.0)
    forecast(8, holders, [500, 250], 1000, habits, seed=1)
    times = []
    for seed in range(ROUNDS):
        began = time.process_time()
        forecast(8, holders, [500, 250], 1000, habits, seed=seed)
        times.append(time.process_time() - began)
    return 1000 * min(times)
