"""Count the GPUs that a real notebook trace needs: leases, reservation, time-out, per cell.

It compares leases with reservation, a time-out, and binding to each cell. The trace is research
data outside the repository (``--data``); without it there is nothing to measure, and the benchmark
says so. Each policy gets whole nodes of 8 GPUs. It needs the smallest number with which a
notebook's first GPUs (95 % of sessions) and a cell's resume (95 % of GPU cells) come within 3 s.
Times are simulated; nothing here depends on this machine's speed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from density import chart
from density.elastic import Cluster, Hardware
from density.trace import NAME, Cell, Session, a_made_up_day, read
from density.whole_gpus import FOR_THE_SESSION, GPUS_OF_A_NODE, Holding, Outcome, WholeGpus
from report import Row, at_least, at_most, publish, read_arguments, result_file

from jupyter_aliquot.gateway.planning.node_choice import NodeOrder

BOUND = 3.0  # seconds
LONGEST = 10.0  # seconds, of 99 in 100 cells
WANT = 3.5  # times fewer GPUs than reservation
WANT_ON_ANY_DAY = 3.3
FEWEST_NODES = 3
PLANNED_NODES = 5  # on which the planner's own choices of nodes are played
JITTER_SECONDS = 600.0  # sessions may start earlier or later by so much
HARDWARE = Hardware()
SMOKE = {"most_nodes": 4, "days": 1}

Simulate = Callable[[int], Outcome]


@dataclass(frozen=True)
class Extent:
    """The extent of the search.

    ``most_nodes`` limits policies that hold whole GPUs; ``days`` is how often starts are moved.
    """

    most_nodes: int
    days: int

    @property
    def most_of_ours(self) -> int:
        return max(FEWEST_NODES, self.most_nodes // 2)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * len(ordered) * 1000) // 1000) - 1)] if ordered else 0.0


def reload_seconds(cell: Cell) -> float:
    """Return the time to restore a cell's state without swap.

    The policies without swap read it over the same link, as one GPU's.
    """
    return cell.bytes / max(1, cell.gpus) / HARDWARE.link_rate + HARDWARE.policy.move_seconds


def policies(sessions: Sequence[Session], hardware: Hardware) -> dict[str, Simulate]:
    """Return the policies by name: each gives the outcome with so many nodes."""

    def whole(idle_seconds: float) -> Simulate:
        return lambda nodes: WholeGpus(nodes, Holding(idle_seconds, reload_seconds)).run(sessions)

    return {
        "reservation": whole(FOR_THE_SESSION),
        "30-minute time-out": whole(30 * 60.0),
        "bound to each cell": whole(0.0),
        "leases and fractions": lambda nodes: Cluster(nodes, hardware).run(sessions),
    }


def is_served(outcome: Outcome) -> bool:
    return percentile(outcome.starts, 0.95) <= BOUND and percentile(outcome.resumes, 0.95) <= BOUND


def search(name: str, simulate: Simulate, most: int) -> tuple[int, dict[int, Outcome]]:
    """Return the fewest nodes from which on all are served: an administrator can rely on it.

    The search goes down from the most nodes to the first number that serves too few.
    """
    outcomes: dict[int, Outcome] = {}
    needed = most + 1
    for nodes in range(most, FEWEST_NODES - 1, -1):
        outcomes[nodes] = simulate(nodes)
        print(f"{name}: {nodes} nodes, of {most} at most", file=sys.stderr, flush=True)
        if not is_served(outcomes[nodes]):
            break
        needed = nodes
    if needed > most:
        raise SystemExit(f"{name}: not served with {most} nodes")
    return needed, dict(sorted(outcomes.items()))


def rows_of(name: str, outcome: Outcome, gpus: int) -> list[Row]:
    shown = [
        Row(f"{name}: GPUs needed", gpus, "GPUs"),
        Row(f"{name}: resume p50", percentile(outcome.resumes, 0.5), "s"),
        Row(f"{name}: resume p95", percentile(outcome.resumes, 0.95), "s", f"≤ {BOUND:g}", is_served(outcome)),
    ]
    p99 = percentile(outcome.resumes, 0.99)
    shown.append(at_most(f"{name}: resume p99", p99, "s", LONGEST) if outcome.stretches else
                 Row(f"{name}: resume p99", p99, "s"))  # fmt: skip
    if outcome.stretches:
        shown += [
            Row(f"{name}: resume, the worst", max(outcome.resumes), "s"),
            Row(f"{name}: a cell's time over its time alone, mean", statistics.mean(outcome.stretches), "×"),
            Row(f"{name}: the same, p95", percentile(outcome.stretches, 0.95), "×"),
            Row(f"{name}: the same, p99", percentile(outcome.stretches, 0.99), "×"),
            Row(f"{name}: the same, the worst", max(outcome.stretches), "×"),
        ]
    return shown


def measure(sessions: Sequence[Session], picture: Path, extent: Extent) -> list[Row]:
    needed: dict[str, int] = {}
    lines: dict[str, list[tuple[float, float]]] = {}
    rows: list[Row] = []
    for name, simulate in policies(sessions, HARDWARE).items():
        nodes, outcomes = search(name, simulate, extent.most_nodes)
        needed[name] = nodes * GPUS_OF_A_NODE
        rows += rows_of(name, outcomes[nodes], needed[name])
        # Policies that hold GPUs for the session wait at its start; the others at a cell's resume.
        lines[name] = [
            (n * GPUS_OF_A_NODE, max(percentile(o.starts, 0.95), percentile(o.resumes, 0.95)))
            for n, o in outcomes.items()
        ]
    *_, ours = needed.values()
    rows += [Row(f"{name} needs, times ours", needed[name] / ours, "×") for name in list(needed)[1:-1]]
    rows.append(at_least("reservation needs, times ours", needed["reservation"] / ours, "×", WANT))
    title = "p95 of waiting for the first GPUs or for a cell's resume, whichever is longer"
    chart.draw(picture, title, "GPUs, in nodes of 8", lines, BOUND)
    return rows + jittered(sessions, extent) + planned(sessions, extent) + variants(sessions, extent)


def moved(sessions: Sequence[Session], seed: int) -> list[Session]:
    """Return the sessions with other starts.

    It is luck which sessions meet; an answer that depends on it is none.
    """
    random = Random(seed)
    return [replace(s, start=max(0.0, s.start + random.uniform(-1, 1) * JITTER_SECONDS)) for s in sessions]


def planned(sessions: Sequence[Session], extent: Extent) -> list[Row]:
    """Play the day, and those with other starts, with the planner's own choices of nodes."""
    days = [sessions, *(moved(sessions, seed) for seed in range(extent.days))]
    rows = []
    for order in NodeOrder:
        print(f"the planner's choice of nodes, {order.value}", file=sys.stderr, flush=True)
        outcomes = [Cluster(PLANNED_NODES, replace(HARDWARE, node_order=order)).run(day) for day in days]
        name = f"{PLANNED_NODES * GPUS_OF_A_NODE} GPUs, nodes by {order.value}, of {len(days)} days the longest"
        rows.append(at_most(f"{name}: start p95", max(percentile(one.starts, 0.95) for one in outcomes), "s", BOUND))
        rows.append(at_most(f"{name}: resume p95", max(percentile(one.resumes, 0.95) for one in outcomes), "s", BOUND))
        rows.append(
            at_most(f"{name}: resume p99", max(percentile(one.resumes, 0.99) for one in outcomes), "s", LONGEST)
        )
        slowest = max(percentile(one.stretches, 0.99) for one in outcomes)
        rows.append(Row(f"{name}: a cell's time over its time alone, p99", slowest, "×"))
    return rows


