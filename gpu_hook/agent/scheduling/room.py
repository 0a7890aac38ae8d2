"""Physical room on the devices: the bytes that kernels may hold, without contexts and untracked processes.

From looks at the devices, which are old by up to a second; decides nothing. The rates of the links are kept here, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from jupyter_aliquot.gpu_hook.agent.devices.departures import Departures
from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceReading

from .views import DeviceView

_LOOKS = 3  # a move that ends between a look and its booking spoils one of them, never two
_FIRST_RATE = 10e9  # bytes per second, until one was measured
_WEIGHT = 0.3  # of the newest measurement
_SLOWEST_RATE = 128 << 20  # a spill file on a slow disk; a hook that answers late is no slower link for others' turns
_LEAST_MEASURED_BYTES = 64 << 20  # smaller moves measure their own overhead


class Room:
    """The room that each device has for kernels. Written by device readings and finished moves."""

    def __init__(self) -> None:
        self.departures = Departures()
        self._memory: dict[str, int] = {}
        self._others: dict[str, deque[int]] = {}  # bytes that no hook charged, in the last readings
        self._accounted: dict[str, int] = {}  # what kernels and departed processes had, in the last look
        self._rates: dict[tuple[str, bool], float] = {}  # device, whether out

    def look(self, readings: Iterable[DeviceReading], on_device: Mapping[str, int]) -> None:
        """``on_device``: what kernels' processes charged of each device and have there, at the same time."""
        for reading in readings:
            uuid = reading.facts.uuid
            self._memory[uuid] = 0 if reading.is_lost else reading.facts.memory_bytes
            if not reading.is_lost:
                self._accounted[uuid] = self._account(uuid, on_device)
                others = max(0, reading.used_bytes - self._accounted[uuid])
                self._others.setdefault(uuid, deque(maxlen=_LOOKS)).append(others)

    def used_bytes(self, reading: DeviceReading, on_device: Mapping[str, int]) -> int:
        """Return the bytes that are taken of a device: of its last look, less what kernels gave back since.

        Otherwise bytes that were just swapped out would count as those of others until the next reading.
        """
        uuid = reading.facts.uuid
        given_back = self._accounted.get(uuid, 0) - self._account(uuid, on_device)
        return max(0, reading.used_bytes - max(0, given_back))

    def memory_bytes(self, uuid: str) -> int:
        """All that the device has; 0: it is lost, or was never seen."""
        return self._memory.get(uuid, 0)

    def capacity_bytes(self, uuid: str) -> int:
        """Return the bytes that kernels may hold of it together, once departed ones have given back theirs."""
        others = self._others.get(uuid)
        median = sorted(others)[(len(others) - 1) // 2] if others else 0
        taken = median + self.departures.staying_bytes(uuid)
        return max(0, self.memory_bytes(uuid) - taken)

    def present_bytes(self, uuid: str) -> int:
        """Return the bytes that kernels may hold of it now."""
        return max(0, self.capacity_bytes(uuid) - self.departures.leaving_bytes(uuid))

    def book_move(self, uuids: Iterable[str], is_out: bool, moved_bytes: int, seconds: float) -> None:
        """A finished move measures the links that it used; its devices moved at once, so each had its part."""
        devices = tuple(uuids)
        if moved_bytes < _LEAST_MEASURED_BYTES or seconds <= 0 or not devices:
            return
        rate = max(_SLOWEST_RATE, moved_bytes / len(devices) / seconds)
        for uuid in devices:
            before = self._rates.get((uuid, is_out))
            self._rates[uuid, is_out] = rate if before is None else before + _WEIGHT * (rate - before)

    def _account(self, uuid: str, on_device: Mapping[str, int]) -> int:
        return on_device.get(uuid, 0) + self.departures.leaving_bytes(uuid) + self.departures.staying_bytes(uuid)

    def views(self) -> tuple[DeviceView, ...]:
        return tuple(
            DeviceView(
                uuid,
                self.capacity_bytes(uuid),
                leaving_bytes=self.departures.leaving_bytes(uuid),
                out_rate=self._rates.get((uuid, True), _FIRST_RATE),
                in_rate=self._rates.get((uuid, False), _FIRST_RATE),
            )
            for uuid in self._memory
        )
