"""Who goes next: pure ``plan(snapshot, pending, now)``. No I/O, no clock, the same answer for the same arguments.

First come, first served: the head of the queue that does not fit now blocks those behind it, so that a large request
is not starved by small ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aliquot.gpu_hook.placement import (
    BAD_REQUEST,
    NEVER_FITS,
    WHOLE,
    DeviceState,
    Part,
    Refusal,
    format_bytes,
    format_gpus,
    place,
)
from aliquot.provisioner.errors import (
    AliquotError,
    DeviceLostError,
    NeverFitsError,
    QueueTimeoutError,
    RequestError,
)
from aliquot.provisioner.resources import Request

from .ledger import LedgerSnapshot


@dataclass(frozen=True)
class Pending:
    """One request in the queue, in order of arrival. ``deadline``: until when its asker waits; None: for ever."""

    kernel_id: str
    owner: str
    request: Request
    since: float
    deadline: float | None = None


@dataclass(frozen=True)
class Admit:
    """Reserve this, here."""

    kernel_id: str
    parts: tuple[Part, ...]

    def placement(self) -> dict[str, int]:
        """uuid → hundredths, as the agent takes it."""
        return {part.uuid: part.hundredths for part in self.parts}


@dataclass(frozen=True)
class Wait:
    """Stay in the queue, for this reason."""

    kernel_id: str
    position: int
    reason: str


@dataclass(frozen=True)
class Refuse:
    """Leave the queue with this error."""

    kernel_id: str
    error: AliquotError


@dataclass(frozen=True)
class Plan:
    """What to do with each pending request: every one of them is in exactly one of the three."""

    admissions: tuple[Admit, ...] = ()
    waiting: tuple[Wait, ...] = ()
    refusals: tuple[Refuse, ...] = ()


def plan(snapshot: LedgerSnapshot, pending: Sequence[Pending], now: float) -> Plan:
    """Admit the heads that fit, in order; refuse what can never fit or has waited too long; let the rest wait."""
    devices = snapshot.device_states()
    admissions: list[Admit] = []
    blocked: list[Pending] = []
    refusals: list[Refuse] = []
    for entry in pending:
        error = never_fits(devices, entry.request)
        if error is not None:
            refusals.append(Refuse(entry.kernel_id, error))
            continue
        placed = _place(devices, entry.request) if not blocked else None
        if isinstance(placed, tuple):
            admissions.append(Admit(entry.kernel_id, placed))
            devices = _take(devices, placed)
        elif entry.deadline is not None and now >= entry.deadline:
            position = len(blocked) + 1
            refusals.append(Refuse(entry.kernel_id, _waited_too_long(devices, entry, position, now)))
        else:
            blocked.append(entry)
    waiting = tuple(
        Wait(entry.kernel_id, position, _reason(devices, entry.request, position, len(blocked)))
        for position, entry in enumerate(blocked, 1)
    )
    return Plan(tuple(admissions), waiting, tuple(refusals))


def never_fits(devices: Sequence[DeviceState], request: Request) -> AliquotError | None:
    """The error of a request that waiting cannot help; None for one that fits the empty node."""
    empty = [replace(d, free_hundredths=WHOLE, free_bytes=d.memory_bytes) for d in devices]
    placed = _place(empty, request)
    if isinstance(placed, tuple):
        return None
    if placed.code == BAD_REQUEST:
        return RequestError(placed.message)
    if placed.code == NEVER_FITS and isinstance(_place([replace(d, lost=False) for d in empty], request), tuple):
        return DeviceLostError(placed.message)
    return NeverFitsError(placed.message)


def _place(devices: Sequence[DeviceState], request: Request) -> tuple[Part, ...] | Refusal:
    return place(devices, request.gpus.hundredths, request.memory_limit)


def _take(devices: Sequence[DeviceState], parts: tuple[Part, ...]) -> list[DeviceState]:
    by_uuid = {part.uuid: part for part in parts}
    return [
        replace(
            device,
            free_hundredths=device.free_hundredths - by_uuid[device.uuid].hundredths,
            free_bytes=device.free_bytes - by_uuid[device.uuid].quota_bytes,
        )
        if device.uuid in by_uuid
        else device
        for device in devices
    ]


def _reason(devices: Sequence[DeviceState], request: Request, position: int, length: int) -> str:
    return f"waiting for {_asked(request)}: {_free(devices, request)}, position {position} of {length}"


def _waited_too_long(devices: Sequence[DeviceState], entry: Pending, position: int, now: float) -> QueueTimeoutError:
    ahead = position - 1
    before = "nobody" if ahead == 0 else f"{ahead} request" + ("s" if ahead > 1 else "")
    return QueueTimeoutError(
        f"asked {_asked(entry.request)}; {_free(devices, entry.request)}; waited {now - entry.since:.0f} s in the "
        f"queue with {before} before it. Ask for less, end a kernel that is not needed, or try again"
    )


def _asked(request: Request) -> str:
    asked = format_gpus(request.gpus.hundredths)
    return asked if request.memory_limit is None else f"{asked} with {format_bytes(request.memory_limit)}"


def _free(devices: Sequence[DeviceState], request: Request) -> str:
    """What is free, where it matters: whole devices for a request of several, else the roomiest device."""
    usable = [device for device in devices if not device.lost]
    if not usable:
        return "no device here"
    if request.gpus.hundredths > WHOLE:
        whole = sum(device.free_hundredths == WHOLE for device in usable)
        return f"{whole} of {len(usable)} devices free"
    best = max(usable, key=lambda d: (d.free_hundredths, d.free_bytes, -d.index))
    free = f"{best.free_hundredths / WHOLE:g} free on gpu{best.index}"
    if request.memory_limit is not None or best.free_hundredths >= request.gpus.hundredths:
        free += f" with {format_bytes(best.free_bytes)}"
    return free
