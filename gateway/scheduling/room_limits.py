"""The largest requests that a node could ever hold, found by trying to place them.

Pure; placement has the rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from jupyter_aliquot.gpu_hook.placement.placement import GRAIN_BYTES, MAX_DEVICES, WHOLE, Part
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Request

from .capacity import Held, Room


def alone(room: Room, request: Request, held: Held | None = None) -> tuple[Part, ...] | None:
    """Return its parts on the empty node, with *held* where it is; None if it fits nowhere."""
    empty = room.emptied()
    placed = (empty if held is None else empty.take(held.parts, held.workload_class)).place(request, held)
    return placed if isinstance(placed, tuple) else None


def largest_share(room: Room, request: Request, held: Held | None = None) -> GpuShare:
    """Return the largest share of this class that fits the empty node, without a memory limit; 0 if
    none does.
    """
    bare = replace(request, memory_limit=None)
    least = 0 if held is None else (len(held.parts) - 1) * WHOLE
    most = least + WHOLE if held is not None else min(MAX_DEVICES, len(room.devices)) * WHOLE

    few = _few(room, MAX_DEVICES, held)

    def fits(hundredths: int) -> bool:
        return alone(few, replace(bare, gpus=GpuShare(hundredths)), held) is not None

    return GpuShare(_last_that_fits(least, most, fits))


def most_memory(room: Room, request: Request, held: Held | None = None) -> Bytes:
    """Return the highest memory limit that this share could have; 0 if there is none."""
    few = _few(room, -(-request.gpus.hundredths // WHOLE), held)
    grains = sum(device.memory_bytes for device in few.devices) // GRAIN_BYTES

    def fits(count: int) -> bool:
        return alone(few, replace(request, memory_limit=Bytes(count * GRAIN_BYTES)), held) is not None

    least = -(-request.gpus.hundredths // WHOLE) * WHOLE  # below, some part may be less than the smallest that there is
    return Bytes(_last_that_fits(least if fits(least) else 0, grains, fits) * GRAIN_BYTES)


def _few(room: Room, count: int, held: Held | None) -> Room:
    """Return the capacity of the devices that matter: a kernel's own, or *count* of each kind, as
    empty ones are alike.
    """
    if held is not None:
        own = {part.uuid for part in held.parts}
        return replace(room, devices=tuple(device for device in room.devices if device.uuid in own))
    seen: Counter[tuple[int, bool]] = Counter()
    few = []
    for device in room.devices:
        kind = (device.memory_bytes, device.is_lost)
        seen[kind] += 1
        if seen[kind] <= count:
            few.append(device)
    return replace(room, devices=tuple(few))


def _last_that_fits(least: int, most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number that fits, between *least*, which is not tried, and *most*.

    Binary search.
    """
    while least < most:
        middle = -(-(least + most) // 2)
        if fits(middle):
            least = middle
        else:
            most = middle - 1
    return least
