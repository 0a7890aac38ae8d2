"""How long the simulator takes for many jobs, on one core."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from random import Random

from report import Row, at_most

from jupyter_aliquot.gateway.planning.backfill import ConservativeBackfill
from jupyter_aliquot.gateway.planning.jobs import DEVICE, Job
from jupyter_aliquot.gateway.planning.queue_orders import FirstComeFirstServed, LeastAttainedService, QueueOrder
from jupyter_aliquot.gateway.simulation.cluster import PLACEMENTS
from jupyter_aliquot.gateway.simulation.gateway_replay import GatewayReplay
from jupyter_aliquot.gateway.simulation.pools import CountedGpus, Pool
from jupyter_aliquot.gateway.simulation.simulator import Simulation

WANT_SECONDS = 60.0
NODES, DEVICES = 64, 8
# Jobs of the other orders for each that the gateway's own plan plays: it knows memory and evictions, too.
PER_REPLAYED = 100
LOAD = 0.9  # of the cluster, on average
SIZES = (250, 500, 1000, 1000, 2000, 4000, 8000)


def made_up_jobs(count: int) -> list[Job]:
    """Return jobs of log-normal length whose demand is nine tenths of the cluster."""
    random = Random(1)
    lengths = [random.lognormvariate(6.0, 1.5) for _ in range(count)]
    sizes = [random.choice(SIZES) for _ in range(count)]
    work = sum(size * seconds for size, seconds in zip(sizes, lengths, strict=True))
    rate = LOAD * NODES * DEVICES * DEVICE * count / work
    at, jobs = 0.0, []
    for number, (size, seconds) in enumerate(zip(sizes, lengths, strict=True)):
        at += random.expovariate(rate)
        jobs.append(Job(f"{number}", size, at, seconds))
    return jobs


def rows(count: int, told: Callable[[str], None]) -> Iterator[Row]:
    """Yield the processor time of each run."""
    jobs = made_up_jobs(count)
    capacity = NODES * DEVICES * DEVICE
    orders: dict[str, tuple[str, Callable[[], QueueOrder]]] = {
        "fifo, counted": ("none", FirstComeFirstServed),
        "backfill, counted": ("none", lambda: ConservativeBackfill(capacity)),
        "las, counted": ("none", LeastAttainedService),
        "fifo, placed by fragmentation": ("fragmentation", FirstComeFirstServed),
    }
    for name, (placement, order) in orders.items():
        told(f"{count} jobs, {name}")
        pool = CountedGpus(capacity) if placement == "none" else PLACEMENTS[placement]((DEVICES,) * NODES, jobs)
        yield at_most(f"{count} jobs, {name}: processor time", _seconds(jobs, pool, order()), "s", WANT_SECONDS)
    some = made_up_jobs(max(1, count // PER_REPLAYED))
    told(f"{len(some)} jobs through the gateway's own plan")
    began = time.process_time()
    GatewayReplay(some, (DEVICES,) * NODES, None).run()
    yield Row(f"{len(some)} jobs, the gateway's own plan: processor time", time.process_time() - began, "s")


def _seconds(jobs: Sequence[Job], pool: Pool, order: QueueOrder) -> float:
    began = time.process_time()
    Simulation(jobs, pool, order).run()
    return time.process_time() - began
