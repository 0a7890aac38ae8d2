"""The reports of teams' quotas and of the queue.

GPUs are numbers of devices; times are ISO 8601 in UTC. See api/openapi.yaml.
"""

from __future__ import annotations

from typing import TypedDict

from .kernel import PredictedStart, WaitReason


class ModelQuota(TypedDict):
    """One team's GPUs of one model; a model of None: all GPUs."""

    model: str | None
    nominal_gpus: float
    held_gpus: float
    borrowed_gpus: float
    available_gpus: float
    borrowing_limit_gpus: float | None
    lending_limit_gpus: float | None


class TeamQuota(TypedDict):
    """One team. ``is_yours``: the requester's kernels count in it.

    ``queue_order`` is the order of its own requests; None: that of the queue.
    ``past_use`` is what it had beyond its quota, as a part of the GPUs: a moving average that halves
    after each ``usage_half_life_seconds`` of the report; None without that setting.
    """

    name: str
    parent: str | None
    is_yours: bool
    over_quota_weight: float
    reclaim_min_runtime_seconds: float
    may_be_ended: str
    queue_order: str | None
    overcommit: float | None
    past_use: float | None
    queued: int
    evicted: int
    gpus: list[ModelQuota]


class Quota(TypedDict):
    """The quotas in force. ``file`` and ``problem`` are for administrators."""

    organization: str | None
    order: str | None
    backfill: bool
    usage_half_life_seconds: float | None
    file: str | None
    problem: str | None
    warnings: list[str]
    teams: list[TeamQuota]


class QueuedRequest(TypedDict):
    """A request that waits: to start a kernel, to grow one, or to give an evicted one its GPU again."""

    kernel_id: str
    owner: str
    label: str
    team: str | None
    kind: str
    gpus: float
    priority: str
    position: int
    reason: str
    wait_reason: WaitReason
    since: str
    expected_start: str | None
    predicted_start: PredictedStart | None


class Queue(TypedDict):
    """The queue as the requester may see it; ``length`` counts all requests."""

    length: int
    requests: list[QueuedRequest]
