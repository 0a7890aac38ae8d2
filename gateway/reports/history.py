"""The history's reports of one kernel and of one device.

Lists have one entry for each step, the oldest first. None is a gap: the gateway did not look, or
the agent did not answer. See api/openapi.yaml.
"""

from __future__ import annotations

from typing import TypedDict

Column = list[float | None]


class HistoryFigure(TypedDict):
    """One figure at each step; the mean is weighted by time."""

    min: Column
    mean: Column
    max: Column


class KernelFigures(TypedDict):
    """The figures of one kernel."""

    busy_gpus: HistoryFigure
    own_gpus: HistoryFigure
    fair_share: HistoryFigure
    share_used: HistoryFigure
    used_bytes: HistoryFigure
    memory_limit_bytes: HistoryFigure
    swapped_bytes: HistoryFigure


class DeviceFigures(TypedDict):
    """The figures of one device."""

    utilization_percent: HistoryFigure
    used_bytes: HistoryFigure
    temperature_celsius: HistoryFigure
    power_watts: HistoryFigure


class HistoryKernel(TypedDict):
    """One kernel, with its last size."""

    id: str
    owner: str
    label: str
    name: str
    gpus: float
    requested_memory_bytes: int | None
    priority: str
    known_seconds: Column
    figures: KernelFigures


class HistoryDevice(TypedDict):
    """One device."""

    uuid: str
    index: int
    name: str
    known_seconds: Column
    figures: DeviceFigures


class HistoryHead(TypedDict):
    """The part of `History` beside its series, which are written one by one."""

    range: str
    start: str
    end: str
    step_seconds: int
    omitted: int


class History(HistoryHead):
    """The whole answer."""

    kernels: list[HistoryKernel]
    devices: list[HistoryDevice]
