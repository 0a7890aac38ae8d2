"""The largest that a node could ever hold, found by asking where things are placed. Pure; it knows no rule itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from jupyter_aliquot.gpu_hook.placement.placement import GRAIN_BYTES, MAX_DEVICES, WHOLE, Part
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Request

from .capacity import Held, Room


def alone(room: Room, request: Request, held: Held | None = None) -> tuple[Part, ...] | None:
    """Where it would be on the empty node, ``held`` being where it is; None: nowhere."""
    empty = room.emptied()
    placed = (empty if held is None else empty.take(held.parts, held.workload_class)).place(request, held)
    return placed if isinstance(placed, tuple) else None


def largest_share(room: Room, request: Request, held: Held | None = None) -> GpuShare:
    """The largest share of this class that fits the empty node, without a memory limit; 0: none does."""
    bare = replace(request, memory_limit=None)
    least = 0 if held is None else (len(held.parts) - 1) * WHOLE
    most = least + WHOLE if held is not None else min(MAX_DEVICES, len(room.devices)) * WHOLE

    few = _few(room, MAX_DEVICES, held)

    def fits(hundredths: int) -> bool:
        return alone(few, replace(bare, gpus=GpuShare(hundredths)), held) is not None

    return GpuShare(_last_that_fits(least, most, fits))


def most_memory(room: Room, request: Request, held: Held | None = None) -> Bytes:
    """The highest memory limit that this share could have; 0: none."""
    few = _few(room, -(-request.gpus.hundredths // WHOLE), held)
    grains = sum(device.memory_bytes for device in few.devices) // GRAIN_BYTES

    def fits(count: int) -> bool:
        return alone(few, replace(request, memory_limit=Bytes(count * GRAIN_BYTES)), held) is not None

    least = -(-request.gpus.hundredths // WHOLE) * WHOLE  # below, some part may be less than the smallest that there is
    return Bytes(_last_that_fits(least if fits(least) else 0, grains, fits) * GRAIN_BYTES)


def _few(room: Room, count: int, held: Held | None) -> Room:
    """With no more devices than matter: a kernel's own, else so many of each kind, for empty ones are alike."""
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
    """Between ``least``, which is not asked for, and ``most``."""
    while least < most:
        middle = -(-(least + most) // 2)
        if fits(middle):
            least = middle
        else:
            most = middle - 1
    return least
