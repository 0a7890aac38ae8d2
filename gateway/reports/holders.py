"""The report of holders: kernels and users with what they hold and use. See api/openapi.yaml."""

from __future__ import annotations

from typing import TypedDict

from .status import Device, Node, RemoteNode


class HostUse(TypedDict):
    """CPU and RAM of a kernel's processes. ``cpus`` is None at the first look."""

    cpus: float | None
    cpu_seconds: float
    memory_bytes: int


class HolderKernel(TypedDict):
    """One kernel that has not ended, in the few fields that a list of thousands needs."""

    id: str
    name: str
    owner: str
    team: str | None
    label: str
    gpus: float
    priority: str
    state: str
    reason: str | None
    devices: list[int]
    gpus_used: float | None
    memory_limit_bytes: int
    used_bytes: int
    swapped_bytes: int
    execution_state: str | None
    created: str | None
    idle_seconds: float | None
    host: HostUse | None


class HolderUser(TypedDict):
    """One user with a kernel: sums over the kernels, and the GPU limit."""

    name: str
    teams: list[str]
    kernels: int
    gpus: float
    queued_gpus: float
    gpu_limit: float | None
    gpus_used: float | None
    idle_gpus: float
    idle_share: float | None
    used_bytes: int
    cpus: float | None
    host_memory_bytes: int | None


class Holders(TypedDict):
    """The answer of GET /aliquot/api/v1/holders. ``most_idle`` are ids of kernels."""

    at: str
    node: Node
    nodes: list[RemoteNode]
    devices: list[Device]
    kernels: list[HolderKernel]
    users: list[HolderUser]
    most_idle: list[str]
