"""The node agent's reports of GPU time: fair shares, use, and kernels that are held back.

They are frozen values. This module reads JSON objects, and does no I/O. It also reads the status of
an earlier agent, which has no such report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .checks import checked


@dataclass(frozen=True)
class ComputeStatus:
    """One kernel on one device, over the last second or so.

    Shares are parts of the device's time, 0 to 1. ``share_entitled`` None: it wants nothing;
    ``share_used`` and ``stretch`` None: not measured. ``bound_milliseconds`` is how long its work
    in flight can hold up production. ``reason`` says why it is held back; it is empty where it is
    not. ``unholdable``: swapped out while production works. ``is_capped``: its share is a limit,
    too.
    """

    share_entitled: float | None = None
    share_used: float | None = None
    own_seconds: float = 0.0
    stretch: float | None = None
    throttled_seconds: float = 0.0
    bound_milliseconds: float | None = None
    pace: str = "open"
    reason: str = ""
    unholdable: bool = False
    is_capped: bool = False


@dataclass(frozen=True)
class DeviceLoad:
    """How much of a device a kernel uses while it works there: parts of the time, 0 to 1.

    ``memory`` is the time of reads and writes; 0 where the driver does not tell it, as the software GPU.
    ``seconds`` is the time with work that was looked at. ``is_alone``: no other kernel worked then.
    """

    gpu: float
    memory: float
    seconds: float
    is_alone: bool


@dataclass(frozen=True)
class ComputeControl:
    """The control of one device's time. ``contended``: it is in force there now."""

    controller: str
    sharing: str = "time slices"
    target_percent: float | None = None
    contended: bool = False


def read_compute(report: Mapping[str, Any] | None) -> ComputeStatus | None:
    """Return the GPU time, or None for an agent without a report.

    Raises KeyError, TypeError, ValueError or AttributeError.
    """
    if report is None:
        return None
    made = ComputeStatus(
        share_entitled=_number(report.get("share_entitled")),
        share_used=_number(report.get("share_used")),
        own_seconds=float(report["own_seconds"]),
        stretch=_number(report.get("stretch")),
        throttled_seconds=float(report["throttled_seconds"]),
        bound_milliseconds=_number(report.get("bound_milliseconds")),
        pace=str(report["pace"]),
        reason=str(report.get("reason") or ""),
        unholdable=bool(report.get("unholdable", False)),
        is_capped=bool(report.get("is_capped", False)),
    )
    return checked(made)


def read_load(report: Mapping[str, Any] | None) -> DeviceLoad | None:
    """Return the load, or None for a kernel without, and for an agent that tells none.

    Raises the exceptions of read_compute.
    """
    if report is None:
        return None
    gpu, memory = (min(1.0, max(0.0, float(report[name]))) for name in ("gpu", "memory"))
    return checked(DeviceLoad(gpu, memory, float(report["seconds"]), bool(report["is_alone"])))


def read_compute_control(report: Mapping[str, Any] | None) -> ComputeControl | None:
    """Return the control of a device, or None for an agent without a report.

    Raises the exceptions of read_compute.
    """
    if report is None:
        return None
    made = ComputeControl(
        controller=str(report["controller"]),
        sharing=str(report["sharing"]),
        target_percent=_number(report.get("target_percent")),
        contended=bool(report["contended"]),
    )
    return checked(made)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
