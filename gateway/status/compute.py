"""GPU time, as people are told: pure functions from the agent's words to those of the REST API and the terminal.

Knows no user and no server; report.py decides who may see what it makes.
"""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_aliquot.gateway.reports.kernel import Compute, KernelDevice
from jupyter_aliquot.gateway.reports.status import ComputeControl
from jupyter_aliquot.gpu_hook.client.compute_reports import ComputeControl as ControlStatus, ComputeStatus


def compute_report(compute: ComputeStatus | None) -> Compute | None:
    """``compute`` of a kernel on one device; None where the agent says nothing of it."""
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


def control_report(control: ControlStatus | None) -> ComputeControl | None:
    """``compute_control`` of a device; None where the agent says nothing of it."""
    if control is None:
        return None
    return {
        "controller": control.controller,
        "sharing": control.sharing,
        "target_percent": control.target_percent,
        "contended": control.contended,
    }


def throttle_text(devices: Iterable[KernelDevice]) -> str | None:
    """Why a kernel is throttled, over its devices; None where it is not. ``devices`` as in its report."""
    told = [one["compute"] for one in devices if one["compute"] is not None]
    reasons = [compute["throttle_reason"] for compute in told if compute["throttle_reason"]]
    return "; ".join(dict.fromkeys(reasons)) or None


def is_paused(devices: Iterable[KernelDevice]) -> bool:
    """Whether a kernel is kept off a device for normal-priority work. ``devices`` as in its report."""
    return any(one["compute"] is not None and one["compute"]["paused"] for one in devices)


def percent_text(part: float | None) -> str:
    """``25 %``; a dash for what nobody measured, or wants."""
    return "–" if part is None else f"{100 * part:.0f} %"


def share_text(compute: ComputeStatus | None) -> str:
    """A cell of the command line's table: used of the fair share, ``24 of 25 %``; ``max`` where it is a hard limit."""
    if compute is None or (compute.share_used is None and compute.share_entitled is None):
        return "–"
    used = percent_text(compute.share_used)
    if compute.share_entitled is not None:
        used = f"{used.removesuffix(' %')} of {percent_text(compute.share_entitled)}"
    return f"{used} max" if compute.is_capped else used


def slowdown_text(slowdown: float | None) -> str:
    """``1.03x``: launches take 3 % longer than alone."""
    return "–" if slowdown is None else f"{slowdown:.2f}x"
