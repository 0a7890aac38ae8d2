"""The time of one plan: a thousand nodes of eight devices, ten thousand requests that wait."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from report import Row, at_most

from jupyter_aliquot.gateway.planning.cluster.planner import plan
from jupyter_aliquot.gateway.planning.cluster.rules import Rules, Step
from jupyter_aliquot.gateway.planning.cluster.snapshot import (
    ClusterNode,
    Member,
    Quota,
    Request,
    Running,
    Snapshot,
    Team,
)

WANT_MS = 100.0
DEVICES, TEAMS, ORGANIZATIONS = 8, 100, 10
SIZES = (250, 500, 1000, 1000, 2000, 4000, 8000)
GANG = (1000,) * 4
ENDED = 0.01  # of the work, since the last plan
ROUNDS = 5
START_ALONE = Rules(steps=(Step.START,))


def a_queue(nodes: int, requests: int) -> tuple[Snapshot, list[Request]]:
    """Return an empty cluster, and requests of a hundred teams of ten organizations."""
    random = Random(1)
    owed = nodes * DEVICES * 1000
    teams = [Team(f"org{at}", quotas={"": Quota(owed // ORGANIZATIONS)}) for at in range(ORGANIZATIONS)]
    for at in range(TEAMS):
        teams.append(Team(f"t{at:03}", f"org{at % ORGANIZATIONS}", {"": Quota(owed // TEAMS)}, 1.0 + at % 3))
    pending = [
        Request(
            f"r{at}",
            f"t{random.randrange(TEAMS):03}",
            (random.choice(SIZES),) if at % 20 else GANG,
            priority=random.choice((0, 0, 1)),
            submitted=-1000.0 * random.random(),
            is_preemptible=random.random() < 0.7,
        )
        for at in range(requests)
    ]
    return Snapshot(tuple(ClusterNode(f"n{at:04}", DEVICES) for at in range(nodes)), tuple(teams)), pending


def a_busy_cluster(nodes: int, requests: int) -> tuple[Snapshot, list[Request]]:
    """Return the cluster after plans that filled it, of which some work has ended since, and the queue."""
    snapshot, pending = a_queue(nodes, 2 * requests)
    random, running = Random(2), dict[str, Running]()
    by_name = {request.name: request for request in pending}
    for start in plan(snapshot, pending, 0.0, replace(START_ALONE, hold_after=1e9)).starts:
        request, old = by_name[start.request], running.get(start.request)
        members = (*(old.members if old else ()), Member(start.node, start.parts))
        running[request.name] = Running(
            request.name, request.team, members, len(request.sizes), request.priority, request.is_preemptible
        )
    left = [request for request in pending if request.name not in running]
    kept = tuple(work for work in running.values() if random.random() >= ENDED)
    return replace(snapshot, running=kept), left[:requests]


def rows(nodes: int, requests: int, told: Callable[[str], None]) -> Iterator[Row]:
    """Yield the processor time of plans, the least of some rounds."""
    told(f"a plan for {nodes} nodes, {requests} requests")
    label = f"{nodes} nodes × {DEVICES}, {requests} requests"
    snapshot, pending = a_busy_cluster(nodes, requests)
    yield Row(f"{label}: running work", len(snapshot.running), "works")
    yield at_most(f"{label}: a plan of starts", _milliseconds(snapshot, pending, START_ALONE), "ms", WANT_MS)
    yield Row(f"{label}: a plan with moves and reclaim", _milliseconds(snapshot, pending, Rules()), "ms")
    snapshot, pending = a_queue(nodes, requests)
    yield Row(f"{label}: a plan of starts on idle nodes", _milliseconds(snapshot, pending, START_ALONE), "ms")


def _milliseconds(snapshot: Snapshot, pending: list[Request], rules: Rules) -> float:
    """Return the least time. What lives already is out of the collector's sight, as in the gateway."""
    times: list[float] = []
    gc.collect()
    gc.freeze()
    for _ in range(ROUNDS):
        began = time.process_time()
        plan(snapshot, pending, 0.0, rules)
        times.append(time.process_time() - began)
    gc.unfreeze()
    return 1000.0 * min(times)
