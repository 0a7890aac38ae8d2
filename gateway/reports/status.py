"""The reports of the node, sizes, dry runs and folders. See api/openapi.yaml."""

from __future__ import annotations

from typing import TypedDict

from .invitation import OpenInvitation
from .kernel import Kernel
from .usage import Budget


class TeamGpuLimit(TypedDict):
    """The most GPUs that a team may hold at once, and the number that it holds."""

    name: str
    gpus: float
    held_gpus: float
    queued_gpus: float
    left_gpus: float


class UserGpuLimit(TypedDict):
    """The most GPUs that a user may hold at once, and the number that the user holds."""

    gpus: float | None
    held_gpus: float
    queued_gpus: float
    left_gpus: float | None
    teams: list[TeamGpuLimit]


class StatusUser(TypedDict):
    """The user of the request."""

    name: str
    role: str
    gpu_limit: UserGpuLimit | None
    budgets: list[Budget]
    invitations: list[OpenInvitation]


class Cordon(TypedDict):
    """The mark of a node on which nothing new starts; draining: its kernels are swapped out, too."""

    since: str
    reason: str | None
    draining: bool


class NodeKernel(TypedDict):
    """A kernel on a node, as far as it matters to a drain."""

    kernel_id: str
    owner: str
    label: str
    state: str
    reason: str | None


class NodeSchedule(TypedDict):
    """A node's cordon, and the kernels that are on the node."""

    name: str
    cordon: Cordon | None
    cordoned_by: str | None
    kernels: list[NodeKernel]


class HostCopies(TypedDict):
    """Host memory that holds copies of swapped-out kernels."""

    used_bytes: int
    budget_bytes: int | None
    spilled_bytes: int


class Node(TypedDict):
    """The machine as a whole."""

    name: str
    driver: str | None
    enforcer: str | None
    untracked_processes: int
    overcommit: float
    host_copies: HostCopies | None
    agent: str
    message: str | None
    cordon: Cordon | None


class ComputeControl(TypedDict):
    """The mechanism that divides a device's time."""

    controller: str
    sharing: str
    target_percent: float | None
    contended: bool


class PredictedSpeed(TypedDict):
    """The predicted speed of the slowest of a device's kernels while all work, with its error bar."""

    mean: float
    low: float
    high: float


class Device(TypedDict):
    """One GPU. The fields named "mine" are sums over the user's own kernels."""

    index: int
    uuid: str
    name: str
    memory_bytes: int
    reserved_bytes: int
    reserved_gpus: float
    used_bytes: int
    mine_bytes: int
    mine_reserved_bytes: int
    swapped_bytes: int
    mine_swapped_bytes: int
    burstable_bytes: int
    utilization_percent: float | None
    temperature_celsius: float | None
    power_watts: float | None
    lost: bool
    overcommit: float
    overcommit_reason: str | None
    compute_control: ComputeControl | None
    predicted_speed: PredictedSpeed | None


class RemoteNode(TypedDict):
    """A node on another machine, whose agent dials the gateway."""

    name: str
    state: str
    message: str | None
    since: str | None
    driver: str | None
    kernels: int | None
    devices: list[Device]
    cordon: Cordon | None


class Nodes(TypedDict):
    """The answer of GET /aliquot/api/v1/nodes. ``cordon`` is that of the gateway's own node."""

    nodes: list[RemoteNode]
    cordon: Cordon | None


class Queue(TypedDict):
    """Queued requests of all users."""

    length: int


class Status(TypedDict):
    """The answer of GET /aliquot/api/v1/status."""

    version: str
    user: StatusUser
    node: Node
    nodes: list[RemoteNode]
    devices: list[Device]
    kernels: list[Kernel]
    queue: Queue


class Size(TypedDict):
    """One size that is listed."""

    name: str
    kernelspec: str
    display_name: str
    gpus: float
    requested_memory_bytes: int | None
    priority: str
    image: str | None
    description: str
    is_default: bool


class Sizes(TypedDict):
    """The answer of GET /aliquot/api/v1/sizes."""

    may_use_normal_priority: bool
    budgets: list[Budget]
    sizes: list[Size]
    grammar: str
    largest_gpus: float
    step: float
    pattern: str
    device_memory_bytes: int | None
    default_size: str | None


class CpuOptions(TypedDict):
    """The CPUs that a user may choose for a kernel."""

    least: float
    most: float
    by_default: float
    step: float


class RamOptions(TypedDict):
    """The memory of the host that a user may choose for a kernel, in bytes."""

    least: int
    most: int
    by_default: int


class ChosenOptions(TypedDict):
    """A choice; null for what was not chosen."""

    cpus: float | None
    ram_bytes: int | None
    folders: list[str] | None


class SessionOptions(TypedDict):
    """The answer of GET /aliquot/api/v1/session-options."""

    name: str
    kernelspec: str
    display_name: str
    image: str | None
    cpus: CpuOptions | None
    ram_bytes: RamOptions | None
    folders: list[str] | None
    reason: str | None
    chosen: ChosenOptions
    problem: str | None


class MemorySharing(TypedDict):
    """The kernels with which a kernel would share memory, and how long its own takes to come back."""

    idle_kernels: int
    busy_kernels: int
    restore_seconds: float | None


class DryRun(TypedDict):
    """The outcome of a request for one size if it were sent now."""

    suffix: str
    gpus: float
    requested_memory_bytes: int | None
    memory_limit_bytes: int | None
    priority: str
    outcome: str
    position: int | None
    message: str
    memory_sharing: MemorySharing | None
    keeps_memory: bool


class Folder(TypedDict):
    """One folder that kernels in containers get."""

    name: str
    kind: str
    target: str
    read_only: bool
    mine: bool
    origin: str
    source: str | None
    users: list[str] | None
    teams: list[str] | None
    problem: str | None
