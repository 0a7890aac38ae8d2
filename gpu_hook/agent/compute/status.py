"""The compute part of the agent's status.

It is a kernel's ``compute`` on a device, and a device's ``compute_control``.
"""

from __future__ import annotations

from typing import Any

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND, SECOND
from jupyter_aliquot.gpu_hook.protocol.codec import Gate, Pace

from .device_controller import DeviceController
from .facts import Member
from .settings import ComputeSettings

_AWAITED = "waits until production is back at the agent, which was restarted"
_UNHOLDABLE = "swapped out while production works there: nothing less would hold it"
_UNSWAPPABLE = "nothing holds it enough while production works there, and it cannot be swapped out"


def describe_share(
    device: DeviceController, kernel_id: str, is_unholdable: bool, is_out: bool
) -> dict[str, Any] | None:
    tally = device.tallies.get(kernel_id)
    if tally is None:
        return None
    share = device.shares.get(kernel_id)
    used = tally.used if share is None else share.used
    bound = None if share is None else share.bound
    slowdown = None if share is None else share.slowdown
    reason = "" if share is None else share.reason
    if is_unholdable:
        reason = _UNHOLDABLE if is_out else _UNSWAPPABLE
    members = [member for member in device.members.values() if member.who.kernel_id == kernel_id]
    if device.is_awaiting and members and not members[0].who.is_production:
        reason = _AWAITED
    return {
        "share_entitled": None if share is None else _rounded(share.entitled),
        "share_used": _rounded(used),
        "own_seconds": round(tally.own / SECOND, 6),
        "stretch": _rounded(slowdown),
        "throttled_seconds": round(tally.throttled / SECOND, 6),
        "bound_milliseconds": None if bound is None else round(bound / MILLISECOND, 3),
        "pace": _pace(members),
        "reason": reason,
        "unholdable": is_out,
        "is_capped": any(member.who.is_capped for member in members),
    }


def describe_control(settings: ComputeSettings, device: DeviceController | None, time_slices: bool) -> dict[str, Any]:
    return {
        "controller": settings.control,
        "sharing": "time slices" if time_slices else "side by side",
        "target_percent": round(100 * settings.slowdown_target, 3),
        "contended": device is not None and device.is_contended,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _pace(members: list[Member]) -> str:
    """Return the strictest pace of several processes."""
    orders = [member.order for member in members]
    if any(order.gate is Gate.CLOSED for order in orders):
        return "closed"
    paces = {order.pace for order in orders if order.gate is Gate.PACED}
    if Pace.TIME in paces:
        return "paced"
    return "measured" if Pace.MEASURE in paces else "open"
