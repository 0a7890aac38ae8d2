"""Estimates of how long kernels that are out would wait for their memory if a cell came now.

Pure, and an estimate: ``decide`` alone says who comes in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .views import NEVER, DeviceView, KernelView, Policy, State

_GRAIN_SECONDS = 5.0  # of waits for busy kernels: finer figures would change all the time


@dataclass
class _Device:
    """A device: room that is free, room that idle kernels would leave, and the wait for a busy one."""

    view: DeviceView
    free_bytes: int
    idle_bytes: int = 0
    busy_waits: list[float] = field(default_factory=list)


def restore_seconds(
    devices: Sequence[DeviceView], kernels: Sequence[KernelView], now: float, policy: Policy
) -> Mapping[str, float]:
    """Return the seconds for each kernel that is swapped out; none for a kernel that has to wait for good."""
    known = {view.uuid: _Device(view, view.capacity_bytes - view.leaving_bytes) for view in devices}
    for kernel in kernels:
        _enter(kernel, known, now, policy)
    waits = ((kernel.kernel_id, _wait(kernel, known, policy)) for kernel in kernels if kernel.state is State.SWAPPED)
    return {kernel_id: seconds for kernel_id, seconds in waits if seconds < NEVER}


def _enter(kernel: KernelView, known: Mapping[str, _Device], now: float, policy: Policy) -> None:
    is_coming = kernel.state is State.SWAPPING_IN
    may_leave = kernel.state is State.RESIDENT and kernel.movable_at < NEVER
    for h in kernel.holdings:
        device = known.get(h.uuid)
        if device is None:
            continue
        device.free_bytes -= h.held_bytes + (h.away_bytes + h.wanted_bytes if is_coming else 0)
        if may_leave and h.swappable_bytes and kernel.idle_since is not None:
            device.idle_bytes += h.swappable_bytes
        elif may_leave and h.swappable_bytes:
            device.busy_waits.append(_busy_wait(kernel, now, policy))


def _busy_wait(kernel: KernelView, now: float, policy: Policy) -> float:
    """Return when a busy kernel makes way for a young cell: its turn is cut, or its cell ends before."""
    turn = policy.hold_seconds if kernel.ran_seconds >= policy.quantum_seconds else policy.quantum_seconds
    left = max(0.0, max(kernel.held_since, kernel.turn_since) + turn - now)
    rest = kernel.expected_rest_seconds
    shortest = left if rest is None else min(left, rest)
    return math.ceil(shortest / _GRAIN_SECONDS) * _GRAIN_SECONDS


def _wait(kernel: KernelView, known: Mapping[str, _Device], policy: Policy) -> float:
    """Return the wait for room, then the move out for it, and the move in. All devices move at once."""
    room = out = into = 0.0
    for h in kernel.holdings:
        need = h.away_bytes + h.wanted_bytes
        device = known.get(h.uuid)
        if not need or device is None:
            continue
        short = need - max(0, device.free_bytes)
        if short > device.idle_bytes:
            room = max(room, min(device.busy_waits, default=NEVER))
        if short > 0:
            out = max(out, short / device.view.out_rate + policy.move_seconds)
        into = max(into, need / device.view.in_rate + policy.move_seconds)
    return room + out + into
