"""The compute keeper samples contended devices and carries out their controllers' orders.

It takes a sample every few milliseconds.
It alone writes gates and paces, and subscribes processes to activity pages. It does nothing while no device
is shared. The protection of production holds from a process's welcome on, and does not wait for a
sample.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from jupyter_aliquot.gpu_hook.agent.actuators.actuation import Actuation
from jupyter_aliquot.gpu_hook.agent.compute.measurement.reading import Reader, Who
from jupyter_aliquot.gpu_hook.agent.compute.measurement.subscriptions import (
    AGGREGATE,
    AggregateActivityPage,
    Subscription,
    first_subscriptions,
)
from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND, SECOND, Controller
from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceReading
from jupyter_aliquot.gpu_hook.agent.pages.activity_page import ActivitySide
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import Order
from jupyter_aliquot.gpu_hook.protocol.codec import MAX_PEERS, NO_LIMIT, Role

from .controllers import CONTROLLERS
from .device_controller import DeviceController
from .eviction import Evictions
from .facts import Leases, Member, Owner, ProcessRecord, Session
from .orders import combine
from .settings import ComputeSettings
from .status import describe_control, describe_share

log = logging.getLogger(__name__)

_TOGETHER = MILLISECOND  # take samples that are due within this time at once
_TELL_AGAIN, _TELL_MOST_RARELY = (
    5 * MILLISECOND,
    500 * MILLISECOND,
)  # a controller that reads nothing costs little
_STALL = SECOND
MOST_OF_A_CORE = 0.03  # for sampling: with many processes, the keeper samples less often
LONGEST_INTERVAL = 50 * MILLISECOND
_COST_SMOOTHING = 0.1


class ComputeKeeper:
    """Samples devices and writes orders. Implements facts.Watch.

    Args:
        clock: CLOCK_MONOTONIC in nanoseconds.
        actuation: The actuators in force.
        make: Makes a controller for one device; None: by the settings.
        cpu_clock: The time that sampling costs, in nanoseconds.
    """

    def __init__(
        self,
        settings: ComputeSettings,
        clock: Callable[[], int],
        leases: Leases,
        actuation: Actuation,
        make: Callable[[], Controller] | None = None,
        cpu_clock: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._settings = settings
        self._make = make or (lambda: CONTROLLERS[settings.control](settings))
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._actuation = actuation
        self._time_slices = not actuation.runs_side_by_side
        self._evictions = Evictions(leases)
        self._records: dict[int, ProcessRecord] = {}  # by the session's number
        self._welcomed: set[int] = set()
        self._unsealed: list[ActivitySide] = []
        self._devices: dict[str, DeviceController] = {}
        self._aggregates: dict[str, AggregateActivityPage] = {}
        self._is_closed = False
        self._is_behind = False  # whether a process lacks a notice of a peer
        self._tell_at = self._tell_pause = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0

    # facts.Watch

    def joining(self, kernel: Owner, session: Session) -> None:
        if session.role is not Role.PROCESS or session.agent_side is None:
            return
        record = ProcessRecord(session, kernel)
        self._records[session.number] = record
        self._unsealed.append(record.activity_page)
        self._enter(record)

    def _enter(self, record: ProcessRecord) -> None:
        """Enter a process on its devices."""
        now = self._clock()
        record.members = tuple(
            Member(record, device, part.uuid, self._who(record, device), Reader(now))
            for device, part in enumerate(record.owner.reservation.parts)
        )
        for member in record.members:
            self._device(member.uuid).add(member)
            self._write_all(self._device(member.uuid).members.values())
        self._write(record)

    def _remove(self, record: ProcessRecord) -> None:
        for member in record.members:
            device = self._device(member.uuid)
            device.remove(member.who.key)
            self._write_all(device.members.values())

    def joined(self, kernel: Owner, session: Session) -> None:
        if session.number in self._records:
            self._welcomed.add(session.number)
            self._tell_peers()
            self._schedule()

    def left(self, session: Session) -> None:
        record = self._records.pop(session.number, None)
        if record is None or self._is_closed:  # the next agent does what remains
            return
        self._welcomed.discard(session.number)
        self._unsealed = [
            activity_page for activity_page in self._unsealed if activity_page is not session.activity_page
        ]
        self._remove(record)
        self._tell_peers()
        self._schedule()

    def relocated(self, kernel: Owner) -> None:
        self._evictions.pardon(kernel.kernel_id)
        for record in [one for one in self._records.values() if one.owner is kernel]:
            self._remove(record)
            self._enter(record)
        self._tell_peers()
        self._schedule()

    def resized(self, kernel: Owner) -> None:
        records = [record for record in self._records.values() if record.owner is kernel]
        if kernel.reservation.is_production:
            self._evictions.pardon(kernel.kernel_id)
        for record in records:
            for member in record.members:
                member.who = self._who(record, member.device)
        for part in kernel.reservation.parts:
            self._refresh(self._device(part.uuid))
        self._tell_peers()
        self._schedule()

    def awaits(self, kernel: Owner, is_awaited: bool) -> None:
        if self._is_closed:
            return
        for part in kernel.reservation.parts:
            device = self._device(part.uuid)
            if is_awaited:
                device.awaited[kernel.kernel_id] = kernel
            elif device.awaited.pop(kernel.kernel_id, None) is None:
                continue
            self._refresh(device)
        self._schedule()

    # The rest of the agent

    def forget(self, kernel_id: str) -> None:
        """Forget a kernel that ended."""
        self._evictions.forget(kernel_id)
        for device in self._devices.values():
            device.forget(kernel_id)
            if device.awaited.pop(kernel_id, None) is not None:
                self._refresh(device)

    def saw_devices(self, readings: Iterable[DeviceReading]) -> None:
        """Take the readings of NVML: the work of each process, and which devices are lost."""
        for reading in readings:
            device = self._devices.get(reading.facts.uuid)
            if device is None:
                continue
            if device.is_lost != reading.is_lost:
                device.is_lost = reading.is_lost
                device.end_solo_windows()
                self._refresh(device)
                self._schedule()
            self._book(device, reading)

    def describe(self, kernel_id: str, uuid: str) -> dict[str, Any] | None:
        """Return a kernel's ``compute`` on one device, for the status."""
        device = self._devices.get(uuid)
        if device is None:
            return None
        return describe_share(device, kernel_id, self._evictions.is_out(kernel_id), self._evictions.has_left(kernel_id))

    def describe_device(self, uuid: str) -> dict[str, Any]:
        return describe_control(self._settings, self._devices.get(uuid), self._time_slices)

    def close(self) -> None:
        """Close with the agent.

        Orders stay: the hooks follow their own rule until the next agent's first orders.
        """
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for device in self._devices.values():
            device.end_solo_windows()
        for record in self._records.values():
            self._write(record)
        for aggregate in self._aggregates.values():
            aggregate.close()
        self._aggregates.clear()

    # Looking

    def run_pass(self) -> None:
        """Sample the devices that are due. Called by a timer, and by tests."""
        now = self._clock()
        if self._due and now - self._due > _STALL:
            log.warning("event=compute_late milliseconds=%d", (now - self._due) // MILLISECOND)
        self._unsealed = [activity_page for activity_page in self._unsealed if not activity_page.seal()]
        is_moved = False
        for uuid, device in self._devices.items():
            if device.is_contended and device.next_at <= now + _TOGETHER:
                began = self._cpu_clock()
                is_moved |= self._look(uuid, device, now)
                device.cost += _COST_SMOOTHING * (self._cpu_clock() - began - device.cost)
                whole = sum(other.cost for other in self._devices.values() if other.is_contended)
                device.next_at = max(device.next_at, now + min(LONGEST_INTERVAL, int(whole / MOST_OF_A_CORE)))
        if is_moved:
            self._tell_peers()
        elif self._is_behind and self._tell_at <= now + _TOGETHER:
            self._tell_peers(2 * self._tell_pause)
        self._schedule()

    def _look(self, uuid: str, device: DeviceController, now: int) -> bool:
        """Sample one device; return whether an activity page was withdrawn, or counts again."""
        before = [member.withdrawn_since for member in device.members.values()]
        device.step(now, self._time_slices)
        self._write_all(device.members.values())
        self._show_aggregate(uuid, device, now)
        self._evictions.look(uuid, device.unholdable, device.production, now)
        return before != [member.withdrawn_since for member in device.members.values()]

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = [device.next_at for device in self._devices.values() if device.is_contended]
        now = self._clock()
        for uuid, device in self._devices.items():
            if not device.is_contended:
                self._evictions.look(uuid, (), device.production, now)
        if self._is_behind:
            due.append(self._tell_at)
        if not due:
            self._due = 0
            return
        self._due = max(now, min(due))
        delay = (self._due - now) / SECOND
        self._timer = asyncio.get_running_loop().call_later(delay, self._run_pass_safely)

    def _run_pass_safely(self) -> None:
        try:
            self.run_pass()
        except Exception:
            log.exception("event=compute_pass_failed")
            for device in self._devices.values():
                device.next_at = max(device.next_at, self._clock() + SECOND)
            self._schedule()

    def _refresh(self, device: DeviceController) -> None:
        device.refresh()
        if not self._is_closed:
            self._write_all(device.members.values())

    def _device(self, uuid: str) -> DeviceController:
        device = self._devices.get(uuid)
        if device is None:
            device = self._devices[uuid] = DeviceController(self._make, self._settings.caps, self._actuation.paces)
        return device

    def _who(self, record: ProcessRecord, device: int) -> Who:
        reservation = record.owner.reservation
        return Who(
            record.session.number,
            record.owner.kernel_id,
            reservation.is_production,
            reservation.parts[device].hundredths,
            self._settings.caps(reservation.is_production),
        )

    @staticmethod
    def _book(device: DeviceController, reading: DeviceReading) -> None:
        """Book the GPU time of the device's processes, as the driver reports it.

        A process that the driver does not report apart does not count as silent.
        """
        tells = bool(reading.busy) or reading.utilization_percent == 0
        used: dict[str, float] = {}
        for member in device.members.values():
            seconds = reading.busy.get(member.process.session.pid, 0.0)
            used[member.who.kernel_id] = used.get(member.who.kernel_id, 0.0) + seconds
            if tells:
                member.own = (member.own or 0) + int(seconds * 1e9)
                member.silent_seconds = 0.0 if seconds > 0 else member.silent_seconds + reading.covered_seconds
        for kernel_id, seconds in used.items():
            tally = device.tallies[kernel_id]
            tally.used = min(1.0, seconds / reading.covered_seconds) if reading.covered_seconds > 0 else tally.used
            if not device.is_contended:
                tally.own += int(seconds * 1e9)

    # Writing

    def _write_all(self, members: Iterable[Member]) -> None:
        for record in {id(member.process): member.process for member in members}.values():
            self._write(record)

    @staticmethod
    def _write(record: ProcessRecord) -> None:
        page = record.session.agent_side
        assert page is not None  # holds as long as there is a record
        gate, orders = combine([member.order for member in record.members])
        for member, order in zip(record.members, orders, strict=True):
            page.set_order(member.device, _in_the_hooks_measure(order, member.reader))
        page.set_gate(gate)

    def _tell_peers(self, pause: int = _TELL_AGAIN) -> None:
        """Send each process the changes of its subscriptions.

        Args:
            pause: Nanoseconds until the keeper tries again to tell a process whose socket was full.
        """
        self._is_behind = False
        self._tell_pause = min(pause, _TELL_MOST_RARELY)
        self._tell_at = self._clock() + self._tell_pause
        wanted: dict[str, Mapping[Subscription, int]] = {}  # the same for all processes of a kernel
        for number in self._welcomed:
            record = self._records[number]
            kernel_id = record.owner.kernel_id
            if kernel_id not in wanted:
                wanted[kernel_id] = {} if record.is_production else self._wanted(record)
            self._is_behind |= not record.subscriptions.bring_up_to_date(wanted[kernel_id], record.session.notify)

    def _wanted(self, record: ProcessRecord) -> Mapping[Subscription, int]:
        places: dict[Subscription, int] = {}
        for member in record.members:
            for other in self._device(member.uuid).members.values():
                if not other.who.is_production or other.who.kernel_id == member.who.kernel_id:
                    continue
                if other.withdrawn_since is None:
                    place = Subscription(other.who.key, member.device, other.device)
                    places[place] = other.process.activity_page.reader
        overflowing = record.members if len(places) > MAX_PEERS else ()
        aggregates = {
            Subscription(AGGREGATE, member.device, 0): self._aggregate(member.uuid).reader for member in overflowing
        }
        return {**first_subscriptions(places, MAX_PEERS - len(aggregates)), **aggregates}

    def _aggregate(self, uuid: str) -> AggregateActivityPage:
        aggregate = self._aggregates.get(uuid)
        if aggregate is None:
            aggregate = self._aggregates[uuid] = AggregateActivityPage()
        return aggregate

    def _show_aggregate(self, uuid: str, device: DeviceController, now: int) -> None:
        if uuid in self._aggregates:
            self._aggregates[uuid].show(device.production.is_active, now)


def _in_the_hooks_measure(order: Order, reader: Reader) -> Order:
    """Convert allowances from the agent's count of a process's work to its hook's own count."""
    if order.allowed == order.allowed_with_busy_peers == NO_LIMIT:
        return order
    allowed, with_busy_peers = reader.raw_allowed(order.allowed), reader.raw_allowed(order.allowed_with_busy_peers)
    if (allowed, with_busy_peers) == (order.allowed, order.allowed_with_busy_peers):
        return order
    return replace(order, allowed=allowed, allowed_with_busy_peers=with_busy_peers)
