"""The reports of a plan of moves, and of its run. See api/openapi.yaml."""

from __future__ import annotations

from typing import TypedDict


class PlannedMove(TypedDict):
    """A move of a kernel from one GPU of its node to another.

    ``outcome`` is planned, running, done, failed or dropped; ``reason`` is why it failed.
    """

    kernel_id: str
    owner: str
    label: str
    source: str
    source_index: int
    target: str
    target_index: int
    memory_bytes: int
    outcome: str
    reason: str | None


class MovedGpu(TypedDict):
    """A GPU of the plan's node: how much of it no kernel has, now and after the plan."""

    uuid: str
    index: int
    free_gpus: float
    free_gpus_after: float


class StayingKernel(TypedDict):
    """A kernel that cannot move, and the reason."""

    kernel_id: str
    owner: str
    label: str
    node: str
    reason: str


class WantedSize(TypedDict):
    """The size that is to fit; ``kernel_id``: the first request of the queue wants it."""

    size: str
    gpus: float
    kernel_id: str | None


class MoveRun(TypedDict):
    """The last run of a plan. ``state`` is running or over.

    ``digest`` is the plan's name. ``reason`` is why it ended before its last move; None: it did not.
    """

    state: str
    by: str
    since: str
    node: str
    digest: str
    reason: str | None
    moves: list[PlannedMove]


class MovePlan(TypedDict):
    """The answer of GET /aliquot/api/v1/moves. Without moves, ``reason`` says why.

    ``size`` None: the plan lowers fragmentation. ``digest`` names the plan, and the state of the GPUs
    that it is of.
    """

    size: WantedSize | None
    node: str | None
    digest: str | None
    reason: str | None
    moves: list[PlannedMove]
    gpus: list[MovedGpu]
    stays: list[StayingKernel]
    run: MoveRun | None
