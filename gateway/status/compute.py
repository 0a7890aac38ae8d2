"""GPU time, as people are told: pure functions from the agent's words to those of the REST API and the terminal.

Knows no user and no server; report.py decides who may see what it makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jupyter_aliquot.gpu_hook.client.compute_reports import ComputeControl, ComputeStatus

Report = dict[str, Any]


def compute_report(compute: ComputeStatus | None) -> Report | None:
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


def control_report(control: ComputeControl | None) -> Report | None:
    """``compute_control`` of a device; None where the agent says nothing of it."""
    if control is None:
        return None
    return {
        "controller": control.controller,
        "sharing": control.sharing,
        "target_percent": control.target_percent,
        "contended": control.contended,
    }


def held_back_text(devices: Iterable[Mapping[str, Any]]) -> str | None:
    """Why a kernel is held back, over its devices; None where it is not. ``devices`` as in its report."""
    reasons = [
        str(one["compute"]["throttle_reason"])
        for one in devices
        if one["compute"] and one["compute"]["throttle_reason"]
    ]
    return "; ".join(dict.fromkeys(reasons)) or None


def is_held_out(devices: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a kernel is kept off a device for production's sake. ``devices`` as in its report."""
    return any(one["compute"] is not None and one["compute"]["paused"] for one in devices)


def percent_text(part: float | None) -> str:
    """``25 %``; a dash for what nobody measured, or wants."""
    return "–" if part is None else f"{100 * part:.0f} %"


def share_text(compute: ComputeStatus | None) -> str:
    """A cell of the command line's table: used of entitled, ``24 of 25 %``; ``max`` where the share is a limit, too."""
    if compute is None or (compute.share_used is None and compute.share_entitled is None):
        return "–"
    used = percent_text(compute.share_used)
    if compute.share_entitled is not None:
        used = f"{used.removesuffix(' %')} of {percent_text(compute.share_entitled)}"
    return f"{used} max" if compute.is_capped else used


def stretch_text(stretch: float | None) -> str:
    """``1.03x``: launches take 3 % longer than alone."""
    return "–" if stretch is None else f"{stretch:.2f}x"
