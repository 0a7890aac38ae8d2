"""How often the forecast of a start comes true: sessions of notebooks on too few GPUs."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from random import Random

from report import Row, at_most, between

from jupyter_aliquot.gateway.planning.forecast import Calibration, Habits, Holder, forecast

FOLDER = Path("notebookos")
WANT_SHARE = (75.0, 85.0)
WANT_MS = 20.0
LEAST_SEEN = 20  # cells that have ended before the first forecast
GPUS_PER_100 = 20  # GPUs for a hundred made-up sessions
KERNELS = 200
ROUNDS = 5


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


def replay(sessions: Sequence[Session], gpus: int) -> tuple[Calibration, list[tuple[float, float]]]:
    """Play the sessions, first come, first served; return how forecasts did, and (told, waited) of each.

    A session that waits comes back later: its next cell comes its pause after the end of the last.
    Each forecast knows the cells that have ended before it.
    """
    calibration, waits = Calibration(), list[tuple[float, float]]()
    events: list[tuple[float, int, int, int]] = []  # time, 0 end or 1 arrival, session, cell
    for at, session in enumerate(sessions):
        heappush(events, (session.start, 1, at, 0))
    free, running, seen, pauses = gpus, dict[tuple[int, int], float](), list[float](), list[float]()
    queue: list[tuple[int, int]] = []
    told: dict[tuple[int, int], tuple[float, float]] = {}
    while events:
        now, is_arrival, at, cell = heappop(events)
        pause, seconds, wanted = sessions[at].cells[cell]
        if is_arrival:
            queue.append((at, cell))
            pauses.append(pause)
        else:
            del running[at, cell]
            free += wanted
            seen.append(seconds)
            if cell + 1 < len(sessions[at].cells):
                heappush(events, (now + sessions[at].cells[cell + 1][0], 1, at, cell + 1))
        while queue and sessions[queue[0][0]].cells[queue[0][1]][2] <= free:
            first = queue.pop(0)
            _, length, used = sessions[first[0]].cells[first[1]]
            free -= used
            running[first] = now
            heappush(events, (now + length, 0, *first))
            if first in told:
                began, within = told.pop(first)
                waits.append((within, now - began))
                calibration.learn(came_true=now - began <= within)
        is_told = is_arrival and bool(queue) and queue[-1] == (at, cell) and len(seen) >= LEAST_SEEN
        if is_told:
            ahead = [sessions[one].cells[number][2] * 1000 for one, number in queue[:-1]]
            found = forecast(
                gpus,
                _holders(sessions, running, now),
                ahead,
                wanted * 1000,
                Habits(seen, pauses),
                seed=len(waits),
                level=calibration.level,
            )
            told[at, cell] = (now, found.within)
    return calibration, waits


def _holders(sessions: Sequence[Session], running: dict[tuple[int, int], float], now: float) -> list[Holder]:
    found, device = [], 0
    for (at, cell), began in running.items():
        gpus = sessions[at].cells[cell][2]
        found.append(Holder(tuple((device + one, 1000) for one in range(gpus)), now - began))
        device += gpus
    return found


def rows(data: Path, sessions: int, trace_gpus: Sequence[int], told: Callable[[str], None]) -> Iterator[Row]:
    """Yield the share of forecasts that came true, by trace and GPUs, and the time of one forecast."""
    runs = [("made-up sessions", made_up_sessions(sessions), max(4, sessions * GPUS_PER_100 // 100))]
    if (data / FOLDER).is_dir():
        runs += [("notebook trace", read_sessions(data), gpus) for gpus in trace_gpus]
    else:
        print(f"plan: the trace {data / FOLDER} is not there; name its folder by --data")
    for name, played, gpus in runs:
        told(f"forecasts, {name}, {gpus} GPUs")
        calibration, waits = replay(played, gpus)
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
