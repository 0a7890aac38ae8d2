"""Translate GPU time from the agent's words to those of the REST API and the terminal. Pure.

Knows no user and no server; report.py decides which users see the result.
"""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_aliquot.gateway.reports.kernel import Compute, KernelDevice, Load
from jupyter_aliquot.gateway.reports.status import ComputeControl
from jupyter_aliquot.gpu_hook.client.compute_reports import ComputeControl as ControlStatus, ComputeStatus, DeviceLoad


def compute_report(compute: ComputeStatus | None) -> Compute | None:
    """Return a kernel's ``compute`` on one device; None if the agent does not report it."""
    if compute is None:
        return None
    bound = compute.bound_milliseconds
    return {
        "fair_share": compute.share_entitled,
        "share_used": compute.share_used,
        "own_seconds": compute.own_seconds,
        "slowdown": compute.stretch,
        "throttled_seconds": compute.throttled_seconds,
        "max_delay_seconds": None if bound is None else bound / 1000,
        "pace": compute.pace,
        "throttle_reason": compute.reason or None,
        "paused": compute.unholdable,
        "has_hard_limit": compute.is_capped,
    }


def load_report(load: DeviceLoad | None) -> Load | None:
    """Return a kernel's ``load`` on one device; None until it has worked."""
    if load is None:
        return None
    return {"gpu": load.gpu, "memory": load.memory, "seconds": load.seconds, "alone": load.is_alone}


def control_report(control: ControlStatus | None) -> ComputeControl | None:
    """Return a device's ``compute_control``; None if the agent does not report it."""
    if control is None:
        return None
    return {
        "controller": control.controller,
        "sharing": control.sharing,
        "target_percent": control.target_percent,
        "contended": control.contended,
    }


def throttle_text(devices: Iterable[KernelDevice]) -> str | None:
    """Return why a kernel is throttled on its devices; None if it is not.

    ``devices``: as in the kernel's report.
    """
    told = [one["compute"] for one in devices if one["compute"] is not None]
    reasons = [compute["throttle_reason"] for compute in told if compute["throttle_reason"]]
    return "; ".join(dict.fromkeys(reasons)) or None


def is_paused(devices: Iterable[KernelDevice]) -> bool:
    """Return whether a kernel is paused on a device for normal-priority work.

    ``devices``: as in the kernel's report.
    """
    return any(one["compute"] is not None and one["compute"]["paused"] for one in devices)


def percent_text(part: float | None) -> str:
    """Return a part as ``25 %``, or a dash if there is no figure."""
    return "–" if part is None else f"{100 * part:.0f} %"


def share_text(compute: ComputeStatus | None) -> str:
    """Return the share of time used as a table cell of the command line: ``24 of 25 %``.

    The second number is the fair share. A hard limit is marked with ``max``.
    """
    if compute is None or (compute.share_used is None and compute.share_entitled is None):
        return "–"
    used = percent_text(compute.share_used)
    if compute.share_entitled is not None:
        used = f"{used.removesuffix(' %')} of {percent_text(compute.share_entitled)}"
    return f"{used} max" if compute.is_capped else used


def slowdown_text(slowdown: float | None) -> str:
    """Return ``1.03x`` if launches take 3 % longer than alone; a dash if there is no figure."""
    return "–" if slowdown is None else f"{slowdown:.2f}x"
