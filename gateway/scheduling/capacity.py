"""What of a node may still be reserved, while a plan is made: values, and every step makes another one.

It asks oversubscription.py and placement.py what the agent asks them, so that both get the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jupyter_aliquot.gpu_hook.placement.host_memory import HostRoom, host_room
from jupyter_aliquot.gpu_hook.placement.overcommit import Oversubscription, Reserved, device_state
from jupyter_aliquot.gpu_hook.placement.placement import DeviceState, Part, Refusal, place, resize
from jupyter_aliquot.provisioner.resources import Request, WorkloadClass


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
    """``closed``: devices for whose room somebody waits who comes first."""

    devices: tuple[RoomDevice, ...]
    rule: Oversubscription = field(default_factory=Oversubscription)
    reserved: Mapping[str, Reserved] = field(default_factory=dict)
    largest_kernel_bytes: int = 0
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
        is_elastic, host = request.residency != "off", room._host()
        if held is None:
            return place(states, *size, is_elastic=is_elastic, host=host)
        if request.workload_class is held.workload_class:
            kept = {part.uuid: part for part in held.parts}
            states = [state.for_owner(kept[state.uuid]) if state.uuid in kept else state for state in states]
        return resize(states, held.parts, *size, is_elastic=is_elastic, host=host)

    def take(self, parts: Iterable[Part], workload_class: WorkloadClass) -> Room:
        """After these parts were reserved."""
        taken = tuple(parts)
        largest = max(self.largest_kernel_bytes, sum(part.reserved_bytes for part in taken))
        return replace(self._changed(taken, workload_class, 1), largest_kernel_bytes=largest)

    def give_back(self, held: Held) -> Room:
        """As it would be without them."""
        return self._changed(held.parts, held.workload_class, -1)

    def close(self, parts: Sequence[Part]) -> Room:
        """With no room where these parts are."""
        return replace(self, closed=self.closed | {part.uuid for part in parts})

    def emptied(self) -> Room:
        """With nothing reserved, and no limit of host memory."""
        return Room(self.devices, replace(self.rule, host_bytes=None))

    def found(self) -> Room:
        """As if no device were lost."""
        return replace(self, devices=tuple(replace(device, is_lost=False) for device in self.devices))

    def _host(self) -> HostRoom | None:
        """Host memory that reservations beyond the devices count on."""
        devices = ((d.memory_bytes, self.reserved.get(d.uuid, Reserved()).bytes) for d in self.devices)
        return host_room(self.rule.host_bytes, devices, self.largest_kernel_bytes)

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
