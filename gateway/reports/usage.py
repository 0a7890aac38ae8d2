"""The report of GPU time used, and of budgets.

GPU time is in GPU-hours: hours of a whole GPU. See api/openapi.yaml.
"""

from __future__ import annotations

from typing import TypedDict


class GpuHours(TypedDict):
    """GPU time, divided by what the kernel did. ``held`` is ``on_gpu`` and ``swapped_out`` together."""

    working: float
    idle: float
    on_gpu: float
    swapped_out: float
    held: float
    waiting: float
    charged: float


class UsageRow(TypedDict):
    """One row; a name that rows are not by is None."""

    user: str | None
    team: str | None
    size: str | None
    priority: str | None
    model: str | None
    day: str | None
    gpu_hours: GpuHours


class Budget(TypedDict):
    """One budget of the requester, and how much of it is used."""

    kind: str
    name: str
    period: str
    start: str
    renews_at: str
    gpu_hours: float
    used_gpu_hours: float
    left_gpu_hours: float
    warn_at_gpu_hours: float
    state: str
    at_limit: str
    message: str | None


class UsageHead(TypedDict):
    """The part of `UsageReport` beside its rows."""

    month: str | None
    start: str
    end: str
    time_zone: str
    by: list[str]
    charge_by: str
    kept_since: str | None
    total: GpuHours
    budgets: list[Budget]


class UsageReport(UsageHead):
    """The answer of GET /aliquot/api/v1/usage."""

    rows: list[UsageRow]
