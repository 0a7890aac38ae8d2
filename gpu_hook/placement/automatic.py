"""The most that single devices may be overcommitted, and why no more. Pure.

`--overcommit auto` lets reservations grow as far as the host's memory carries their copies. A
device whose memory cannot leave is not overcommitted at all, whatever was asked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .overcommit import CONTEXTS_PART, Oversubscription
from .placement import WHOLE, format_bytes

AUTO_MOST = 4.0


@dataclass(frozen=True)
class Asked:
    """The overcommit that an administrator asks for.

    ``production`` None: as far as the host's memory carries it, for both classes.
    ``opportunistic`` None: as for production.
    """

    production: float | None = None
    opportunistic: float | None = None


@dataclass(frozen=True)
class DeviceNeeds:
    """One device: its memory, what a context takes, and why none of its memory can leave.

    An empty ``obstacle``: it can leave.
    """

    uuid: str
    memory_bytes: int
    context_bytes: int = 0
    obstacle: str = ""


@dataclass(frozen=True)
class Overcommit:
    """The rule in force, and for each device that is lowered by it the reason, by uuid."""

    rule: Oversubscription = field(default_factory=Oversubscription)
    reasons: Mapping[str, str] = field(default_factory=dict)


def find_overcommit(asked: Asked, devices: Sequence[DeviceNeeds], host_bytes: int | None) -> Overcommit:
    """Return the rule for these devices.

    Args:
        asked: The administrator's ratios.
        devices: All devices of the node.
        host_bytes: The host memory for copies; None: no limit.
    """
    is_auto = asked.production is None
    normal = AUTO_MOST if asked.production is None else asked.production
    low = normal if asked.opportunistic is None else asked.opportunistic
    low = min(low, AUTO_MOST) if is_auto else low
    ceilings: dict[str, float] = {}
    reasons: dict[str, str] = {}
    for device in devices:
        ceiling, reason = (1.0, device.obstacle) if device.obstacle else (max(normal, low), "")
        if is_auto and not device.obstacle:
            ceiling, reason = _automatic(device, devices, host_bytes)
        if ceiling < max(normal, low):
            ceilings[device.uuid], reasons[device.uuid] = ceiling, reason
    return Overcommit(Oversubscription(normal, low, host_bytes, ceilings), reasons)


def host_ratio(devices: Sequence[DeviceNeeds], host_bytes: int) -> float:
    """Return the ratio at which kernels of a whole device each have host memory for their copies.

    It is the largest ``r`` for which ``HostRoom.needs`` of r times the memory of devices without an
    obstacle stays within *host_bytes*: all that is reserved, or what no device has and twice the
    largest kernel.
    """
    largest = max(device.memory_bytes for device in devices)
    moving = max(1, sum(device.memory_bytes for device in devices if not device.obstacle))
    staying = sum(device.memory_bytes for device in devices if device.obstacle)
    return max((host_bytes - staying) / moving, 1 + (host_bytes - 2 * largest) / moving)


def _automatic(device: DeviceNeeds, devices: Sequence[DeviceNeeds], host_bytes: int | None) -> tuple[float, str]:
    """Return a device's ratio, and the limit that it reached."""
    contexts = 1 + CONTEXTS_PART * device.memory_bytes / device.context_bytes if device.context_bytes else AUTO_MOST
    host = AUTO_MOST if host_bytes is None else host_ratio(devices, host_bytes)
    ratio = max(1.0, math.floor(min(AUTO_MOST, contexts, host) * WHOLE) / WHOLE)
    if ratio >= AUTO_MOST:
        return AUTO_MOST, ""
    if contexts < host:
        return ratio, (
            f"each context takes {format_bytes(device.context_bytes)} of its {format_bytes(device.memory_bytes)}, "
            "also while its kernel is swapped out"
        )
    total = format_bytes(sum(one.memory_bytes for one in devices))
    return ratio, (
        f"the host has {format_bytes(host_bytes or 0)} for copies of swapped-out kernels, beside {total} of GPU memory"
    )
