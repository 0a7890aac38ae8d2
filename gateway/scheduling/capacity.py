"""The free capacity of a node while a plan is made: values, of which every step makes another one.

It uses the functions of ``gpu_hook.placement`` that the agent uses, so that both come to the same
result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jupyter_aliquot.gpu_hook.placement.host_memory import HostRoom, host_room
from jupyter_aliquot.gpu_hook.placement.overcommit import Oversubscription, Reserved, device_state
from jupyter_aliquot.gpu_hook.placement.placement import DeviceState, Part, Refusal, place, resize
from jupyter_aliquot.provisioner.resources import Request, WorkloadClass


@dataclass(frozen=True)
class CapacityDevice:
    """The facts of a device that do not change while a plan is made."""

    uuid: str
    index: int
    memory_bytes: int
    is_lost: bool = False
    context_bytes: int = 0


@dataclass(frozen=True)
class Held:
    """The parts that a running kernel holds, and its class."""

    parts: tuple[Part, ...]
    workload_class: WorkloadClass


@dataclass(frozen=True)
class Capacity:
    """The free capacity. ``closed`` are devices whose capacity an earlier request waits for."""

    devices: tuple[CapacityDevice, ...]
    rule: Oversubscription = field(default_factory=Oversubscription)
    reserved: Mapping[str, Reserved] = field(default_factory=dict)
    largest_kernel_bytes: int = 0
    closed: frozenset[str] = frozenset()

    def states(self, workload_class: WorkloadClass) -> list[DeviceState]:
        """Return the devices, as far as a request of this class may reserve parts of them."""
        found = [
            device_state(
                device.uuid,
                device.index,
                device.memory_bytes,
                self.reserved.get(device.uuid, Reserved()),
                self.rule,
                workload_class.value,
                lost=device.is_lost,
                context_bytes=device.context_bytes,
            )
            for device in self.devices
        ]
        return [replace(d, free_hundredths=0, free_bytes=0) if d.uuid in self.closed else d for d in found]

    def place(self, request: Request, held: Held | None = None) -> tuple[Part, ...] | Refusal:
        """Return the parts for a request, or the reason why it does not fit.

        A running kernel keeps its devices (*held*).
        """
        capacity = self if held is None else self.give_back(held)
        states, size = capacity.states(request.workload_class), (request.gpus.hundredths, request.memory_limit)
        is_burstable, host = request.residency != "off", capacity._host()
        if held is None:
            return place(states, *size, is_burstable=is_burstable, host=host)
        if request.workload_class is held.workload_class:
            kept = {part.uuid: part for part in held.parts}
            states = [state.for_owner(kept[state.uuid]) if state.uuid in kept else state for state in states]
        return resize(states, held.parts, *size, is_burstable=is_burstable, host=host)

    def place_back(self, request: Request, parts: Sequence[Part]) -> tuple[Part, ...] | Refusal:
        """Return the parts of an evicted kernel on its devices, or the reason why they do not fit there now."""
        states, size = self.states(request.workload_class), (request.gpus.hundredths, request.memory_limit)
        return resize(states, parts, *size, is_burstable=request.residency != "off", host=self._host())

    def place_alone(self, request: Request, held: Held | None = None) -> tuple[Part, ...] | Refusal:
        """Return the request's parts on the empty node, or the reason why it does not fit.

        ``held``: the parts of a running kernel, which stays there.
        """
        empty = self.emptied()
        return (empty if held is None else empty.take(held.parts, held.workload_class)).place(request, held)

    def take(self, parts: Iterable[Part], workload_class: WorkloadClass) -> Capacity:
        """Return the capacity after these parts were reserved."""
        taken = tuple(parts)
        largest = max(self.largest_kernel_bytes, sum(part.reserved_bytes for part in taken))
        return replace(self._changed(taken, workload_class, 1), largest_kernel_bytes=largest)

    def give_back(self, held: Held) -> Capacity:
        """Return the capacity after these parts were released."""
        return self._changed(held.parts, held.workload_class, -1)

    def set_aside(self, held: Held) -> Capacity:
        """Return the capacity with less host memory: the copy of a kernel that was swapped out takes it."""
        if self.rule.host_bytes is None:
            return self
        copy_bytes = sum(part.reserved_bytes for part in held.parts)
        # Below 0 where the budget cannot hold the copy, so that no request fits then.
        return replace(self, rule=replace(self.rule, host_bytes=self.rule.host_bytes - copy_bytes))

    def close(self, parts: Sequence[Part]) -> Capacity:
        """Return the capacity with none on the devices of these parts."""
        return replace(self, closed=self.closed | {part.uuid for part in parts})

    def emptied(self) -> Capacity:
        """Return the capacity of the empty node, without a limit of host memory."""
        return Capacity(self.devices, replace(self.rule, host_bytes=None))

    def found(self) -> Capacity:
        """Return the capacity as if no device were lost."""
        return replace(self, devices=tuple(replace(device, is_lost=False) for device in self.devices))

    def _host(self) -> HostRoom | None:
        """Return the host memory that reservations beyond the devices' memory count on."""
        devices = ((d.memory_bytes, self.reserved.get(d.uuid, Reserved()).bytes) for d in self.devices)
        return host_room(self.rule.host_bytes, devices, self.largest_kernel_bytes)

    def _changed(self, parts: Iterable[Part], workload_class: WorkloadClass, sign: int) -> Capacity:
        reserved = dict(self.reserved)
        is_production = workload_class is WorkloadClass.PRODUCTION
        for part in parts:
            reserved[part.uuid] = reserved.get(part.uuid, Reserved()).plus(part, is_production, sign)
        return replace(self, reserved=reserved)
