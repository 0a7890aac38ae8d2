"""Physical room on the devices: the bytes that kernels may hold.

Contexts and untracked processes are not in it. The room comes from looks at the devices, which are
up to a second old; it decides nothing. The rates of the links are kept here, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from jupyter_aliquot.gpu_hook.agent.devices.departures import Departures
from jupyter_aliquot.gpu_hook.agent.devices.devices import DeviceReading

from .views import DeviceView

_LOOKS = 3  # a move that ends between a look and its booking spoils one look, never two
_FIRST_RATE = 10e9  # bytes per second, until a move was measured
_WEIGHT = 0.3  # weight of the newest measurement
# bytes per second of a spill file on a slow disk; a hook that answers late does not make the link
# slower
_SLOWEST_RATE = 128 << 20
_LEAST_MEASURED_BYTES = 64 << 20  # smaller moves measure their own overhead


class Room:
    """The room that each device has for kernels. Written by device readings and finished moves."""

    def __init__(self) -> None:
        self.departures = Departures()
        self._memory: dict[str, int] = {}
        self._others: dict[str, deque[int]] = {}  # bytes that no hook charged, in the last readings
        # by device and process: the bytes of a context that is made now, and how many looks may not show it yet
        self._expected: dict[str, dict[tuple[str, int], tuple[int, int]]] = {}
        # the bytes of kernels and departed processes, in the last look
        self._accounted: dict[str, int] = {}
        # bytes per second, by device and whether the direction is out
        self._rates: dict[tuple[str, bool], float] = {}

    def look(
        self,
        readings: Iterable[DeviceReading],
        on_device: Mapping[str, int],
        paged_bytes: Callable[[str], int] = lambda uuid: 0,
    ) -> None:
        """Take a look at the devices.

        ``on_device`` is what kernels' processes charged of each device and have there at the same
        time. Of that the driver may have paged out ``paged_bytes``: then the last look says which
        part of the use is others'.
        """
        for reading in readings:
            uuid = reading.facts.uuid
            self._memory[uuid] = 0 if reading.is_lost else reading.facts.memory_bytes
            if not reading.is_lost:
                self._accounted[uuid] = self._account(uuid, on_device)
                least = max(0, reading.used_bytes - self._accounted[uuid])
                looks = self._others.setdefault(uuid, deque(maxlen=_LOOKS))
                before = looks[-1] if looks else least
                looks.append(min(max(before, least), least + paged_bytes(uuid)))

                expected = self._expected.get(uuid, {})
                self._expected[uuid] = {who: (amount, left - 1) for who, (amount, left) in expected.items() if left > 1}

    def expect(self, uuid: str, who: tuple[str, int], amount: int) -> None:
        """Keep so many bytes of a device for a context that is made now, until the looks show it.

        *who* makes it: one process of one kernel, whose earlier one this replaces.
        """
        self._expected.setdefault(uuid, {})[who] = amount, _LOOKS

    def used_bytes(self, reading: DeviceReading, on_device: Mapping[str, int]) -> int:
        """Return the bytes of a device in use: in its last look, less what kernels gave back since.

        Without this correction, bytes that were just swapped out would count as other processes'
        until the next reading.
        """
        uuid = reading.facts.uuid
        given_back = self._accounted.get(uuid, 0) - self._account(uuid, on_device)
        return max(0, reading.used_bytes - max(0, given_back))

    def memory_bytes(self, uuid: str) -> int:
        """Return all bytes of the device; 0: it is lost, or was never seen."""
        return self._memory.get(uuid, 0)

    def capacity_bytes(self, uuid: str) -> int:
        """Return the bytes that kernels may hold of it together.

        Departed processes have given back theirs by then.
        """
        others = self._others.get(uuid)
        median = sorted(others)[(len(others) - 1) // 2] if others else 0
        expected = sum(amount for amount, _ in self._expected.get(uuid, {}).values())
        taken = median + expected + self.departures.staying_bytes(uuid)
        return max(0, self.memory_bytes(uuid) - taken)

    def present_bytes(self, uuid: str) -> int:
        """Return the bytes that kernels may hold of it now."""
        return max(0, self.capacity_bytes(uuid) - self.departures.leaving_bytes(uuid))

    def book_move(self, uuids: Iterable[str], is_out: bool, moved_bytes: int, seconds: float) -> None:
        """Measure the links with a finished move.

        Its devices moved at once, so each had its part.
        """
        devices = tuple(uuids)
        if moved_bytes < _LEAST_MEASURED_BYTES or seconds <= 0 or not devices:
            return
        rate = max(_SLOWEST_RATE, moved_bytes / len(devices) / seconds)
        for uuid in devices:
            before = self._rates.get((uuid, is_out))
            self._rates[uuid, is_out] = rate if before is None else before + _WEIGHT * (rate - before)

    def rates(self, uuid: str) -> tuple[float, float]:
        """Return the bytes per second out of a device and into it: measured, or the first guess."""
        return self._rates.get((uuid, True), _FIRST_RATE), self._rates.get((uuid, False), _FIRST_RATE)

    def _account(self, uuid: str, on_device: Mapping[str, int]) -> int:
        return on_device.get(uuid, 0) + self.departures.leaving_bytes(uuid) + self.departures.staying_bytes(uuid)

    def views(self) -> tuple[DeviceView, ...]:
        return tuple(
            DeviceView(
                uuid,
                self.capacity_bytes(uuid),
                leaving_bytes=self.departures.leaving_bytes(uuid),
                out_rate=self.rates(uuid)[0],
                in_rate=self.rates(uuid)[1],
            )
            for uuid in self._memory
        )
