"""Host memory for the copies of swapped kernels, as far as reservations count on it. Pure.

Shared, as placement is: the agent reserves by it, and the gateway plans by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class HostRoom:
    """``reserved_bytes`` are those of all kernels, ``beyond_bytes`` what no device has of them."""

    budget_bytes: int
    reserved_bytes: int = 0
    beyond_bytes: int = 0
    largest_bytes: int = 0  # of one kernel

    def needs(self, taken_bytes: int = 0, short_bytes: int = 0) -> int:
        """What copies may come to with a kernel of ``taken_bytes`` more, ``short_bytes`` of them beyond the devices.

        Out is what no device has, and what a device has that is too small for any of those that are out: less than one
        kernel. And who comes in keeps its copy until it is there, while as much leaves before it. All cannot be more
        than all that is reserved.
        """
        beyond = self.beyond_bytes + short_bytes
        largest = max(self.largest_bytes, taken_bytes)
        return min(self.reserved_bytes + taken_bytes, beyond + 2 * largest) if beyond else 0

    @property
    def left_bytes(self) -> int:
        """Of the budget, for people."""
        return max(0, self.budget_bytes - self.needs())


@dataclass(frozen=True)
class HostShortage:
    """Host memory that copies of swapped-out kernels may need with one kernel more, and how much is set aside."""

    needs_bytes: int
    budget_bytes: int


def host_room(budget_bytes: int | None, devices: Iterable[tuple[int, int]], largest_bytes: int) -> HostRoom | None:
    """``devices``: memory and reserved bytes of each. None: no limit."""
    if budget_bytes is None:
        return None
    pairs = tuple(devices)
    beyond = sum(max(0, reserved - memory) for memory, reserved in pairs)
    return HostRoom(budget_bytes, sum(reserved for _, reserved in pairs), beyond, largest_bytes)
