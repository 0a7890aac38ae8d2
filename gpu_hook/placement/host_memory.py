"""Host memory for the copies of swapped kernels, as far as reservations count on it. Pure.

Like placement, it is shared: the agent reserves by it, and the gateway plans by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class HostRoom:
    """The host memory behind the reservations.

    ``reserved_bytes`` is the sum of all kernels; ``beyond_bytes`` is the part of it that no device
    has.
    """

    budget_bytes: int
    reserved_bytes: int = 0
    beyond_bytes: int = 0
    largest_bytes: int = 0  # the largest reservation of one kernel

    def needs(self, taken_bytes: int = 0, short_bytes: int = 0) -> int:
        """Return the most that copies may take with one more kernel.

        The kernel reserves ``taken_bytes``, ``short_bytes`` of them beyond the devices. The result
        has three parts: the bytes that no device has; bytes that a device has free, but too few for
        any kernel that is out, which is less than one kernel; and the copy of a kernel that comes
        in, which it keeps until it is there, while as much leaves before it. The total cannot be
        more than all reservations.
        """
        beyond = self.beyond_bytes + short_bytes
        largest = max(self.largest_bytes, taken_bytes)
        return min(self.reserved_bytes + taken_bytes, beyond + 2 * largest) if beyond else 0

    @property
    def left_bytes(self) -> int:
        """Return the bytes left of the budget, for users."""
        return max(0, self.budget_bytes - self.needs())


@dataclass(frozen=True)
class HostShortage:
    """A lack of host memory: what copies may need with one more kernel, and the budget."""

    needs_bytes: int
    budget_bytes: int


def host_room(budget_bytes: int | None, devices: Iterable[tuple[int, int]], largest_bytes: int) -> HostRoom | None:
    """Return the host room; None: no limit.

    ``devices`` has the memory and the reserved bytes of each device.
    """
    if budget_bytes is None:
        return None
    pairs = tuple(devices)
    beyond = sum(max(0, reserved - memory) for memory, reserved in pairs)
    return HostRoom(budget_bytes, sum(reserved for _, reserved in pairs), beyond, largest_bytes)
