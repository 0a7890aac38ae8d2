"""A node of the cluster and what a request takes of it. Values; one plan at a time writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .jobs import DEVICE

# The index of a device on its node, and how many thousandths of it.
Parts = tuple[tuple[int, int], ...]


@dataclass(frozen=True, order=True)
class Demand:
    """The demand of one request on one node.

    Args:
        milli: GPUs in thousandths of a device: 2500 is two devices and half of a third.
        cpu: thousandths of a CPU core.
        memory: MiB of the node's memory.
    """

    milli: int = 0
    cpu: int = 0
    memory: int = 0

    @property
    def whole(self) -> int:
        """Devices that it takes whole."""
        return self.milli // DEVICE

    @property
    def part(self) -> int:
        """Thousandths of the device that it shares; 0 for none."""
        return self.milli % DEVICE


class Node:
    """A node's free parts: CPU in thousandths of a core, memory in MiB, thousandths of each device."""

    def __init__(self, name: str, devices: int, cpu: int = 0, memory: int = 0, model: str = "") -> None:
        self.name = name
        self.model = model
        self.cpu = self.free_cpu = cpu
        self.free_memory = memory
        self.free: tuple[int, ...] = (DEVICE,) * devices
        self.free_milli = DEVICE * devices

    @property
    def milli(self) -> int:
        """Thousandths of a device that the node has, free or not."""
        return DEVICE * len(self.free)

    def can_hold(self, demand: Demand) -> bool:
        """Return whether its CPU, its memory and its free parts in total suffice."""
        return self.free_milli >= demand.milli and self.free_cpu >= demand.cpu and self.free_memory >= demand.memory

    def parts_by(self, demand: Demand, order: Sequence[int]) -> Parts | None:
        """Return the parts on the first devices, in this order, that have room. None: too few have."""
        whole = [at for at in order if self.free[at] == DEVICE][: demand.whole]
        if len(whole) < demand.whole:
            return None
        if not demand.part:
            return tuple((at, DEVICE) for at in whole)
        shared = next((at for at in order if at not in whole and self.free[at] >= demand.part), None)
        return None if shared is None else (*((at, DEVICE) for at in whole), (shared, demand.part))

    def free_after(self, parts: Parts) -> tuple[int, ...]:
        """Return the free thousandths of each device once these parts are taken."""
        left = list(self.free)
        for at, milli in parts:
            left[at] -= milli
        return tuple(left)

    def take(self, demand: Demand, parts: Parts) -> None:
        self.free = self.free_after(parts)
        self.free_milli -= demand.milli
        self.free_cpu -= demand.cpu
        self.free_memory -= demand.memory

    def give_back(self, demand: Demand, parts: Parts) -> None:
        returned = replace(demand, milli=-demand.milli, cpu=-demand.cpu, memory=-demand.memory)
        self.take(returned, tuple((at, -milli) for at, milli in parts))
