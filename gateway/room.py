"""What of a node may still be reserved, while a plan is made: values, and every step makes another one.

It asks oversubscription.py and placement.py what the agent asks them, so that both get the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aliquot.gpu_hook.oversubscription import Oversubscription, Reserved, device_state
from aliquot.gpu_hook.placement import DeviceState, Part, Refusal, place, resize
from aliquot.provisioner.resources import Request, WorkloadClass


@dataclass(frozen=True)
class RoomDevice:
    """What does not change about a device while a plan is made."""

    uuid: str
    index: int
    memory_bytes: int
    is_lost: bool = False


@dataclass(frozen=True)
class Held:
    """What a running kernel has, of which class."""

    parts: tuple[Part, ...]
    workload_class: WorkloadClass


@dataclass(frozen=True)
class Room:
    """``host_bytes``: host memory for what is reserved beyond the devices, now and by the plan; None: no limit.

    ``closed``: devices for whose room somebody waits who comes first.
    """

    devices: tuple[RoomDevice, ...]
    rule: Oversubscription = field(default_factory=Oversubscription)
    reserved: Mapping[str, Reserved] = field(default_factory=dict)
    host_bytes: int | None = None
    closed: frozenset[str] = frozenset()

    def states(self, workload_class: WorkloadClass) -> list[DeviceState]:
        """The devices, as far as a request of this class may reserve of them."""
        found = [
            device_state(
                device.uuid,
                device.index,
                device.memory_bytes,
                self.reserved.get(device.uuid, Reserved()),
                self.rule,
                workload_class.value,
                lost=device.is_lost,
            )
            for device in self.devices
        ]
        return [replace(d, free_hundredths=0, free_bytes=0) if d.uuid in self.closed else d for d in found]

    def place(self, request: Request, held: Held | None = None) -> tuple[Part, ...] | Refusal:
        """Where it goes, or why not; ``held``: of a running kernel, whose devices stay."""
        room = self if held is None else self.give_back(held)
        states, size = room.states(request.workload_class), (request.gpus.hundredths, request.memory_limit)
        is_elastic, left = request.residency != "off", room.host_left
        if held is None:
            return place(states, *size, is_elastic=is_elastic, host_bytes=left)
        return resize(states, held.parts, *size, is_elastic=is_elastic, host_bytes=left)

    @property
    def host_left(self) -> int | None:
        """Host memory that reservations beyond the devices may still count on."""
        return None if self.host_bytes is None else max(0, self.host_bytes - self._beyond())

    def take(self, parts: Iterable[Part], workload_class: WorkloadClass) -> Room:
        """After these parts were reserved."""
        return self._changed(parts, workload_class, 1)

    def give_back(self, held: Held) -> Room:
        """As it would be without them."""
        return self._changed(held.parts, held.workload_class, -1)

    def close(self, parts: Sequence[Part]) -> Room:
        """With no room where these parts are."""
        return replace(self, closed=self.closed | {part.uuid for part in parts})

    def emptied(self) -> Room:
        """With nothing reserved, and no limit of host memory."""
        return Room(self.devices, self.rule)

    def found(self) -> Room:
        """As if no device were lost."""
        return replace(self, devices=tuple(replace(device, is_lost=False) for device in self.devices))

    def _beyond(self) -> int:
        reserved = ((d.memory_bytes, self.reserved.get(d.uuid, Reserved()).bytes) for d in self.devices)
        return sum(max(0, amount - memory) for memory, amount in reserved)

    def _changed(self, parts: Iterable[Part], workload_class: WorkloadClass, sign: int) -> Room:
        reserved = dict(self.reserved)
        is_production = workload_class is WorkloadClass.PRODUCTION
        for part in parts:
            before = reserved.get(part.uuid, Reserved())
            share, amount = sign * part.hundredths, sign * part.reserved_bytes
            reserved[part.uuid] = Reserved(
                before.hundredths + share,
                before.bytes + amount,
                before.production_hundredths + (share if is_production else 0),
                before.production_bytes + (amount if is_production else 0),
            )
        return replace(self, reserved=reserved)


def room_now(
    devices: tuple[RoomDevice, ...],
    rule: Oversubscription,
    reserved: Mapping[str, Reserved],
    host_left: int | None,
) -> Room:
    """From what the agent tells: it says what is left of the host's memory, and we what is counted off it."""
    room = Room(devices, rule, reserved)
    return room if host_left is None else replace(room, host_bytes=host_left + room._beyond())
