"""A running kernel that changes its size: on which devices, and whether it needs room there. Pure.

A kernel keeps its devices for its life, for CUDA has numbered them: only their parts change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aliquot.gpu_hook.placement import WHOLE, DeviceState, Part, Refusal, format_gpus, place
from aliquot.provisioner.errors import GrantError
from aliquot.provisioner.resources import Grant, Request


def held_parts(grant: Grant) -> tuple[Part, ...]:
    """What a grant holds, as placement names it."""
    return tuple(
        Part(uuid=quota.uuid, index=quota.index, hundredths=quota.share.hundredths, quota_bytes=int(quota.memory))
        for quota in grant.quotas
    )


def changed_placement(parts: Sequence[Part], request: Request) -> dict[str, int]:
    """uuid → hundredths after the change: whole devices stay first. Raises GrantError for another number of them."""
    whole, rest = divmod(request.gpus.hundredths, WHOLE)
    shares = [WHOLE] * whole + ([rest] if rest else [])
    if len(shares) != len(parts):
        held = format_gpus(sum(part.hundredths for part in parts))
        raise GrantError(
            f"asked {format_gpus(request.gpus.hundredths)}, which takes {_devices(len(shares))}; the kernel has "
            f"{held} on {_devices(len(parts))}, and a kernel keeps its devices while it runs. Ask for a size on "
            f"{_devices(len(parts))}, or start a kernel of the other size"
        )
    first = sorted(parts, key=lambda part: -part.hundredths)
    return {part.uuid: share for part, share in zip(first, shares, strict=True)}


def place_change(devices: Sequence[DeviceState], parts: Sequence[Part], request: Request) -> tuple[Part, ...] | Refusal:
    """Where the kernel is after the change, or why not. Its own parts are free for it. Raises GrantError."""
    placement = changed_placement(parts, request)
    return place(give_back(devices, parts), request.gpus.hundredths, request.memory_limit, placement)


def needs_room(devices: Sequence[DeviceState], parts: Sequence[Part], request: Request) -> bool:
    """Whether the change takes more of some device than the kernel holds there."""
    empty = [device.emptied() for device in devices]
    placed = place_change(empty, parts, request)
    if isinstance(placed, Refusal):
        return True
    held = {part.uuid: part for part in parts}
    return any(
        part.hundredths > held[part.uuid].hundredths or part.quota_bytes > held[part.uuid].quota_bytes
        for part in placed
    )


def give_back(devices: Sequence[DeviceState], parts: Sequence[Part]) -> list[DeviceState]:
    """The devices as they would be without these parts."""
    held = {part.uuid: part for part in parts}
    return [
        replace(
            device,
            free_hundredths=device.free_hundredths + held[device.uuid].hundredths,
            free_bytes=device.free_bytes + held[device.uuid].quota_bytes,
        )
        if device.uuid in held
        else device
        for device in devices
    ]


def close_devices(devices: Sequence[DeviceState], parts: Sequence[Part]) -> list[DeviceState]:
    """The devices with no room where these parts are: who waits there first is not overtaken there."""
    held = {part.uuid for part in parts}
    return [replace(d, free_hundredths=0, free_bytes=0) if d.uuid in held else d for d in devices]


def _devices(count: int) -> str:
    return f"{count} device" + ("s" if count != 1 else "")
