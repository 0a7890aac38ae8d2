"""Findings of a ledger's snapshot that the next one needs again: most nodes and grants are the same.

Each value is kept with the object that it was found for, and holds while that is the same object. A
ledger hands it from each snapshot to the next; nothing else writes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from jupyter_aliquot.gpu_hook.placement.overcommit import Reserved

from .devices import CapacityDevice, Devices, NodeRoom, node_facts
from .ranking import Kinds
from .reports import Node

if TYPE_CHECKING:
    from jupyter_aliquot.gateway.scheduling.capacity import Capacity
    from jupyter_aliquot.gateway.scheduling.ledger import Holding
    from jupyter_aliquot.gateway.scheduling.lending.team_quotas import TeamQuotas
    from jupyter_aliquot.gateway.teams.values import Quotas

# The uses of kernels that have ended are dropped beyond so many.
_MOST_ENDED = 1000
# Of each kernel the grant, and by team and model the hundredths that it counts.
Uses = dict[str, "tuple[Holding, Sequence[tuple[tuple[str, str], int]]]"]


class Marks(NamedTuple):
    """The facts of a node that its agent does not tell: its name in a capacity, and what is cordoned of it."""

    name: str
    is_shut: bool
    is_busy: bool
    shut: Collection[str]


class KeptNode(NamedTuple):
    """A node as a capacity has it, and the number of its kind while no kernel's facts change that."""

    node: Node
    marks: Marks
    devices: tuple[CapacityDevice, ...]
    room: NodeRoom
    reserved: Mapping[str, Reserved]
    kind: int


@dataclass(eq=False)
class KeptNodes:
    """All nodes at one moment. ``empty`` is the capacity without any kernel; None: not found yet."""

    nodes: Mapping[str, KeptNode] = field(default_factory=dict)
    devices: Devices = field(default_factory=Devices)
    kinds: Kinds = field(default_factory=Kinds)
    empty: Capacity | None = None


@dataclass(eq=False)
class KeptTeams:
    """The findings of a quota file for the devices of all nodes, while both are the same."""

    quotas: Quotas
    devices: Sequence[CapacityDevice]
    unused: TeamQuotas
    _uses: Uses = field(default_factory=dict)

    def uses(self, kernels: int) -> Uses:
        """Return what grants count for their teams, by kernel, as far as it was found."""
        if len(self._uses) > kernels + _MOST_ENDED:
            self._uses = {}
        return self._uses


class Kept:
    """The findings that the snapshots of one ledger share."""

    def __init__(self) -> None:
        self._nodes = KeptNodes()
        self._teams: KeptTeams | None = None

    def teams(self, quotas: Quotas, devices: Sequence[CapacityDevice], find: Callable[[], TeamQuotas]) -> KeptTeams:
        """Return the findings of this file for these devices. *find* returns the quotas without any kernel.

        A plan in a thread and the loop may ask with two files: each gets that of its own file.
        """
        known = self._teams
        if known is None or known.quotas is not quotas or known.devices is not devices:
            known = self._teams = KeptTeams(quotas, devices, find())
        return known

    def look_at(self, nodes: Iterable[tuple[Node, Marks]], rule: tuple[object, ...]) -> KeptNodes:
        """Return the nodes as they are now. *rule*: see ``Kinds``."""
        known, kinds = self._nodes, self._nodes.kinds.under(rule)
        before = known.nodes if kinds.numbers is known.kinds.numbers else {}
        found: dict[str, KeptNode] = {}
        for node, marks in nodes:
            one = before.get(marks.name)
            if one is None or one.node is not node or one.marks != marks:
                one = _kept(node, marks, one, kinds)
            found[marks.name] = one
        is_same = len(found) == len(before) and all(
            one is was or (name == other and one.devices is was.devices and one.room.rule == was.room.rule)
            for (name, one), (other, was) in zip(found.items(), before.items(), strict=True)
        )
        devices = known.devices if is_same else Devices(chain.from_iterable(one.devices for one in found.values()))
        self._nodes = KeptNodes(found, devices, kinds, known.empty if is_same else None)
        return self._nodes


def _kept(node: Node, marks: Marks, before: KeptNode | None, kinds: Kinds) -> KeptNode:
    devices = tuple(
        CapacityDevice(
            device.uuid,
            device.index,
            int(device.memory),
            device.is_lost,
            int(device.context),
            marks.name,
            device.uuid in marks.shut,
            device.name,
            device.domain,
        )
        for device in node.devices
    )
    if before is not None and devices == before.devices:
        devices = before.devices
    room = NodeRoom(node.rule, node.largest_kernel_bytes, marks.is_shut, node.is_away, marks.is_busy)
    reserved = {device.uuid: device.all_reserved for device in node.devices}
    facts = node_facts(math.inf, room, ((one, reserved[one.uuid], False, (), ()) for one in devices))
    return KeptNode(node, marks, devices, room, reserved, kinds.number(facts))
