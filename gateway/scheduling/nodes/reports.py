"""The nodes and devices as their agents last reported them. Values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from jupyter_aliquot.gpu_hook.placement.overcommit import Oversubscription, Reserved
from jupyter_aliquot.gpu_hook.placement.placement import WHOLE
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare


def _share_and_bytes(hundredths: int, size: int) -> tuple[GpuShare, Bytes]:
    return GpuShare(max(0, hundredths)), Bytes(max(0, size))


@dataclass(frozen=True)
class Device:
    """One device of the node, with all that is reserved on it by the agent's account."""

    uuid: str
    index: int
    name: str
    memory: Bytes
    reserved: GpuShare
    reserved_memory: Bytes
    is_lost: bool = False
    # The reserved part of normal-priority kernels; None: all of it.
    by_production: tuple[GpuShare, Bytes] | None = None
    # The reserved memory that never leaves the device.
    kept_memory: Bytes = field(default=Bytes(0))
    # How many kernels have a part of it, and what a context takes.
    kernels: int = 0
    context: Bytes = field(default=Bytes(0))
    domain: int | None = None  # of NVLink or PCIe; None where it is not known

    @cached_property
    def all_reserved(self) -> Reserved:
        """Return what is reserved, as the functions of overcommit take it."""
        share, memory = self.by_production or (self.reserved, self.reserved_memory)
        return Reserved(
            self.reserved.hundredths,
            int(self.reserved_memory),
            share.hundredths,
            int(memory),
            int(self.kept_memory),
            self.kernels,
        )

    def with_reserved(self, reserved: Reserved) -> Device:
        """Return the same device with other reservations.

        The agent's answer may be older than a grant that is taken away again: none is below zero.
        """
        told = None
        if self.by_production is not None:
            told = _share_and_bytes(reserved.production_hundredths, reserved.production_bytes)
        share, memory = _share_and_bytes(reserved.hundredths, reserved.bytes)
        return replace(
            self,
            reserved=share,
            reserved_memory=memory,
            by_production=told,
            kept_memory=Bytes(max(0, reserved.kept_bytes)),
            kernels=max(0, reserved.kernels),
        )


@dataclass(frozen=True)
class Leaving:
    """A kernel that the agent told to leave its devices so many seconds ago, and that has not left.

    ``stays_because`` is why its memory cannot leave; ``refusal`` is why its last move failed.
    """

    seconds: float
    is_moving: bool = False
    stays_because: str = ""
    refusal: str = ""


@dataclass(frozen=True)
class Node:
    """The last answer of one agent. ``is_away``: it is not connected now, so nothing changes there."""

    name: str = ""
    driver: str = ""
    devices: tuple[Device, ...] = ()
    rule: Oversubscription = field(default_factory=Oversubscription)
    largest_kernel_bytes: int = 0  # reserved, by any program
    # Kernels that left their devices, whose parts others may have; None: the agent evicts none.
    evicted: frozenset[str] | None = None
    ending: frozenset[str] = frozenset()  # kernels without a grant, of which a process keeps memory
    leaving: Mapping[str, Leaving] | None = None  # by kernel id; None: the agent does not tell
    moved: Mapping[str, str] = field(default_factory=dict)  # kernels that were moved, and where they are now
    is_away: bool = False

    def hundredths_of(self, uuid: str) -> int:
        """Return the most hundredths of a device that may be reserved."""
        return self._hundredths if not self.rule.ceilings else round(WHOLE * self.rule.most_of(uuid))

    @cached_property
    def _hundredths(self) -> int:
        return round(WHOLE * self.rule.most)

    @property
    def told_of(self) -> frozenset[str]:
        """Return the kernels of which it says that they leave, have left, or were moved."""
        return (self.evicted or frozenset()) | (self.leaving or {}).keys() | self.moved.keys()

    @property
    def can_evict(self) -> bool:
        return self.evicted is not None
