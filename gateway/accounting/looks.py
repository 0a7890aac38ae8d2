"""One look at the nodes and the queue, as the accounting takes it: the parts that kernels hold. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from jupyter_aliquot.gateway.base.gil import unhurried
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gateway.sizes.grammar import size_suffix
from jupyter_aliquot.gateway.teams.values import Quotas
from jupyter_aliquot.gpu_hook.client.reports import KernelDeviceStatus, KernelStatus, NodeStatus
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Request, WorkloadClass

from .amounts import Subject

_GIB = 1 << 30
# The states of the agent in which a kernel's memory is in the host.
_OUT = ("swapped", "checkpointed", "checkpointing")
# The part of a request that waits: it has no device.
NO_DEVICE = ""
# The node of the agent that the gateway reaches by its own socket; no name of another node is empty.
THIS_NODE = ""


class Place(str, Enum):
    """The place of a part, where its time is counted; values are names of amounts."""

    ON_GPU = "on_gpu"
    SWAPPED_OUT = "swapped_out"
    WAITING = "waiting"


class PartKey(NamedTuple):
    """A kernel on one device; without a device, its request that waits."""

    kernel_id: str
    device: str


@dataclass(frozen=True)
class Part:
    """A kernel on one device, or a request that waits.

    Args:
        began: When the kernel was granted or the request queued, in milliseconds since the epoch.
        since: Since when it is at ``place``; None: not known.
        own: The agent's count of GPU time used, in milliseconds; None: it counts none.
        busy: The driver's count, which neighbors' slices are in, for agents without the other.
        agent: Names the run of the agent, whose own counters begin with it, as agent_run does.
    """

    key: PartKey
    subject: Subject
    hundredths: int
    place: Place
    began: int
    since: int | None = None
    own: int | None = None
    busy: int = 0
    agent: str = ""


@dataclass(frozen=True)
class Look:
    """The parts and requests that are there at one moment.

    Args:
        wall: Milliseconds since the epoch. It names the day, and no duration is computed from it.
        monotonic: Milliseconds since the machine was started.
        boot: Names that start: between two starts of a machine no duration is known.
        parts: None while no agent answers.
        has_only_new: Whether ``parts`` are those of kernels that came just now, and nothing is said of others.
        waiting: The requests in the queue.
        away: The nodes whose agents do not answer, of whose parts nothing is known.
    """

    wall: int
    monotonic: int
    boot: str
    parts: tuple[Part, ...] | None
    waiting: tuple[Part, ...] = ()
    away: frozenset[str] = frozenset()
    has_only_new: bool = False


def agent_run(node: str, began: float) -> str:
    """Return the name of an agent's run on this node, which began then."""
    return f"{node} {began:.6f}".lstrip()


def node_of(agent: str) -> str:
    """Return the node of an agent's run; THIS_NODE for the gateway's own."""
    return agent.rpartition(" ")[0]


class Teams:
    """The team in which a user's GPU time is counted.

    That is the team of the quota file. Without teams there, it is the first of the user's groups by
    name. ``asked`` are the groups at the time when a kernel was requested.
    """

    def __init__(self, quotas: Quotas | None) -> None:
        self._quotas = quotas if quotas is not None and quotas.teams else None

    def of(self, user: str, groups: Iterable[str]) -> str:
        """Return the team's name; empty for a user of no team."""
        if self._quotas is None:
            return min(groups, default="")
        team = self._quotas.team_of(user, groups)
        return "" if team is None else team.name


