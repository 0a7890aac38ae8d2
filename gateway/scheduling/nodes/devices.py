"""The devices and nodes of a capacity, and what is reserved on them: values that many capacities share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from jupyter_aliquot.gpu_hook.placement.overcommit import Oversubscription, Reserved

_Value = TypeVar("_Value")
# Entries in which an overlay may differ from the mapping below it; with more it becomes a mapping of its own.
_MOST_CHANGES = 256


@dataclass(frozen=True)
class CapacityDevice:
    """The facts of a device that do not change while a plan is made. ``node`` is empty on the gateway's own.

    ``is_shut``: it is cordoned, and takes no new kernel. ``domain``: of NVLink or PCIe on its node.
    """

    uuid: str
    index: int
    memory_bytes: int
    is_lost: bool = False
    context_bytes: int = 0
    node: str = ""
    is_shut: bool = False
    name: str = ""
    domain: int | None = None

    @cached_property
    def facts(self) -> tuple[object, ...]:
        """Values by which a request's place on it is found, save what is reserved there."""
        hardware = (self.index, self.name, self.memory_bytes, self.context_bytes, self.domain)
        return *hardware, self.is_lost, self.is_shut


class Devices(tuple[CapacityDevice, ...]):
    """The devices of all nodes, and what is found in them once for all capacities that have them."""

    @cached_property
    def by_uuid(self) -> Mapping[str, CapacityDevice]:
        return {device.uuid: device for device in self}

    @cached_property
    def by_node(self) -> Mapping[str, Sequence[CapacityDevice]]:
        found: dict[str, list[CapacityDevice]] = {}
        for device in self:
            found.setdefault(device.node, []).append(device)
        return found

    @cached_property
    def shut(self) -> frozenset[str]:
        return frozenset(device.uuid for device in self if device.is_shut)


@dataclass(frozen=True)
class NodeRoom:
    """The facts of one node that hold for all of its devices.

    ``is_shut``: it takes no new kernel now. ``is_away``: its agent is not connected, and nothing
    changes there. ``is_busy``: it answers later, and others come first. ``largest_kernel_bytes`` are
    reserved, by any program.
    """

    rule: Oversubscription = field(default_factory=Oversubscription)
    largest_kernel_bytes: int = 0
    is_shut: bool = False
    is_away: bool = False
    is_busy: bool = False

    @cached_property
    def facts(self) -> tuple[object, ...]:
        """Values by which a request's place on the node is found."""
        rule = (self.rule.production, self.rule.opportunistic, self.rule.host_bytes)
        return *rule, self.largest_kernel_bytes, self.is_shut, self.is_away, self.is_busy


class Overlay(Mapping[str, _Value]):
    """A mapping with some entries changed: a step of a plan changes few of thousands."""

    def __init__(self, below: Mapping[str, _Value], changes: Mapping[str, _Value]) -> None:
        self._below, self._changes = below, changes

    def __getitem__(self, key: str) -> _Value:
        changes = self._changes
        return changes[key] if key in changes else self._below[key]

    def __iter__(self) -> Iterator[str]:
        yield from self._below
        yield from (key for key in self._changes if key not in self._below)

    def __len__(self) -> int:
        return len(self._below) + sum(key not in self._below for key in self._changes)

    @staticmethod
    def of(mapping: Mapping[str, _Value], changes: Mapping[str, _Value]) -> Mapping[str, _Value]:
        """Return the mapping with these entries changed."""
        if not isinstance(mapping, Overlay):
            return Overlay(mapping, changes)
        merged = {**mapping._changes, **changes}
        return Overlay(mapping._below, merged) if len(merged) <= _MOST_CHANGES else {**mapping._below, **merged}


def node_facts(
    overcommit: float,
    room: NodeRoom,
    devices: Iterable[tuple[CapacityDevice, Reserved | None, bool, tuple[float, ...], tuple[object, ...]]],
) -> tuple[object, ...]:
    """Return all by which a request is placed on a node: nodes with the same have the same parts for it.

    *devices*: each with what is reserved on it, whether an earlier request waits for it, what teams lower its
    overcommit to, and its kernels that were measured.
    """
    ceilings = room.rule.ceilings
    found = ((*one.facts, *rest, ceilings.get(one.uuid) if ceilings else None) for one, *rest in devices)
    return (overcommit, *room.facts, *found)
