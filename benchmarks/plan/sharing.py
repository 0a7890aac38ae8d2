"""Fifty production and fifty opportunistic jobs on shared GPUs, as in TGS' experiment, in simulated time.

Completion times with each GPU for one job (exclusive), two jobs per GPU without control
(co-execution), and two under a controller. The speeds of jobs that share a GPU are those that the
plant of ``benchmarks/compute`` measures for the pair and the controller. TGS' own trace is not
published: lengths are those of Philly's jobs for one GPU, where the data are there.

Source: Wu et al., "Transparent GPU Sharing in Container Clouds for Deep Learning Workloads", NSDI 2023.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from random import Random
from statistics import mean

from compute.pairs import measure
from report import Row, at_most

FOLDER = Path("philly-derived")
# The published changes of mean completion time, per cent.
WANT_OPPORTUNISTIC, WANT_PRODUCTION = -52.0, -21.0
PRODUCTION = ("resnet50.idle", "bert.idle", "diffusion.idle", "llm.idle", "notebook.idle")
OPPORTUNISTIC = ("gpt2", "gnn", "dlrm", "frames")
# The bound: production as alone, and all of its measured idle time for the other job.
BOUND = "all idle time, a bound"
# The queue order srtf, for which users estimate how long a job runs; here they know.
SHORTEST = "ours, shortest first"
CONTROLLERS = {"ours": "measured", SHORTEST: "measured", "TGS": "tgs", "co-execution": "none", BOUND: "measured"}
PLANNED = ("ours", SHORTEST, BOUND)
GPUS = 8
# Parts of a GPU that each pair leaves idle, for the sweep.
IDLE = (0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 1.0)
LOADS = (2.0, 5.0)  # the demand of all jobs, while they arrive, times the GPUs; the last one is judged
SEEDS = range(1, 11)

measured = cache(measure)

# (production, opportunistic) to the speeds of both while they share a GPU; alone each has 1.
Speeds = Mapping[tuple[str, str], tuple[float, float]]


@dataclass
class Job:
    """A job: its kind, its arrival, and what is left of its length, seconds."""

    kind: str
    is_production: bool
    arrival: float
    left: float
    end: float = math.inf


@dataclass
class Gpu:
    """A GPU with one production and one opportunistic job at most."""

    production: Job | None = None
    opportunistic: Job | None = None

    def running(self, speeds: Speeds) -> list[tuple[Job, float]]:
        """Return its jobs with their speeds."""
        if self.production is not None and self.opportunistic is not None:
            fast, slow = speeds[self.production.kind, self.opportunistic.kind]
            return [(self.production, fast), (self.opportunistic, slow)]
        return [(job, 1.0) for job in (self.production, self.opportunistic) if job is not None]

    def drop(self, job: Job) -> None:
        if job.is_production:
            self.production = None
        else:
            self.opportunistic = None


@dataclass
class Cluster:
    """GPUs and their queue; production goes first. ``speeds`` None: each GPU is for one job.

    Of two jobs of one class the first goes first, or with ``is_shortest_first`` the shorter one.

    With ``is_planned`` an opportunistic job takes the partner that leaves it most, and moves to a GPU
    that becomes idle, as a swapped-out kernel does; else it takes the first and stays.
    """

    speeds: Speeds | None
    is_planned: bool = False
    is_shortest_first: bool = False
    gpus: list[Gpu] = field(default_factory=lambda: [Gpu() for _ in range(GPUS)])
    queue: list[Job] = field(default_factory=list)

    def run(self, jobs: Sequence[Job]) -> None:
        """Play until all jobs have ended."""
        coming, now = sorted(jobs, key=lambda job: job.arrival), 0.0
        while coming or self.queue or self._running():
            ends = [(now + job.left / speed, job) for job, speed in self._running() if speed > 0]
            at = min([*(end for end, _ in ends), *(job.arrival for job in coming[:1])])
            for job, speed in self._running():
                job.left = max(0.0, job.left - (at - now) * speed)
            now = at
            for job in [job for end, job in ends if end <= now]:
                job.end = now
                next(gpu for gpu in self.gpus if job in (gpu.production, gpu.opportunistic)).drop(job)
            while coming and coming[0].arrival <= now:
                self.queue.append(coming.pop(0))
            self._start()

    def _running(self) -> list[tuple[Job, float]]:
        return [one for gpu in self.gpus for one in gpu.running(self.speeds or {})]

    def _start(self) -> None:
        for job in sorted(self.queue, key=self._turn):
            gpu = self._place_of(job)
            if gpu is None:
                continue
            self.queue.remove(job)
            if job.is_production:
                gpu.production = job
            else:
                gpu.opportunistic = job
        while self.is_planned and self._move():
            pass

    def _turn(self, job: Job) -> tuple[bool, float]:
        return not job.is_production, job.left if self.is_shortest_first else job.arrival

    def _move(self) -> bool:
        """Move the opportunistic job that is slowest to an idle GPU; return whether one moved."""
        idle = next((gpu for gpu in self.gpus if gpu.production is None and gpu.opportunistic is None), None)
        shared = [gpu for gpu in self.gpus if gpu.production is not None and gpu.opportunistic is not None]
        if idle is None or not shared:
            return False
        source = min(shared, key=lambda gpu: gpu.running(self.speeds or {})[1][1])
        idle.opportunistic, source.opportunistic = source.opportunistic, None
        return True

    def _place_of(self, job: Job) -> Gpu | None:
        """Return an idle GPU, or else one without a job of the kind, if GPUs are shared."""
        idle = next((gpu for gpu in self.gpus if gpu.production is None and gpu.opportunistic is None), None)
        if idle is not None or self.speeds is None:
            return idle
        free = [one for one in self.gpus if (one.production if job.is_production else one.opportunistic) is None]
        if not self.is_planned:
            return next(iter(free), None)
        return max(free, key=lambda one: self._speed_beside(one, job), default=None)

    def _speed_beside(self, gpu: Gpu, job: Job) -> float:
        """Return the speed of the opportunistic one of a job and the job that a GPU has."""
        other = gpu.opportunistic if job.is_production else gpu.production
        if other is None or self.speeds is None:
            return 1.0
        pair = (job.kind, other.kind) if job.is_production else (other.kind, job.kind)
        return self.speeds[pair][1]


def speeds_under(controller: str, kinds: int) -> dict[tuple[str, str], tuple[float, float]]:
    """Return the measured speeds of each pair of the first kinds of jobs under a controller."""
    found = {}
    for production in PRODUCTION[:kinds]:
        for opportunistic in OPPORTUNISTIC[:kinds]:
            pair = measured(production, opportunistic, CONTROLLERS[controller])
            found[production, opportunistic] = (
                (1.0, pair.idle)
                if controller == BOUND
                else (1.0 / (1.0 + max(0.0, pair.slowdown_p50)), pair.idle * pair.harvest)
            )
    return found


def lengths(data: Path) -> Callable[[Random], float]:
    """Return a draw of a job's length: Philly's jobs for one GPU, else log-normal ones."""
    path = data / FOLDER / "philly_job_distribution.csv"
    if not path.is_file():
        print(f"plan: {path} is not there; the lengths of the shared jobs are made up")
        return lambda random: random.lognormvariate(6.0, 1.5)
    with open(path, newline="") as file:
        found = [float(row["duration_s"]) for row in csv.DictReader(file) if row["num_gpus"] == "1"]
    return lambda random: random.choice(found)


def a_trace(count: int, kinds: int, load: float, draw: Callable[[Random], float], seed: int) -> list[Job]:
    """Return so many production and as many opportunistic jobs."""
    random = Random(seed)
    drawn = [max(60.0, draw(random)) for _ in range(2 * count)]
    span = sum(drawn) / (load * GPUS)
    names = (PRODUCTION[:kinds], OPPORTUNISTIC[:kinds])
    return [
        Job(random.choice(names[at % 2]), at % 2 == 0, span * random.random(), length)
        for at, length in enumerate(drawn)
    ]


def completion(jobs: Callable[[], list[Job]], speeds: Speeds | None, name: str = "") -> tuple[float, float]:
    """Return the mean completion times of production and of opportunistic jobs under a controller."""
    played = jobs()
    Cluster(speeds, name in PLANNED, name == SHORTEST).run(played)
    kinds = ([job for job in played if job.is_production], [job for job in played if not job.is_production])
    production, opportunistic = (mean(job.end - job.arrival for job in one) for one in kinds)
    return production, opportunistic


def rows(data: Path, count: int, kinds: int, told: Callable[[str], None]) -> Iterator[Row]:
    """Yield the changes of mean completion time, of ten traces for each load."""
    told(f"{count} + {count} jobs on shared GPUs")
    speeds, draw = {name: speeds_under(name, kinds) for name in CONTROLLERS}, lengths(data)
    for load in LOADS:
        changes = _changes(partial(a_trace, count, kinds, load, draw), speeds)
        for name, (production, opportunistic) in changes.items():
            label = f"{count} + {count} jobs on {GPUS} shared GPUs, load {load:g}, {name}"
            first = (f"{label}: production against co-execution", production, "%")
            second = (f"{label}: opportunistic against exclusive", opportunistic, "%")
            is_judged = name == SHORTEST and load == LOADS[-1]
            yield at_most(*first, WANT_PRODUCTION) if is_judged else Row(*first)
            yield at_most(*second, WANT_OPPORTUNISTIC) if is_judged else Row(*second)


def sweep_rows(data: Path, count: int, kinds: int, loads: Sequence[float] = LOADS[-1:]) -> Iterator[Row]:
    """Yield the change of opportunistic jobs if each pair left the same idle time, and they had all of it."""
    draw = lengths(data)
    for load in loads:
        traces = [partial(a_trace, count, kinds, load, draw, seed) for seed in SEEDS]
        alone = [completion(jobs, None)[1] for jobs in traces]
        for idle in IDLE:
            speeds = {(one, other): (1.0, idle) for one in PRODUCTION for other in OPPORTUNISTIC}
            for name, order in ((BOUND, "in order of arrival"), (SHORTEST, "shortest first")):
                found = [completion(jobs, speeds, name)[1] for jobs in traces]
                changes = [100 * (one / before - 1) for one, before in zip(found, alone, strict=True)]
                label = f"{count} + {count} jobs, load {load:g}, all of {100 * idle:.0f} % idle time, {order}"
                yield Row(f"{label}: opportunistic against exclusive", mean(changes), "%")


def _changes(trace: Callable[[int], list[Job]], speeds: Mapping[str, Speeds]) -> dict[str, tuple[float, float]]:
    """Return controller to the changes of production and of opportunistic jobs, per cent."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTROLLERS}
    for seed in SEEDS:
        jobs = partial(trace, seed)
        _, alone = completion(jobs, None)
        freely, _ = completion(jobs, speeds["co-execution"])
        for name, known in speeds.items():
            production, opportunistic = completion(jobs, known, name)
            found[name].append((100 * (production / freely - 1), 100 * (opportunistic / alone - 1)))
    return {name: (mean(one for one, _ in told), mean(one for _, one in told)) for name, told in found.items()}