class KernelParts:
    """The parts that kernels hold, by the agents' statuses. Those of a kernel that did not change are made once."""

    def __init__(self) -> None:
        # By agent: the names of its devices, and by kernel what its parts were made of.
        self._made: dict[str, tuple[dict[str, str], dict[str, tuple[tuple[Any, ...], tuple[Part, ...]]]]] = {}

    def of(self, status: NodeStatus, agent: str, admission: AdmissionSnapshot, teams: Teams) -> tuple[Part, ...]:
        """Return the parts by the status of one agent. ``agent`` names its run."""
        models = {device.uuid: device.name for device in status.devices}
        evicted, holdings = frozenset(status.evicted or ()), admission.ledger.holdings
        before, now, found = self._made.get(agent, ({}, {})), {}, list[Part]()
        made = before[1] if before[0] == models else {}
        for kernel in unhurried(status.kernels):
            holding = holdings.get(kernel.kernel_id)
            team = teams.of(kernel.owner, () if holding is None else holding.requester.teams)
            causes = (kernel, team, kernel.kernel_id in evicted)
            known = made.get(kernel.kernel_id)
            if known is None or known[0] != causes:
                known = causes, tuple(_parts(*causes, models, agent))
            now[kernel.kernel_id] = known
            found += known[1]
        self._made[agent] = models, now
        return tuple(found)

    def forget_others(self, agents: Collection[str]) -> None:
        """Drop the parts of agents' runs that are over."""
        self._made = {agent: made for agent, made in self._made.items() if agent in agents}


def _parts(kernel: KernelStatus, team: str, is_evicted: bool, models: Mapping[str, str], agent: str) -> Iterator[Part]:
    place, since = _place(kernel, is_evicted)
    size, priority = _size(kernel.hundredths, kernel.memory_limit), WorkloadClass(kernel.workload_class).priority
    for device in kernel.devices:
        subject = Subject(writable(kernel.owner), team, size, priority, writable(models.get(device.uuid, "")))
        yield _part(kernel, device, subject, place, since, agent)


def waiting_of(statuses: Iterable[NodeStatus], admission: AdmissionSnapshot, teams: Teams) -> tuple[Part, ...]:
    """Return the requests in the queue: starts, and what kernels wait for beyond their size.

    An evicted kernel that waits to return is one of its agent's kernels.
    """
    models = {device.name for status in statuses for device in status.devices}
    model = writable(models.pop()) if len(models) == 1 else ""
    since = {entry.kernel_id: entry.since for entry in admission.queue}
    return tuple(_waiting(admission, since, teams, model))


def _waiting(admission: AdmissionSnapshot, since: dict[str, float], teams: Teams, model: str) -> Iterator[Part]:
    for pending in unhurried(admission.pending):
        # An evicted kernel that waits to return has nothing more.
        if not pending.more or pending.kernel_id not in since:
            continue
        request = pending.request
        memory = None if request.memory_limit is None else int(request.memory_limit)
        size = _size(request.gpus.hundredths, memory)
        team = teams.of(pending.owner, pending.teams)
        subject = Subject(writable(pending.owner), team, size, request.workload_class.priority, model)
        began = milliseconds(since[pending.kernel_id])
        yield Part(PartKey(pending.kernel_id, NO_DEVICE), subject, pending.more, Place.WAITING, began, began)


def _part(
    kernel: KernelStatus, device: KernelDeviceStatus, subject: Subject, place: Place, since: int | None, agent: str
) -> Part:
    own = None if device.compute is None else milliseconds(device.compute.own_seconds)
    key, began = PartKey(writable(kernel.kernel_id), device.uuid), milliseconds(kernel.created)
    busy = milliseconds(device.busy_seconds)
    return Part(key, subject, device.hundredths, place, began, since, own, busy, agent)


def _place(kernel: KernelStatus, is_evicted: bool) -> tuple[Place, int | None]:
    residency = kernel.residency
    if is_evicted:
        return Place.WAITING, None
    if residency is None or residency.state not in _OUT:
        since = None if residency is None or residency.since is None else milliseconds(residency.since)
        return Place.ON_GPU, since
    if residency.waits is not None:
        return Place.WAITING, None
    return Place.SWAPPED_OUT, None if residency.since is None else milliseconds(residency.since)


def _size(hundredths: int, memory_limit: int | None) -> str:
    """Return the size as a kernelspec's name has it, without its priority."""
    whole = None if memory_limit is None else Bytes(-(-memory_limit // _GIB) * _GIB)
    return size_suffix(Request(GpuShare(hundredths), whole, WorkloadClass.PRODUCTION)).removeprefix("gpu-")


def milliseconds(seconds: float) -> int:
    """Return the whole milliseconds; 0 for less than none."""
    return max(0, int(seconds * 1000))


def writable(text: str) -> str:
    """Return the text with unpaired surrogates spelled out: no file holds half a character of two."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
