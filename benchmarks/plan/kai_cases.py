"""KAI-Scheduler's action tests as an oracle: each case through our ``plan``, and what differs.

The cases are data outside the repository: "Derived from KAI-Scheduler test tables, Copyright 2025
NVIDIA CORPORATION", Apache-2.0. A case names nodes, queues with quotas and jobs, and says what
becomes of each job. Names of nodes are not compared: each scheduler has its own ties.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jupyter_aliquot.gateway.planning.jobs import DEVICE
from jupyter_aliquot.gateway.planning.node import Parts
from jupyter_aliquot.gateway.scheduling.ledger import Device, Holding, KernelRef, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.planner import Pending, Plan, plan
from jupyter_aliquot.gateway.teams.values import Quotas, Team
from jupyter_aliquot.gpu_hook.placement.placement import WHOLE
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request, WorkloadClass

FOLDER = Path("kai-cases")
NOW = 1_000_000.0
MEMORY = Bytes(100 << 20)  # of each device
MILLI = DEVICE // WHOLE
LOW, NORMAL = WorkloadClass.OPPORTUNISTIC, WorkloadClass.PRODUCTION
# The features of a case that admission does not claim, and why.
NOT_CLAIMED = {
    "needs_subgroups": "trees of pod sets inside a job: a kernel is one request",
    "needs_topology": "trees of topology levels over nodes: a kernel's GPUs are on one node",
    "needs_node_affinity": "node selectors of pods",
    "needs_stale_gang": "a gang below its minimum: a kernel is one request",
    "needs_stuck_releasing": "a pod that does not end",
    "needs_preemption_delay": "a delay before what waits evicts others",
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
    is_reserved: bool = False
    started: float = NOW - 60
    first_state: str = ""


@dataclass
class _Job:
    name: str
    team: str
    is_preemptible: bool
    submitted: float
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
    return _beyond_one_kernel(case) or _beyond_quotas(case)


def _beyond_one_kernel(case: Case) -> str:
    """Return what a case wants of several pods, or of where running work is, that no kernel has."""
    outcomes = [set(one) for one in case["outcome"].values()]
    if any(len(job["tasks"]) > 1 for job in case["jobs"]):
        return "jobs of several pods: a kernel is one request, with its GPUs on one node"
    if any({"moved", "moved_device"} & one for one in outcomes) or case["actions"] == ["consolidation"]:
        return "moves of running work: a kernel keeps its devices"
    states = {task["state"] for job in case["jobs"] for task in job["tasks"]}
    if states & {"releasing", "pipelined"}:
        return "pods that end, or are reserved for, as the plan begins: each plan makes its own reservations"
    return ""


def _beyond_quotas(case: Case) -> str:
    """Return the rule between teams, or in one, that a case wants and no quota file can express."""
    waiting: dict[str, set[int]] = {}
    held: Counter[str] = Counter()
    took, gave = set[str](), set[str]()
    for job in case["jobs"]:
        words, queue = set(case["outcome"].get(job["name"], {})), job["queue"]
        if job["tasks"][0]["state"] == "pending":
            waiting.setdefault(queue, set()).add(job["priority"])
        if words & {"kept", "placed", "reserved"}:
            held[queue] += sum(_milli(task, 100) for task in job["tasks"])
        took |= {queue} if words & {"placed", "reserved"} else set()
        gave |= {queue} if "evicted" in words else set()
    quotas = {queue["name"]: queue["quota_gpus"] for queue in case["queues"]}
    if took & gave or case["actions"] == ["preempt"]:
        return "preemption in a team by priority"
    if (
        any(len(priorities) > 1 for priorities in waiting.values())
        or len({queue["priority"] for queue in case["queues"]}) > 1
    ):
        return "priorities of teams, or of what waits in one: their queues have other orders"
    if gave and any(0 <= quotas[queue] * DEVICE < held[queue] for queue in took):
        return "reclaim beyond the quota up to a fair share: a team takes back what it is owed"
    for one in case["departments"]:
        below = sum(max(0, queue["quota_gpus"]) for queue in case["queues"] if queue.get("parent") == one["name"])
        if not one.get("implicit") and 0 <= one["quota_gpus"] < below:
            return "teams that are owed more than the one above them: in a quota file quotas add up"
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
        self._nodes = {name: node["gpus"] for name, node in case["nodes"].items()}
        self._quotas = _quotas(case, WHOLE * sum(self._nodes.values()))
        self._jobs = [_job(case, job) for job in case["jobs"]]
        self._tasks = {task.name: (job, task) for job in self._jobs for task in job.tasks}
        self._place_running()

    def run(self) -> dict[str, dict[str, int]]:
        """Return what became of each job."""
        rounds = self._case.get("rounds_until_match", 1) + self._case.get("rounds_after_match", 0)
        if self._case["mode"] == "single_pass":
            rounds = 1
        for _ in range(rounds):
            for _, task in self._tasks.values():
                task.is_reserved = False
            self._apply(self._plan())
            self._now += self._case.get("seconds_between_rounds", 0)
        return {job.name: dict(Counter(map(self._outcome, job.tasks))) for job in self._jobs}

    def _plan(self) -> Plan:
        running = {name: _holding(*one) for name, one in self._tasks.items() if one[1].is_running}
        pending = [
            Pending(name, job.team, _request(job, task), job.submitted)
            for name, (job, task) in self._tasks.items()
            if not task.is_running and task.first_state == "pending"
        ]
        nodes = tuple(self._node(name) for name in self._nodes)
        ledger = LedgerSnapshot(others=nodes, holdings=running, quotas=self._quotas)
        return plan(ledger, sorted(pending, key=lambda one: one.since), self._now)

    def _node(self, name: str) -> Node:
        held: dict[int, list[tuple[int, bool]]] = {}
        for job, task in self._tasks.values():
            for device, milli in task.parts if task.is_running and task.node == name else ():
                held.setdefault(device, []).append((milli // MILLI, job.is_preemptible))
        devices = []
        for at in range(self._nodes[name]):
            all_parts = sum(part for part, _ in held.get(at, ()))
            normal = sum(part for part, is_low in held.get(at, ()) if not is_low)
            devices.append(
                Device(
                    f"{name}/{at}",
                    at,
                    "case",
                    MEMORY,
                    GpuShare(all_parts),
                    _bytes(all_parts),
                    by_production=(GpuShare(normal), _bytes(normal)),
                )
            )
        return Node(name, "case", tuple(devices), evicted=frozenset())

    def _apply(self, found: Plan) -> None:
        for admit in found.admissions:
            _, task = self._tasks[admit.kernel_id]
            places = [part.uuid.rsplit("/", 1) for part in admit.parts]
            task.is_running, task.node, task.started = True, places[0][0], self._now
            task.parts = tuple(
                (int(at), part.hundredths * MILLI) for (_, at), part in zip(places, admit.parts, strict=True)
            )
        for one in found.evictions:
            self._tasks[one.kernel_id][1].is_running = False
            self._tasks[one.wanted_by][1].is_reserved = True

    def _outcome(self, task: _Task) -> str:
        if task.first_state == "pending":
            return "placed" if task.is_running else "reserved" if task.is_reserved else "waits"
        return "kept" if task.is_running else "evicted"

    def _place_running(self) -> None:
        """Give each running task devices: a label names a device, tasks without one get their own."""
        free = {name: [DEVICE] * count for name, count in self._nodes.items()}
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


def _bytes(hundredths: int) -> Bytes:
    return Bytes(int(MEMORY) * hundredths // WHOLE)


def _request(job: _Job, task: _Task) -> Request:
    return Request(GpuShare(task.milli // MILLI), None, LOW if job.is_preemptible else NORMAL)


def _holding(job: _Job, task: _Task) -> Holding:
    parts = ((device, milli // MILLI) for device, milli in task.parts)
    quotas = tuple(Quota(f"{task.node}/{at}", at, GpuShare(part), _bytes(part)) for at, part in parts)
    grant = Grant(task.name, job.team, _request(job, task), task.node, quotas, "", ())
    began = job.submitted if task.first_state == "running" else task.started
    holding = Holding(grant, KernelRef(task.name, job.team), began, queued_at=job.submitted, granted_at=began)
    # A quota is taken back from kernels of each priority, but from none that cannot be swapped out.
    return holding if job.is_preemptible else replace(holding, stays_because="KAI may not preempt it")


def _quotas(case: Case, gpus: int) -> Quotas:
    """Return the queues as teams, each with one user of its name. Low priority is what KAI may preempt."""
    departments = {"/" + one["name"]: one for one in case["departments"] if not one.get("implicit")}
    teams = {name: _team(name, "", one, gpus) for name, one in departments.items()}
    for one in case["queues"]:
        parent = "/" + str(one.get("parent"))
        teams[one["name"]] = _team(one["name"], parent if parent in departments else "", one, gpus)
    for name in departments:  # of a file a team is owed its own quota and those of the teams below it
        below = sum(team.nominal[""] for team in teams.values() if team.parent == name)
        teams[name] = replace(teams[name], nominal={"": max(0, teams[name].nominal[""] - below)})
    return Quotas("case", teams)


def _team(name: str, parent: str, one: Mapping[str, Any], gpus: int) -> Team:
    nominal = gpus if one["quota_gpus"] < 0 else round(one["quota_gpus"] * WHOLE)
    limit = None if one["limit_gpus"] < 0 else round(one["limit_gpus"] * WHOLE)
    nominal = nominal if limit is None else min(nominal, limit)
    return Team(
        name,
        parent=parent,
        users=(name,),
        nominal={"": nominal},
        borrowing=None if limit is None else {"": limit - nominal},
        weight=max(0.0, one["over_quota_weight"]),
        reclaim_seconds=one.get("reclaim_min_runtime_seconds") or 0.0,
        borrowers="low",
    )


def _job(case: Case, job: Mapping[str, Any]) -> _Job:
    memory = max((node["gpu_memory_mib"] for node in case["nodes"].values()), default=100)
    made = _Job(
        job["name"],
        job["queue"],
        job["preemptible"],
        NOW - job["age_minutes"] * 60,
    )
    for task in job["tasks"]:
        is_running = task["state"] in ("running", "bound")
        made.tasks.append(
            _Task(
                task["name"],
                _milli(task, memory // 100 * 100),
                is_running,
                task.get("node", ""),
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
