"""The nodes of a capacity in their order for one size, and what a capacity found so far.

A capacity that differs from another in some nodes uses the other's order of the rest. Nodes that are
alike have the same parts for a request, which are found once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from jupyter_aliquot.gateway.planning.node_choice import Score
from jupyter_aliquot.gpu_hook.placement.placement import BAD_REQUEST, DEVICE_LOST, NO_ROOM, Part, Refusal

if TYPE_CHECKING:
    from jupyter_aliquot.gateway.planning.colocation import Neighbor
    from jupyter_aliquot.gateway.scheduling.capacity import Capacity
    from jupyter_aliquot.provisioner.resources import Request

# A request, how its memory may leave its devices, whether these are in one domain, and its load.
Size = tuple["Request", str, bool, "Neighbor | None"]
# The key of a node among others, and the parts that it has for a request, or why it has none.
Placement = tuple[Score, "tuple[Part, ...] | Refusal"]
# Of several nodes' refusals, the first of these counts: what waiting helps comes first.
_GRAVITY = {BAD_REQUEST: 0, NO_ROOM: 1, DEVICE_LOST: 2}
# Nodes in which a capacity may differ from the one whose ranking of nodes it uses.
_MOST_CHANGED = 32


class Placed(NamedTuple):
    """A node that has room for a size: whether its agent is busy, its key, and its place among the nodes."""

    is_busy: bool
    key: Score
    at: int
    node: str
    parts: tuple[Part, ...]


class Refused(NamedTuple):
    """A node that has no room for a size; the gravest reason comes last."""

    gravity: int
    at: int
    node: str
    refusal: Refusal


class Ranking(NamedTuple):
    """Nodes for one size, the best first."""

    placed: Sequence[Placed] = ()
    refused: Sequence[Refused] = ()


def ranking(found: Mapping[str, Placement], places: Mapping[str, int], busy: frozenset[str]) -> Ranking:
    """Return the nodes with these placements in order. ``places`` is the order of all nodes."""
    placed, refused = list[Placed](), list[Refused]()
    for name, (key, one) in found.items():
        if isinstance(one, Refusal):
            refused.append(Refused(_GRAVITY.get(one.code, len(_GRAVITY)), places[name], name, one))
        else:
            placed.append(Placed(name in busy, key, places[name], name, one))
    return Ranking(sorted(placed), sorted(refused))


@dataclass
class Found:
    """The findings of a capacity so far: placements by node and size, and all nodes by size, the best first.

    ``alike`` has placements by all that they depend on, with the places of the devices on their node.
    ``origin`` is the capacity from which it ``differs`` in some nodes alone, and which ranks the others; None:
    it ranks all nodes itself.
    """

    placed: dict[str, dict[Size, Placement]] = field(default_factory=dict)
    rankings: dict[Size, Ranking] = field(default_factory=dict)
    alike: dict[tuple[object, ...], tuple[Placement, tuple[int, ...]]] = field(default_factory=dict)
    facts: dict[str, tuple[object, ...]] = field(default_factory=dict)
    origin: Capacity | None = None
    differs: frozenset[str] = frozenset()

    def inherit(self, known: Found, owner: Capacity, nodes: set[str]) -> None:
        """Take what the capacity *owner* found, from which this one's differs in these nodes."""
        origin, differs = known.origin or owner, known.differs.union(nodes)
        self.alike = known.alike
        if len(differs) <= _MOST_CHANGED:
            self.origin, self.differs = origin, differs
        else:
            there = origin.known
            self.placed.update({node: one for node, one in there.placed.items() if node not in differs})
            self.facts.update({node: one for node, one in there.facts.items() if node not in differs})
        for node in known.differs.difference(nodes):
            if node in known.placed:
                self.placed[node] = known.placed[node]
            if node in known.facts:
                self.facts[node] = known.facts[node]


def on_node(placement: Placement, at: Sequence[int], uuids: Sequence[str]) -> Placement:
    """Return a placement of a node alike on the devices of another one: those at these places of it."""
    key, parts = placement
    if isinstance(parts, Refusal):
        return placement
    return key, tuple(replace(part, uuid=uuids[place]) for part, place in zip(parts, at, strict=True))
