"""KAI-Scheduler's action tests as an oracle: each case through our ``plan``, and what differs.

The cases are data outside the repository: "Derived from KAI-Scheduler test tables, Copyright 2025
NVIDIA CORPORATION", Apache-2.0. A case names nodes, queues with quotas and jobs, and says what
becomes of each job. Names of nodes are not compared: each scheduler has its own ties.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_aliquot.gateway.planning.cluster.decisions import Plan
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
from jupyter_aliquot.gateway.planning.jobs import DEVICE
from jupyter_aliquot.gateway.planning.node import Parts

FOLDER = Path("kai-cases")
NOW = 1_000_000.0
STEPS = {
    "allocate": Step.START,
    "consolidation": Step.MOVE,
    "reclaim": Step.RECLAIM,
    "preempt": Step.PREEMPT,
}
# The features of a case that our planner does not claim, and why.
NOT_CLAIMED = {
    "needs_subgroups": "trees of pod sets inside a job: our gangs are flat",
    "needs_topology": "trees of topology levels with required and preferred ones: ours are node and domain",
    "needs_node_affinity": "node selectors of pods",
    "needs_stale_gang": "a gang below its minimum is the provisioner's to end",
    "needs_stuck_releasing": "a pod that does not end",
    "needs_multi_device_fraction": "the same fraction on several devices: ours fills devices",
    "needs_task_order": "an order of pods by label",
    "needs_best_effort": "pods without requests",
    "needs_dra": "Kubernetes' resource claims",
    "needs_mig": "MIG slices",
    "needs_storage": "volumes of pods",
    "needs_numa": "NUMA zones of CPUs",
    "needs_pod_affinity": "affinity of pods",
    "needs_custom_plugins": "another set of plugins than the default",
    "initial_overcommit": "its work holds five devices of four",
    "needs_session_hooks": "predicates injected into KAI's session",
}

Case = Mapping[str, Any]


@dataclass(frozen=True)
class Judged:
    """The verdict on one case: agrees, differs, or not claimed; ``why`` is the reason."""

    case_id: str
    name: str
    tier: str
    verdict: str
    why: str = ""


@dataclass
class _Task:
    """One task of a job and what became of it."""

    name: str
    milli: int
    is_running: bool
    node: str = ""
    parts: Parts = ()
    is_ending: bool = False
    is_reserved: bool = False
    started: float = NOW - 60
    first: tuple[str, Parts] = ("", ())
    first_state: str = ""
    is_gone: bool = False


@dataclass
class _Job:
    name: str
    team: str
    priority: int
    is_preemptible: bool
    least: int
    submitted: float
    delay: float
    cpu: int
    memory: int
    tasks: list[_Task] = field(default_factory=list)


def read_cases(data: Path) -> list[Case]:
    """Return the cases; none if the data are not there."""
    path = data / FOLDER / "cases.json"
    if not path.is_file():
        return []
    found: list[Case] = json.loads(path.read_text())["cases"]
    return found


def unclaimed(case: Case) -> str:
    """Return why we do not claim a case; "" if we do."""
    for need in case["needs"]:
        if need in NOT_CLAIMED:
            return NOT_CLAIMED[need]
    if case["assertion"] in ("internal", "none"):
        return "it asserts internals, or nothing"
    if any(job.get("topology_constraint") for job in case["jobs"]):
        return NOT_CLAIMED["needs_topology"]
    if any(not _has_gpus(task) for job in case["jobs"] for task in job["tasks"]):
        return "pods without a GPU: the planner gives GPUs"
    if any(
        key in queue
        for queue in case["queues"]
        for key in ("quota_cpu_milli", "quota_mem_mb", "limit_cpu_milli", "limit_mem_mb")
    ):
        return "quotas of CPU and memory: ours are of GPUs"
    memory = {node["gpu_memory_mib"] // 100 for node in case["nodes"].values()}
    if len(memory) > 1 and "needs_gpu_memory" in case["needs"]:
        return "GPU memory as a demand on nodes of different memory: ours is a part of a device"
    return ""


def _has_gpus(task: Mapping[str, Any]) -> bool:
    return bool(task.get("gpus") or task.get("gpu_fraction") or task.get("gpu_memory_mib"))


def judge(case: Case) -> Judged:
    """Run one case."""
    told = (case["id"], case["name"], case["tier"])
    why = unclaimed(case)
    if why:
        return Judged(*told, "not claimed", why)
    found = _World(case).run()
    wrong = [
        f"{name}: {_words(found[name])}, KAI {_words(want)}"
        for name, want in case["outcome"].items()
        if "unchecked" not in want and found[name] != _normal(want)
    ]
    return Judged(*told, "differs" if wrong else "agrees", "; ".join(wrong))


def _normal(outcome: Mapping[str, int]) -> dict[str, int]:
    same = {"moved_device": "moved", "still_reserved": "reserved", "still_releasing": "released"}
    found: Counter[str] = Counter()
    for word, count in outcome.items():
        found[same.get(word, word)] += count
    return dict(found)


def _words(outcome: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {word}" for word, count in sorted(outcome.items()))


class _World:
    """The state of one case between rounds."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._now = NOW
        self._nodes = tuple(
            ClusterNode(name, node["gpus"], "", int(node["cpu"] * 1000), node["mem"] // 2**20)
            for name, node in case["nodes"].items()
        )
        self._teams = tuple(_teams(case))
        self._jobs = [_job(case, job) for job in case["jobs"]]
        self._place_running()

    def run(self) -> dict[str, dict[str, int]]:
        """Return what became of each job."""
        actions = [action for action in self._case["actions"] if action in STEPS]
        steps = tuple(STEPS[action] for action in actions)
        rounds = self._case.get("rounds_until_match", 1) + self._case.get("rounds_after_match", 0)
        if self._case["mode"] == "single_pass":
            rounds = 1
        for _ in range(rounds):
            self._apply(self._plan(steps))
            if self._case["mode"] != "single_pass":
                self._settle()
            self._now += self._case.get("seconds_between_rounds", 0)
        return {job.name: dict(Counter(map(self._outcome, job.tasks))) for job in self._jobs}

    def _plan(self, steps: tuple[Step, ...]) -> Plan:
        rules = Rules(steps=steps, may_end=True, hold_after=math.inf)
        running = tuple(one for job in self._jobs if (one := self._running(job)) is not None)
        pending = [one for job in self._jobs if (one := self._request(job)) is not None]
        return plan(Snapshot(self._nodes, self._teams, running), pending, self._now, rules)

    def _running(self, job: _Job) -> Running | None:
        tasks = [task for task in job.tasks if task.is_running]
        if not tasks:
            return None
        members = tuple(Member(task.node, task.parts, job.cpu, job.memory, task.is_ending) for task in tasks)
        return Running(
            job.name,
            job.team,
            members,
            job.least,
            job.priority,
            job.is_preemptible,
            can_swap=False,
            started=min(task.started for task in tasks),
            submitted=job.submitted,
        )

    def _request(self, job: _Job) -> Request | None:
        sizes = tuple(task.milli for task in job.tasks if not task.is_running and not task.is_gone)
        if not sizes:
            return None
        return Request(
            job.name,
            job.team,
            sizes,
            job.least,
            job.priority,
            job.is_preemptible,
            job.submitted,
            cpu=job.cpu,
            memory=job.memory,
            eviction_delay=job.delay,
        )

    def _apply(self, found: Plan) -> None:
        running = {job.name: [task for task in job.tasks if task.is_running] for job in self._jobs}
        pending = {job.name: [t for t in job.tasks if not t.is_running and not t.is_gone] for job in self._jobs}
        for start in found.starts:
            task = pending[start.request][start.member]
            task.is_running, task.node, task.parts, task.started = True, start.node, start.parts, self._now
        for one in found.reservations:
            pending[one.request][one.member].is_reserved = True
        for withdrawal in (*found.evictions, *found.swap_outs):
            for member in withdrawal.members:
                running[withdrawal.workload][member].is_running = False
        for move in found.moves:
            task = running[move.workload][move.member]
            task.node, task.parts = move.node, move.parts

    def _settle(self) -> None:
        for job in self._jobs:
            for task in job.tasks:
                task.is_reserved = False
                if task.is_ending:
                    task.is_running, task.is_ending, task.is_gone = False, False, True

    def _outcome(self, task: _Task) -> str:
        if task.first_state == "pending":
            return "placed" if task.is_running else "reserved" if task.is_reserved else "waits"
        if task.is_ending or task.is_gone:
            return "released"
        if not task.is_running:
            return "evicted"
        return "kept" if (task.node, task.parts) == task.first else "moved"

    def _place_running(self) -> None:
        """Give each running task devices: a label names a device, tasks without one get their own."""
        free = {node.name: [DEVICE] * node.devices for node in self._nodes}
        labels: dict[tuple[str, str], int] = {}
        raw = {task["name"]: task for job in self._case["jobs"] for task in job["tasks"]}
        tasks = [task for job in self._jobs for task in job.tasks if task.is_running]
        for task in sorted(tasks, key=lambda one: one.milli % DEVICE == 0):
            left, label = free[task.node], raw[task.name].get("gpu_group")
            if label is not None and task.milli < DEVICE:
                at = labels.get((task.node, str(label)))
                if at is None:
                    at = labels[task.node, str(label)] = left.index(DEVICE)
                chosen = ((at, task.milli),)
            elif task.milli < DEVICE:
                chosen = ((left.index(DEVICE), task.milli),)
                labels[task.node, task.name] = chosen[0][0]
            else:
                devices = [at for at, milli in enumerate(left) if milli == DEVICE][: task.milli // DEVICE]
                chosen = tuple((at, DEVICE) for at in devices)
            for at, milli in chosen:
                left[at] -= milli
            task.parts = chosen
            task.first = (task.node, chosen)


def _teams(case: Case) -> list[Team]:
    found: list[Team] = []
    for at, one in enumerate(case["departments"]):
        if not one.get("implicit"):
            found.append(_team("/" + one["name"], one.get("parent"), one, at))
    known = {team.name for team in found}
    for at, one in enumerate(case["queues"]):
        parent = "/" + str(one.get("parent"))
        found.append(_team(one["name"], parent.removeprefix("/") if parent in known else None, one, at))
    return found


def _team(name: str, parent: str | None, one: Mapping[str, Any], at: int) -> Team:
    nominal = None if one["quota_gpus"] < 0 else round(one["quota_gpus"] * DEVICE)
    limit = None if one["limit_gpus"] < 0 else round(one["limit_gpus"] * DEVICE)
    borrowing = None if limit is None else limit - min(nominal or 0, limit)
    if limit is not None:
        nominal = limit if nominal is None else min(nominal, limit)
        borrowing = limit - nominal
    return Team(
        name,
        "/" + parent if parent else "",
        {"": Quota(nominal, borrowing)},
        max(0.0, one["over_quota_weight"]),
        one.get("priority", 100),
        reclaim_min_runtime=one.get("reclaim_min_runtime_seconds"),
        order=at,
    )


def _job(case: Case, job: Mapping[str, Any]) -> _Job:
    memory = max((node["gpu_memory_mib"] for node in case["nodes"].values()), default=100)
    first = job["tasks"][0]
    made = _Job(
        job["name"],
        job["queue"],
        job["priority"],
        job["preemptible"],
        job["min_available"],
        NOW - job["age_minutes"] * 60,
        job.get("preemption_delay_seconds", 0.0),
        int(first["cpu"] * 1000),
        first["mem"] // 2**20,
    )
    for task in job["tasks"]:
        is_running = task["state"] in ("running", "releasing", "bound")
        made.tasks.append(
            _Task(
                task["name"],
                _milli(task, memory // 100 * 100),
                is_running,
                task.get("node", ""),
                is_ending=task["state"] == "releasing",
                first_state="running" if is_running else "pending",
            )
        )
    return made


def _milli(task: Mapping[str, Any], memory: int) -> int:
    if "gpu_memory_mib" in task:
        return round(task["gpu_memory_mib"] / memory * 100) * DEVICE // 100
    return round((task.get("gpu_fraction") or task["gpus"]) * DEVICE)


def table(found: Sequence[Judged]) -> dict[str, Counter[str]]:
    """Return tier to how many cases have which verdict."""
    tiers: dict[str, Counter[str]] = {}
    for one in found:
        tiers.setdefault(one.tier, Counter())[one.verdict] += 1
    return tiers
