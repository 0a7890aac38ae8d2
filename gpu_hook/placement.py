"""Where a request goes on one node: whole devices first, then best fit for the part.

Pure: the agent calls it before it reserves, the gateway's planner calls it on a snapshot, and both get the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

WHOLE = 100  # hundredths of one device
GRAIN_BYTES = 2 << 20  # quotas are rounded down to the driver's allocation granularity
MAX_DEVICES = 16  # of one kernel; ALIQUOT_MAX_DEVICES of the protocol header

BAD_REQUEST = "bad_request"
NEVER_FITS = "never_fits"
NO_ROOM = "no_room"
DEVICE_LOST = "device_lost"


@dataclass(frozen=True)
class DeviceState:
    """One device as a planner sees it: what it has, and what nobody has reserved."""

    uuid: str
    index: int
    memory_bytes: int
    free_hundredths: int
    free_bytes: int
    lost: bool = False


@dataclass(frozen=True)
class Part:
    """What a request gets on one device."""

    uuid: str
    index: int
    hundredths: int
    quota_bytes: int


@dataclass(frozen=True)
class Refusal:
    """Why a request was not placed: ``bad_request``, ``never_fits``, ``no_room`` or ``device_lost``."""

    code: str
    message: str


def place(
    devices: Sequence[DeviceState],
    hundredths: int,
    memory_limit: int | None = None,
    placement: Mapping[str, int] | None = None,
) -> tuple[Part, ...] | Refusal:
    """Place ``hundredths`` of GPUs, or say why not.

    ``placement`` (uuid → hundredths) is a plan made elsewhere: it is checked, not changed.
    """
    refusal = _check_request(hundredths, memory_limit)
    if refusal is not None:
        return refusal
    if placement is not None:
        return _place_as_planned(devices, hundredths, memory_limit, placement)
    usable = [device for device in devices if not device.lost]
    parts = _search(usable, hundredths, memory_limit)
    if parts is not None:
        return parts
    empty = [replace(d, free_hundredths=WHOLE, free_bytes=d.memory_bytes) for d in usable]
    if _search(empty, hundredths, memory_limit) is None:
        return _never_fits(devices, hundredths, memory_limit)
    return _no_room(usable, hundredths, memory_limit)


def quota_bytes(memory_bytes: int, part: int, hundredths: int, memory_limit: int | None) -> int:
    """The memory of ``part`` hundredths of a device, out of a request of ``hundredths`` in all."""
    share = memory_bytes * part // WHOLE if memory_limit is None else memory_limit * part // hundredths
    return share - share % GRAIN_BYTES


def format_gpus(hundredths: int) -> str:
    """``format_gpus(25) == "0.25 GPU"``, ``format_gpus(250) == "2.5 GPUs"``."""
    return f"{hundredths / WHOLE:g} {'GPU' if hundredths <= WHOLE else 'GPUs'}"


def format_bytes(amount: int) -> str:
    """``format_bytes(8 << 30) == "8.0 GiB"``."""
    return f"{amount / (1 << 30):.1f} GiB" if amount >= 1 << 30 else f"{amount / (1 << 20):.0f} MiB"


def _check_request(hundredths: int, memory_limit: int | None) -> Refusal | None:
    if hundredths <= 0:
        return Refusal(BAD_REQUEST, f"asked {format_gpus(hundredths)}; ask for 0.01 or more")
    if memory_limit is not None:
        parts = -(-hundredths // WHOLE)
        smallest = hundredths % WHOLE or WHOLE
        if memory_limit <= 0 or quota_bytes(0, smallest, hundredths, memory_limit) < GRAIN_BYTES:
            return Refusal(
                BAD_REQUEST,
                f"asked a memory limit of {format_bytes(memory_limit)} for {format_gpus(hundredths)}; "
                f"ask for at least {format_bytes(GRAIN_BYTES)} on each of its {parts} device(s)",
            )
    return None


def _holds(device: DeviceState, part: int, hundredths: int, memory_limit: int | None) -> bool:
    want = quota_bytes(device.memory_bytes, part, hundredths, memory_limit)
    return device.free_hundredths >= part and device.free_bytes >= want >= GRAIN_BYTES


def _search(usable: Sequence[DeviceState], hundredths: int, memory_limit: int | None) -> tuple[Part, ...] | None:
    """Greedy is complete here: a device that holds a whole part holds the rest as well, so no choice blocks another."""
    whole_count, rest = divmod(hundredths, WHOLE)
    if whole_count + bool(rest) > MAX_DEVICES:
        return None
    whole = [d for d in usable if _holds(d, WHOLE, hundredths, memory_limit)] if whole_count else []
    whole.sort(key=lambda d: (d.memory_bytes, d.index))
    if len(whole) < whole_count:
        return None
    chosen = [(device, WHOLE) for device in whole[:whole_count]]
    if rest:
        taken = {device.uuid for device, _ in chosen}
        partial = [d for d in usable if d.uuid not in taken and _holds(d, rest, hundredths, memory_limit)]
        if not partial:
            return None
        chosen.append((min(partial, key=lambda d: (d.free_hundredths, d.free_bytes, d.index)), rest))
    return tuple(_part(device, part, hundredths, memory_limit) for device, part in chosen)


def _part(device: DeviceState, part: int, hundredths: int, memory_limit: int | None) -> Part:
    quota = quota_bytes(device.memory_bytes, part, hundredths, memory_limit)
    return Part(device.uuid, device.index, part, quota)


def _place_as_planned(
    devices: Sequence[DeviceState], hundredths: int, memory_limit: int | None, placement: Mapping[str, int]
) -> tuple[Part, ...] | Refusal:
    if any(not 0 < part <= WHOLE for part in placement.values()) or sum(placement.values()) != hundredths:
        parts = ", ".join(f"{part / WHOLE:g}" for part in placement.values()) or "none"
        return Refusal(BAD_REQUEST, f"asked {format_gpus(hundredths)}, but its placement has the parts {parts}")
    if len(placement) > MAX_DEVICES:
        return Refusal(NEVER_FITS, f"asked {len(placement)} devices; one kernel has at most {MAX_DEVICES}")
    by_uuid = {device.uuid: device for device in devices}
    for uuid in placement:
        if uuid not in by_uuid or by_uuid[uuid].lost:
            return Refusal(DEVICE_LOST, f"asked a part of device {uuid}, which is gone from this node; plan again")
    for uuid, part in placement.items():
        device = by_uuid[uuid]
        want = quota_bytes(device.memory_bytes, part, hundredths, memory_limit)
        if want > device.memory_bytes or want < GRAIN_BYTES:
            return Refusal(
                NEVER_FITS,
                f"asked {part / WHOLE:g} of gpu{device.index} with {format_bytes(want)}; "
                f"it has {format_bytes(device.memory_bytes)}",
            )
        if not _holds(device, part, hundredths, memory_limit):
            return Refusal(
                NO_ROOM,
                f"asked {part / WHOLE:g} of gpu{device.index} ({format_bytes(want)}), {_free(device)} is free there; "
                "queued",
            )
    return tuple(_part(by_uuid[uuid], part, hundredths, memory_limit) for uuid, part in placement.items())


def _free(device: DeviceState) -> str:
    return f"{device.free_hundredths / WHOLE:g} ({format_bytes(device.free_bytes)})"


def _asked(hundredths: int, memory_limit: int | None, devices: Sequence[DeviceState]) -> str:
    if memory_limit is not None:
        return f"asked {format_gpus(hundredths)} ({format_bytes(memory_limit)})"
    if not devices:
        return f"asked {format_gpus(hundredths)}"
    largest = max(device.memory_bytes for device in devices)
    return f"asked {format_gpus(hundredths)} ({format_bytes(largest * hundredths // WHOLE)})"


def _never_fits(devices: Sequence[DeviceState], hundredths: int, memory_limit: int | None) -> Refusal:
    usable = [device for device in devices if not device.lost]
    lost = [f"gpu{device.index}" for device in devices if device.lost]
    found = f"this node has {format_gpus(WHOLE * len(usable))} ({format_bytes(sum(d.memory_bytes for d in usable))})"
    if not usable:
        found = "this node has no GPU"
    if lost:
        found += f"; {', '.join(lost)} lost"
    if -(-hundredths // WHOLE) > MAX_DEVICES:
        found += f"; one kernel has at most {MAX_DEVICES} devices"
    asked = _asked(hundredths, memory_limit, usable)
    advice = "ask for less" if usable else "see nvidia-smi and aliquot doctor"
    return Refusal(NEVER_FITS, f"{asked}, {found}; {advice}")


def _no_room(usable: Sequence[DeviceState], hundredths: int, memory_limit: int | None) -> Refusal:
    asked = _asked(hundredths, memory_limit, usable)
    whole_count, rest = divmod(hundredths, WHOLE)
    whole_free = sum(_holds(device, WHOLE, hundredths, memory_limit) for device in usable)
    if whole_count and whole_free < whole_count + bool(rest):
        return Refusal(NO_ROOM, f"{asked}, {whole_free} whole device(s) free; queued")
    best = max(usable, key=lambda d: (d.free_hundredths, d.free_bytes))
    message = f"{asked}, largest free part is {best.free_hundredths / WHOLE:g} on gpu{best.index}"
    if best.free_hundredths >= rest:
        message += f", with {format_bytes(best.free_bytes)} free"
    return Refusal(NO_ROOM, f"{message}; queued")
