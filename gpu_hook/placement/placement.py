"""Place a request on one node: whole devices first, then best fit for the part.

Pure: the agent calls it before it reserves, the gateway's planner calls it on a snapshot, and both
get the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .host_memory import HostRoom, HostShortage

WHOLE = 100  # hundredths of one device
GRAIN_BYTES = 2 << 20  # quotas are rounded down to the driver's allocation granularity
MAX_DEVICES = 16  # of one kernel; ALIQUOT_MAX_DEVICES of the protocol header

BAD_REQUEST = "bad_request"
NEVER_FITS = "never_fits"
NO_ROOM = "no_room"
DEVICE_LOST = "device_lost"


@dataclass(frozen=True)
class DeviceState:
    """One device as a planner sees it, for one class.

    It has the device's size, and the capacity that may still be reserved (``free``). Where more is
    reserved than there is, ``reservable`` is the limit of all reservations, and ``backed`` is the
    part of the free capacity that the device itself has: kernels beyond that take turns.
    ``firm_bytes`` is the most for a kernel whose memory never leaves. overcommit.py makes these.
    """

    uuid: str
    index: int
    memory_bytes: int
    free_hundredths: int
    free_bytes: int
    lost: bool = False
    reservable_hundredths: int = WHOLE
    reservable_bytes: int | None = None  # None: the device's memory
    backed_hundredths: int | None = None  # None: all that is free
    backed_bytes: int | None = None
    firm_bytes: int | None = None  # None: all that is free
    # What it costs to run beside its kernels, by a planner that knows their loads: the less, the sooner it is chosen.
    interference: tuple[float, float] = (0.0, 0.0)

    def emptied(self) -> DeviceState:
        """Return the device with nothing reserved."""
        most = self.memory_bytes if self.reservable_bytes is None else self.reservable_bytes
        return replace(
            self,
            free_hundredths=self.reservable_hundredths,
            free_bytes=most,
            backed_hundredths=min(WHOLE, self.reservable_hundredths),
            backed_bytes=min(self.memory_bytes, most),
            firm_bytes=None,
        )

    def without(self, part: Part) -> DeviceState:
        """Return the device once ``part`` of it is reserved, too."""
        hundredths, amount = self.backed
        return replace(
            self,
            free_hundredths=self.free_hundredths - part.hundredths,
            free_bytes=self.free_bytes - part.reserved_bytes,
            backed_hundredths=max(0, hundredths - part.hundredths),
            backed_bytes=max(0, amount - part.reserved_bytes),
            firm_bytes=None if self.firm_bytes is None else max(0, self.firm_bytes - part.reserved_bytes),
        )

    def for_owner(self, part: Part) -> DeviceState:
        """Return the device for the kernel that has ``part`` of it, which is free here.

        The kernel may keep it, though rules are stricter now.
        """
        return replace(
            self,
            free_hundredths=max(self.free_hundredths, part.hundredths),
            free_bytes=max(self.free_bytes, part.reserved_bytes),
            firm_bytes=None if self.firm_bytes is None else max(self.firm_bytes, part.reserved_bytes * part.is_kept),
        )

    @property
    def backed(self) -> tuple[int, int]:
        """Return the free hundredths and bytes that the device has itself."""
        hundredths, amount = self.backed_hundredths, self.backed_bytes
        return (
            self.free_hundredths if hundredths is None else hundredths,
            self.free_bytes if amount is None else amount,
        )


@dataclass(frozen=True)
class Part:
    """The part of a request on one device.

    ``guarantee_bytes`` are reserved; the kernel may take up to ``quota_bytes``. Memory between the
    two is burstable: used while it is free, given back when another kernel's guarantee needs it.
    ``is_kept``: the memory never leaves the device.
    """

    uuid: str
    index: int
    hundredths: int
    quota_bytes: int
    guarantee_bytes: int | None = None  # None: all of the quota
    is_kept: bool = False

    @property
    def reserved_bytes(self) -> int:
        return self.quota_bytes if self.guarantee_bytes is None else self.guarantee_bytes


@dataclass(frozen=True)
class _Asked:
    """A request, and its size on a device."""

    hundredths: int
    memory_limit: int | None
    residency: str

    @property
    def is_kept(self) -> bool:
        """Tell whether the memory never leaves its devices."""
        return self.residency == "off"

    @property
    def is_paged(self) -> bool:
        """Tell whether the driver pages the memory, so that a device need not have all of it."""
        return self.residency == "managed"

    def part(self, device: DeviceState, hundredths: int) -> Part:
        quota = quota_bytes(device.memory_bytes, hundredths, self.hundredths, self.memory_limit)
        share = quota_bytes(device.memory_bytes, hundredths, self.hundredths, None)
        guarantee = share if not self.is_kept and share < quota else None
        return Part(device.uuid, device.index, hundredths, quota, guarantee, self.is_kept)

    def fits(self, device: DeviceState, hundredths: int) -> bool:
        part = self.part(device, hundredths)
        is_firm = not self.is_kept or device.firm_bytes is None or device.firm_bytes >= part.reserved_bytes
        return (
            is_firm
            and device.free_hundredths >= hundredths
            and device.free_bytes >= part.reserved_bytes >= GRAIN_BYTES
            and not self.is_too_large(device, part)
        )

    def is_too_large(self, device: DeviceState, part: Part) -> bool:
        """Tell whether the device can never hold the part."""
        return part.quota_bytes > device.memory_bytes and not self.is_paged

    def is_backed(self, device: DeviceState, hundredths: int) -> bool:
        """Return whether the device has room for this without kernels taking turns."""
        backed = device.backed
        return backed[0] >= hundredths and backed[1] >= self.part(device, hundredths).reserved_bytes


@dataclass(frozen=True)
class Refusal:
    """The reason why a request was not placed.

    It is ``bad_request``, ``never_fits``, ``no_room`` or ``device_lost``. ``host`` is set where the
    devices have room, and the host has none for the copies of kernels that take turns.
    """

    code: str
    message: str
    host: HostShortage | None = None


def place(
    devices: Sequence[DeviceState],
    hundredths: int,
    memory_limit: int | None = None,
    placement: Mapping[str, int] | None = None,
    *,
    residency: str = "",
    host: HostRoom | None = None,
) -> tuple[Part, ...] | Refusal:
    """Place ``hundredths`` of GPUs, or return a Refusal.

    ``placement`` (uuid → hundredths) is a plan made elsewhere: it is checked, not changed.
    ``residency`` ``off``: the kernel can never give memory back, and its whole limit is reserved;
    ``managed``: its limit may exceed its devices, as far as the host has memory for the rest. ``host``
    is the host memory for reservations beyond the devices (None: no limit).
    """
    refusal = _check_request(hundredths, memory_limit)
    if refusal is not None:
        return refusal
    asked = _Asked(hundredths, memory_limit, residency)
    if placement is not None:
        parts = _place_as_planned(devices, asked, placement)
    else:
        usable = [device for device in devices if not device.lost]
        found = _search(usable, asked)
        if found is None:
            if _search([device.emptied() for device in usable], asked) is None:
                return _never_fits(devices, hundredths, memory_limit)
            return _no_room(usable, asked)
        parts = found
    if isinstance(parts, Refusal) or host is None:
        return parts
    return _check_pages(devices, parts, host, 0) or _check_host(devices, parts, host, host.budget_bytes)


def resize(
    devices: Sequence[DeviceState],
    parts: Sequence[Part],
    hundredths: int,
    memory_limit: int | None,
    *,
    residency: str = "",
    host: HostRoom | None = None,
) -> tuple[Part, ...] | Refusal:
    """Return another size on the same devices, or a Refusal.

    ``devices`` are as they are without this kernel's ``parts``.
    """
    refusal = _check_request(hundredths, memory_limit)
    if refusal is not None:
        return refusal
    plan = {part.uuid: part.hundredths for part in parts}
    if sum(plan.values()) != hundredths:
        if -(-hundredths // WHOLE) != len(parts):
            return Refusal(
                BAD_REQUEST,
                f"Requested {format_gpus(hundredths)}, but the kernel runs on {len(parts)} device(s), and "
                "a kernel that runs keeps its number of devices. Restart it with the new size",
            )
        whole_first = sorted(plan, key=lambda uuid: -plan[uuid])
        plan = dict.fromkeys(whole_first, WHOLE)
        plan[whole_first[-1]] = hundredths % WHOLE or WHOLE
        plan = {part.uuid: plan[part.uuid] for part in parts}  # CUDA numbers them in this order
    resized = _place_as_planned(devices, _Asked(hundredths, memory_limit, residency), plan)
    if isinstance(resized, Refusal) or host is None:
        return resized
    # A kernel that shrinks is never refused, even if the reservations already exceed the budget.
    return _check_pages(devices, resized, host, _paged(devices, parts)) or _check_host(
        devices, resized, host, max(host.budget_bytes, host.needs(*_beyond(devices, parts)))
    )


def quota_bytes(memory_bytes: int, part: int, hundredths: int, memory_limit: int | None) -> int:
    """Return the memory of ``part`` hundredths of a device.

    The request has ``hundredths`` in total.
    """
    share = memory_bytes * part // WHOLE if memory_limit is None else memory_limit * part // hundredths
    return share - share % GRAIN_BYTES


def format_gpus(hundredths: int) -> str:
    """Format a number of GPUs.

    ``format_gpus(25) == "0.25 GPU"``, ``format_gpus(250) == "2.5 GPUs"``.
    """
    return f"{hundredths / WHOLE:g} {'GPU' if hundredths <= WHOLE else 'GPUs'}"


def format_bytes(amount: int) -> str:
    """Format an amount of memory: ``format_bytes(8 << 30) == "8.0 GiB"``."""
    return f"{amount / (1 << 30):.1f} GiB" if amount >= 1 << 30 else f"{amount / (1 << 20):.0f} MiB"


def over_limit(owner: str, hundredths: int, held: int, limit: int) -> str:
    """Return why an owner who holds so much already cannot have more."""
    return (
        f"Requested {format_gpus(hundredths)}, but {owner} holds {format_gpus(held)} and may hold {limit / WHOLE:g} "
        "in all. Choose a smaller size, or end a kernel"
    )


def _check_request(hundredths: int, memory_limit: int | None) -> Refusal | None:
    if hundredths <= 0:
        return Refusal(
            BAD_REQUEST, f"Requested {format_gpus(hundredths)}, but a size is 0.01 GPU or more. Ask for 0.01 or more"
        )
    if memory_limit is not None:
        parts = -(-hundredths // WHOLE)
        smallest = hundredths % WHOLE or WHOLE
        if memory_limit <= 0 or quota_bytes(0, smallest, hundredths, memory_limit) < GRAIN_BYTES:
            return Refusal(
                BAD_REQUEST,
                f"Requested a memory limit of {format_bytes(memory_limit)} for {format_gpus(hundredths)}, "
                f"which is too small. Ask for at least {format_bytes(GRAIN_BYTES)} on each of its {parts} "
                "device(s)",
            )
    return None


def _search(usable: Sequence[DeviceState], asked: _Asked) -> tuple[Part, ...] | None:
    """Search greedily, which is complete here.

    A device that holds a whole part also holds the rest, so no choice blocks another. Devices that
    have the memory themselves come first; beyond that, kernels are spread, since they will take
    turns. Of devices alike in that, the one with the least interference is taken, then the first.
    """
    whole_count, rest = divmod(asked.hundredths, WHOLE)
    if whole_count + bool(rest) > MAX_DEVICES:
        return None
    whole = [d for d in usable if asked.fits(d, WHOLE)] if whole_count else []
    whole.sort(
        key=lambda d: (not asked.is_backed(d, WHOLE), d.memory_bytes, -d.free_hundredths, d.interference, d.index)
    )
    if len(whole) < whole_count:
        return None
    chosen = [(device, WHOLE) for device in whole[:whole_count]]
    if rest:
        taken = {device.uuid for device, _ in chosen}
        partial = [d for d in usable if d.uuid not in taken and asked.fits(d, rest)]
        if not partial:
            return None
        backed = [d for d in partial if asked.is_backed(d, rest)]
        if backed:
            chosen.append((min(backed, key=lambda d: (*d.backed, d.interference, d.index)), rest))
        else:
            spread = min(partial, key=lambda d: (-d.free_hundredths, -d.free_bytes, d.interference, d.index))
            chosen.append((spread, rest))
    return tuple(asked.part(device, part) for device, part in chosen)


def _place_as_planned(
    devices: Sequence[DeviceState], asked: _Asked, placement: Mapping[str, int]
) -> tuple[Part, ...] | Refusal:
    hundredths = asked.hundredths
    if any(not 0 < part <= WHOLE for part in placement.values()) or sum(placement.values()) != hundredths:
        parts = ", ".join(f"{part / WHOLE:g}" for part in placement.values()) or "none"
        return Refusal(
            BAD_REQUEST,
            f"Requested {format_gpus(hundredths)}, but its placement has the parts {parts}. Send "
            "parts above 0 and at most 1 that add up to the size",
        )
    if len(placement) > MAX_DEVICES:
        return Refusal(
            NEVER_FITS, f"Requested {len(placement)} devices, but one kernel has at most {MAX_DEVICES}. Ask for less"
        )
    by_uuid = {device.uuid: device for device in devices}
    for uuid in placement:
        if uuid not in by_uuid or by_uuid[uuid].lost:
            return Refusal(DEVICE_LOST, f"Requested a part of device {uuid}, which is gone from this node. Plan again")
    for uuid, hundredths in placement.items():
        device = by_uuid[uuid]
        part = asked.part(device, hundredths)
        if asked.is_too_large(device, part) or part.quota_bytes < GRAIN_BYTES:
            return Refusal(
                NEVER_FITS,
                f"Requested {hundredths / WHOLE:g} of gpu{device.index} with "
                f"{format_bytes(part.quota_bytes)}, but the device has "
                f"{format_bytes(device.memory_bytes)}. Ask for less",
            )
        if not asked.fits(device, hundredths):
            return Refusal(
                NO_ROOM,
                f"Requested {hundredths / WHOLE:g} of gpu{device.index} "
                f"({format_bytes(part.reserved_bytes)}), but {_free(device)} is free there. Queued",
            )
    return tuple(asked.part(by_uuid[uuid], part) for uuid, part in placement.items())


def _check_pages(devices: Sequence[DeviceState], parts: Sequence[Part], host: HostRoom, known: int) -> Refusal | None:
    """Return a refusal if the host cannot hold the pages of one kernel that its devices never have.

    ``known``: the bytes that it may page already.
    """
    paged = _paged(devices, parts)
    if paged <= max(host.budget_bytes, known):
        return None
    return Refusal(
        NEVER_FITS,
        f"Requested a memory limit of {format_bytes(sum(part.quota_bytes for part in parts))}, of which the devices "
        f"lack {format_bytes(paged)}, but {format_bytes(host.budget_bytes)} of host memory is for what leaves them. "
        "Ask for less",
    )


def _paged(devices: Sequence[DeviceState], parts: Sequence[Part]) -> int:
    """Return the bytes of these parts that exceed the memory of their devices."""
    memory = {device.uuid: device.memory_bytes for device in devices}
    return sum(max(0, part.quota_bytes - memory.get(part.uuid, part.quota_bytes)) for part in parts)


def _check_host(
    devices: Sequence[DeviceState], parts: Sequence[Part], host: HostRoom, most_bytes: int
) -> tuple[Part, ...] | Refusal:
    """Return a refusal if the bytes beyond the devices do not fit on the host."""
    taken, short = _beyond(devices, parts)
    needs = host.needs(taken, short)
    if needs <= most_bytes:
        return tuple(parts)
    return Refusal(
        NO_ROOM,
        f"Requested {format_bytes(taken)}, of which the devices lack {format_bytes(short)}; "
        f"copies of swapped kernels may then need {format_bytes(needs)} of host memory, but "
        f"{format_bytes(host.budget_bytes)} is for them. Queued",
        HostShortage(needs, host.budget_bytes),
    )


def _beyond(devices: Sequence[DeviceState], parts: Sequence[Part]) -> tuple[int, int]:
    """Return the bytes that these parts reserve, and how many of them the devices do not have."""
    backed = {device.uuid: device.backed[1] for device in devices}
    short = sum(max(0, part.reserved_bytes - backed.get(part.uuid, 0)) for part in parts)
    return sum(part.reserved_bytes for part in parts), short


def _free(device: DeviceState) -> str:
    return f"{device.free_hundredths / WHOLE:g} ({format_bytes(device.free_bytes)})"


def _asked(hundredths: int, memory_limit: int | None, devices: Sequence[DeviceState]) -> str:
    if memory_limit is not None:
        return f"Requested {format_gpus(hundredths)} ({format_bytes(memory_limit)})"
    if not devices:
        return f"Requested {format_gpus(hundredths)}"
    largest = max(device.memory_bytes for device in devices)
    return f"Requested {format_gpus(hundredths)} ({format_bytes(largest * hundredths // WHOLE)})"


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
    advice = "Ask for less" if usable else "See nvidia-smi and aliquot doctor"
    return Refusal(NEVER_FITS, f"{asked}, but {found}. {advice}")


def _no_room(usable: Sequence[DeviceState], asked: _Asked) -> Refusal:
    text = _asked(asked.hundredths, asked.memory_limit, usable)
    whole_count, rest = divmod(asked.hundredths, WHOLE)
    whole_free = sum(asked.fits(device, WHOLE) for device in usable)
    if whole_count and whole_free < whole_count + bool(rest):
        return Refusal(NO_ROOM, f"{text}, but {whole_free} whole device(s) are free. Queued")
    best = max(usable, key=lambda d: (d.free_hundredths, d.free_bytes))
    message = f"{text}, but the largest free part is {best.free_hundredths / WHOLE:g} on gpu{best.index}"
    if best.free_hundredths >= rest:
        message += f", with {format_bytes(best.free_bytes)} free"
    return Refusal(NO_ROOM, f"{message}. Queued")
