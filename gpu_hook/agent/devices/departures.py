"""Bytes of departed processes that are still on the devices.

The agent does not lend them again before the driver has them back. A driver takes memory back after
its process's connection is closed, and a card takes its time. Looks at the devices show how much is
left. Pure: the caller passes times and living processes in.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from jupyter_aliquot.gpu_hook.agent.base.processes import Process, start_time_ticks
from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceReading

log = logging.getLogger(__name__)

_ALIVE_SECONDS = 5.0  # a process that closed its connection and lives so long is not about to end
_DEAD_SECONDS = 30.0  # the longest wait for a driver
_SOON_SECONDS, _FIRST_SECONDS, _LATER_SECONDS = 1.0, 0.05, 0.5  # pauses between looks: in the first second, and later


@dataclass
class _Departed:
    """A process, however often it left: the driver reports its bytes once."""

    kernel_id: str
    process: Process
    since: float  # when it left first
    last: float  # when it left last
    bytes: dict[str, int]  # by device
    is_staying: bool = False

    def leave_again(self, found: Mapping[str, int], now: float) -> None:
        """Note that it came back without claiming all its bytes, and left again.

        The bytes of the two departures are different bytes.
        """
        self.last = now
        for uuid, amount in found.items():
            self.bytes[uuid] = max(self.bytes.get(uuid, 0), amount)


@dataclass
class Departures:
    """The departed processes of this node.

    ``alive`` returns the start time of a pid, None where there is no such process.
    """

    alive: Callable[[int], int | None] = start_time_ticks
    _departed: list[_Departed] = field(default_factory=list)

    def left(self, kernel_id: str, process: Process, on_devices: Mapping[str, int], now: float) -> None:
        """Note a process that left with so many bytes on each device."""
        found = {uuid: amount for uuid, amount in on_devices.items() if amount > 0}
        if not found:
            return
        for one in self._departed:
            if (one.kernel_id, one.process) == (kernel_id, process):
                return one.leave_again(found, now)
        self._departed.append(_Departed(kernel_id, process, now, now, found))

    def returned(self, process: Process, told: Mapping[str, int]) -> None:
        """Note that a process is here again and reported its bytes.

        Those bytes count as lent from now on.
        """
        rest = Counter(told)
        for one in self._departed:
            if one.process == process:
                for uuid, amount in one.bytes.items():
                    known = min(amount, rest[uuid])
                    one.bytes[uuid] -= known
                    rest[uuid] -= known
        self._sweep(0.0)

    def look(
        self, readings: Iterable[DeviceReading], began: float, now: float, on_device: Mapping[str, int] | None = None
    ) -> bool:
        """Take in a look at the devices that began at a time.

        ``on_device`` is the bytes of connected processes on each device. Return whether the driver
        has bytes back.
        """
        by_uuid = {reading.facts.uuid: reading for reading in readings}
        before = self._total()
        seen = [one for one in self._departed if one.since <= began]  # the look may have missed the others
        for one in seen:
            for uuid, amount in one.bytes.items() if one.last <= began else ():
                one.bytes[uuid] = min(amount, self._found(one, by_uuid.get(uuid)))
        for reading in by_uuid.values():
            self._bound(reading, (on_device or {}).get(reading.facts.uuid, 0), began)
        for one in seen:
            self._note_age(one, now)
        self._sweep(now)
        return self._total() < before

    def _note_age(self, one: _Departed, now: float) -> None:
        lives = self.alive(one.process.pid) == one.process.start_time_ticks
        is_late = now - one.since > (_ALIVE_SECONDS if lives else _DEAD_SECONDS)
        if is_late and not one.is_staying and any(one.bytes.values()):
            log.warning(
                "event=bytes_stay kernel=%s pid=%d alive=%s bytes=%d seconds=%.1f",
                *(one.kernel_id, one.process.pid, lives, sum(one.bytes.values()), now - one.since),
            )
        one.is_staying = is_late

    def leaving_bytes(self, uuid: str) -> int:
        """Return the bytes that will be free in a moment."""
        return sum(one.bytes.get(uuid, 0) for one in self._departed if not one.is_staying)

    def staying_bytes(self, uuid: str) -> int:
        """Return the bytes that departed processes keep.

        These processes live on, or the driver does not take the bytes back.
        """
        return sum(one.bytes.get(uuid, 0) for one in self._departed if one.is_staying)

    def next_look(self, now: float) -> float | None:
        """Return the seconds until the next look at the devices; None: no bytes are leaving."""
        ages = [now - one.since for one in self._departed if not one.is_staying]
        if not ages:
            return None
        return _FIRST_SECONDS if min(ages) < _SOON_SECONDS else _LATER_SECONDS

    def _found(self, one: _Departed, reading: DeviceReading | None) -> int:
        """Return the bytes of a process on a device, as far as the driver reports them."""
        pid = one.process.pid
        if reading is None or reading.is_lost or pid not in reading.processes:
            return 0
        if self.alive(pid) not in (None, one.process.start_time_ticks):
            return 0  # another process has the pid now
        used = reading.processes[pid]
        return max(one.bytes.values()) if used is None else used

    def _bound(self, reading: DeviceReading, on_device: int, began: float) -> None:
        """Bound the bytes of processes that the driver does not report.

        Together they have at most the device's use beside all other processes.
        """
        uuid, seen = reading.facts.uuid, reading.processes
        there = [one for one in self._departed if one.bytes.get(uuid)]
        unknown = [one for one in there if one.last <= began and seen.get(one.process.pid, 0) is None]
        rest = reading.used_bytes - on_device - sum(one.bytes[uuid] for one in there if one not in unknown)
        for one in unknown:
            one.bytes[uuid] = min(one.bytes[uuid], max(0, rest))
            rest -= one.bytes[uuid]

    def _total(self) -> int:
        return sum(sum(one.bytes.values()) for one in self._departed)

    def _sweep(self, now: float) -> None:
        for one in self._departed:
            if now and not any(one.bytes.values()):
                log.info("event=freed kernel=%s pid=%d seconds=%.3f", one.kernel_id, one.process.pid, now - one.since)
        self._departed = [one for one in self._departed if any(one.bytes.values())]
