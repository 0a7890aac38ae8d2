"""How much of a cluster can be allocated until fragmentation stops it, by rule of node choice.

Source of the published figures: the artifact of FGD, Weng et al., USENIX ATC 2023, on Alibaba's
trace of GPU-sharing pods: 6,212 GPUs on 1,213 nodes. The pods are shuffled, then random ones
follow, as long as demand stays within 1.3 times the capacity.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

from report import Row, at_least, between

from jupyter_aliquot.gateway.planning.fragmentation import Fragmentation
from jupyter_aliquot.gateway.planning.jobs import DEVICE
from jupyter_aliquot.gateway.planning.node import Demand, Node
from jupyter_aliquot.gateway.planning.node_choice import BestFit, FragmentationGradient, Largest, NodeRule, Scored
from jupyter_aliquot.gateway.planning.node_pool import NodePool

FOLDER = Path("alibaba-gpu-v2023")
DEMAND = 1.3  # times the capacity
ARRIVED = (0.95, 1.0, 1.3)  # demand that has arrived, times the capacity, at which allocation is read
WANT_PERCENT = 95.2
WITHIN_POINTS = 1.0


class RandomFit:
    """Any node that has room, by lot: the baseline."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def score(self, node: Node, demand: Demand) -> Scored | None:
        if not node.can_hold(demand):
            return None
        order = list(range(len(node.free)))
        self._random.shuffle(order)
        parts = node.parts_by(demand, order)
        return None if parts is None else Scored((self._random.random(),), parts)


def read_pods(data: Path) -> list[Demand]:
    with open(data / FOLDER / "openb_pod_list_default.csv", newline="") as file:
        return [_pod(row) for row in csv.DictReader(file)]


def read_nodes(data: Path) -> list[Node]:
    with open(data / FOLDER / "openb_node_list_gpu_node.csv", newline="") as file:
        return [
            Node(row["sn"], int(row["gpu"]), int(row["cpu_milli"]), int(row["memory_mib"]), row["model"])
            for row in csv.DictReader(file)
        ]


def read_published(data: Path) -> dict[tuple[str, int], float]:
    """Return policy and per cent arrived to per cent allocated, the mean of ten seeds."""
    with open(data / FOLDER / "fgd_expected.csv", newline="") as file:
        return {
            (row["policy"], int(row["arrived_pct"])): float(row["allocated_pct_mean"]) for row in csv.DictReader(file)
        }


def arrivals(pods: Sequence[Demand], capacity: int, seed: int) -> list[Demand]:
    """Return the pods in the order of one seed."""
    random = Random(seed)
    found = list(pods)
    random.shuffle(found)
    asked = sum(pod.milli for pod in found)
    while asked + (pod := random.choice(pods)).milli <= DEMAND * capacity:
        found.append(pod)
        asked += pod.milli
    return found


def allocated(pool: NodePool, pods: Sequence[Demand], most: float) -> dict[float, float]:
    """Return demand arrived, times the capacity, to per cent of the GPUs allocated then.

    The run ends when *most* times the capacity have arrived.
    """
    asked, found = 0, dict[float, float]()
    for pod in pods:
        asked += pod.milli
        if asked > most * pool.milli:
            break
        pool.place(pod)
        for level in ARRIVED:
            if level not in found and asked >= level * pool.milli:
                found[level] = _percent(pool)
    return {level: found.get(level, _percent(pool)) for level in ARRIVED}


def rows(data: Path, seeds: Sequence[int], most: float, told: Callable[[str], None]) -> Iterator[Row]:
    published, pods = read_published(data), read_pods(data)
    usual = Fragmentation(pods)
    rules: dict[str, Callable[[Largest, int], NodeRule]] = {
        "Random": lambda _, seed: RandomFit(Random(seed)),
        "BestFit": lambda largest, _: BestFit(largest),
        "FGD": lambda largest, _: FragmentationGradient(usual, largest),
    }
    for name, rule in rules.items():
        runs = []
        for seed in seeds:
            told(f"{name}, seed {seed}")
            nodes = read_nodes(data)
            pool = NodePool(nodes, rule(Largest.of(nodes), seed))
            runs.append(allocated(pool, arrivals(pods, pool.milli, seed), most))
        for level in ARRIVED:
            mean = statistics.mean(run[level] for run in runs)
            target, label = published[name, round(100 * level)], f"{name}: allocated at {level:.0%} arrived"
            if name != "FGD":
                yield between(label, mean, "%", target - WITHIN_POINTS, target + WITHIN_POINTS)
            elif level == 1.0:
                yield at_least(f"{label} (published {target:.2f})", mean, "%", WANT_PERCENT)
            else:
                yield Row(f"{label} (published {target:.2f})", mean, "%")
        yield Row(f"{name}: the least of {len(seeds)} seeds at 100% arrived", min(run[1.0] for run in runs), "%")


def _pod(row: dict[str, str]) -> Demand:
    devices = int(row["num_gpu"])
    milli = devices * DEVICE if devices > 1 else devices * int(row["gpu_milli"])
    return Demand(milli, int(row["cpu_milli"]), int(row["memory_mib"]))


def _percent(pool: NodePool) -> float:
    return 100.0 * (pool.milli - pool.free_milli) / pool.milli
