"""The reason why a kernel is held back, in words for users: panel, command line, status.

An empty text: the kernel is not held back.
"""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.agent.pages.agent_page import Order

from .history import Kernel
from .shares import Allowance


@dataclass(frozen=True)
class Situation:
    kernel: Kernel
    allowance: Allowance
    order: Order
    is_production_working: bool
    is_solo_window: bool


def reason(situation: Situation, has_production: bool) -> str:
    kernel, allowance = situation.kernel, situation.allowance
    if not kernel.is_production and has_production:
        return _beneath(situation)
    if allowance.entitled is None or allowance.own is None:
        return ""
    part = round(100 * allowance.entitled)
    if kernel.is_capped:
        return f"held at its limit, {part} % of the device"
    if allowance.lag < 0:
        return f"had more than its share; entitled to {part} % among those that want the device"
    return ""


def _beneath(situation: Situation) -> str:
    order = situation.order
    if situation.is_solo_window:
        return "waits a moment: production's launches are measured alone"
    if not situation.is_production_working:
        return ""
    spans = []
    if order.idle_window_max > order.idle_window_min:
        spans.append(
            f"{order.idle_window_min / 1000:.1f} to {order.idle_window_max / 1000:.1f} ms after production stops"
        )
    spans.append(f"from {order.idle_resume / 1000:.1f} ms on")
    return (
        "production first: begins " + " and ".join(spans)
        if order.idle_resume
        else "production first: runs in its pauses"
    )