def jittered(sessions: Sequence[Session], extent: Extent) -> list[Row]:
    """Return the same day with moved starts."""
    ratios, tails, slowest = [], [], []
    for seed in range(extent.days):
        found = policies(moved(sessions, seed), HARDWARE)
        theirs, _ = search(f"seed {seed}, reservation", found["reservation"], extent.most_nodes)
        ours, outcomes = search(f"seed {seed}, ours", found["leases and fractions"], extent.most_of_ours)
        ratios.append(theirs / ours)
        tails.append(percentile(outcomes[ours].resumes, 0.99))
        slowest.append(percentile(outcomes[ours].stretches, 0.99))
    days = f"over {len(ratios)} days with other starts"
    return [
        at_least(f"the same {days}, the least", min(ratios), "×", WANT_ON_ANY_DAY),
        Row(f"the same {days}, the median", statistics.median(ratios), "×"),
        at_most(f"resume p99 {days}, the longest", max(tails), "s", LONGEST),
        Row(f"a cell's time over its time alone, p99 {days}, the longest", max(slowest), "×"),
    ]


def variants(sessions: Sequence[Session], extent: Extent) -> list[Row]:
    """Vary the assumptions that the answer depends on."""
    tried = {
        "host copies of 500 GB a node": replace(HARDWARE, host_bytes=500 * 10**9),
        "host copies of 2 TB a node": replace(HARDWARE, host_bytes=2 * 10**12),
        "a link of 10 GB/s": replace(HARDWARE, link_rate=10e9),
        "a link of 50 GB/s": replace(HARDWARE, link_rate=50e9),
        "80 GB GPUs": replace(HARDWARE, memory_bytes=80 * 10**9),
        "three times oversubscribed at most": replace(HARDWARE, oversubscription=3.0),
    }
    rows = []
    for name, hardware in tried.items():
        simulate = policies(sessions, hardware)["leases and fractions"]
        nodes, outcomes = search(name, simulate, extent.most_nodes)
        rows.append(Row(f"GPUs needed with {name}", nodes * GPUS_OF_A_NODE, "GPUs"))
        rows.append(Row(f"resume p99 with {name}", percentile(outcomes[nodes].resumes, 0.99), "s"))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the trace data")
    parser.add_argument("--picture", type=Path, help="default: build/bench/density.svg")
    parser.add_argument("--most-nodes", type=int, default=20, help="nodes of 8 GPUs to try")
    parser.add_argument("--days", type=int, default=5, help="times that the sessions' starts are moved")
    arguments = read_arguments(parser, SMOKE)
    if not arguments.smoke and not (arguments.data / NAME).is_file():
        print(f"density: the trace {arguments.data / NAME} is not there; name its folder by --data")
        return 0
    sessions = a_made_up_day() if arguments.smoke else read(arguments.data)
    picture = arguments.picture or result_file(arguments, "density.svg")
    rows = measure(sessions, picture, Extent(arguments.most_nodes, arguments.days))
    return 0 if publish(arguments, "density", "none: simulated time", rows) else 1


if __name__ == "__main__":
    sys.exit(main())
