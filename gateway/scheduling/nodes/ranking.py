"""The nodes of a capacity in their order for one size, and what a capacity found so far.

Nodes of one kind, which are alike in all by which a request is placed, have the same parts for it: these
are found once a kind. A capacity that differs from another in some nodes uses the other's order of the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
# All by which a request is placed on a node, and the number that stands for it.
Facts = tuple[object, ...]
# Of several nodes' refusals, the first of these counts: what waiting helps comes first.
_GRAVITY = {BAD_REQUEST: 0, NO_ROOM: 1, DEVICE_LOST: 2}
# Nodes in which a capacity may differ from the one whose ranking of nodes it uses.
_MOST_CHANGED = 32
# Kinds that are kept from one plan to the next, and placements: 1,000 nodes that all differ have one for each size.
_MOST_KINDS = 5_000
_MOST_PLACEMENTS = 50_000


class Found(NamedTuple):
    """The key and the parts, with the places of their devices, that nodes of a kind have for a size; or the refusal."""

    key: Score
    parts: tuple[Part, ...] | Refusal
    at: tuple[int, ...] = ()

    def on(self, uuids: Sequence[str]) -> tuple[Part, ...]:
        """Return the parts on the devices of another node of the kind."""
        assert not isinstance(self.parts, Refusal)
        return tuple(replace(part, uuid=uuids[place]) for part, place in zip(self.parts, self.at, strict=True))


class Alike(NamedTuple):
    """Nodes of one kind, by place among all nodes and name, the first one first; and what they have for a size.

    ``rank`` orders them among the others: whether their agents are busy, then the key; of refusals the gravity.
    """

    rank: tuple[float, ...]
    members: Sequence[tuple[int, str]]
    found: Found


class Ranking(NamedTuple):
    """Kinds of nodes for one size, the best first: those that have room, and those that have none."""

    placed: Sequence[Alike] = ()
    refused: Sequence[Alike] = ()


class Chosen(NamedTuple):
    """The first node of a ranking."""

    rank: tuple[float, ...]
    at: int
    node: str
    found: Found


def ranking(kinds: Iterable[tuple[bool, Sequence[tuple[int, str]], Found]]) -> Ranking:
    """Return kinds of nodes in order: of each whether its agents are busy, its nodes, and what it has."""
    placed, refused = list[Alike](), list[Alike]()
    for is_busy, members, found in kinds:
        if isinstance(found.parts, Refusal):
            gravity = _GRAVITY.get(found.parts.code, len(_GRAVITY))
            refused.append(Alike((float(gravity),), members, found))
        else:
            placed.append(Alike((float(is_busy), *found.key), members, found))
    return Ranking(sorted(placed, key=_order), sorted(refused, key=_order))


def _order(one: Alike) -> tuple[object, ...]:
    return one.rank, one.members[0]


def first(kinds: Sequence[Alike], without: Collection[str]) -> Chosen | None:
    """Return the first node of these kinds that is none of some; None if there is no other."""
    best: Chosen | None = None
    for one in kinds:
        if best is not None and one.rank > best.rank:
            break
        left = next((member for member in one.members if member[1] not in without), None)
        if left is not None and (best is None or left[0] < best.at):
            best = Chosen(one.rank, *left, one.found)
    return best


@dataclass
class Kinds:
    """Numbers of kinds of nodes, and what nodes of a kind have for a size: plans of one ledger share them.

    Placements hold for one ``rule``: the order of nodes and all else by which nodes that are alike differ.
    """

    numbers: dict[Facts, int] = field(default_factory=dict)
    placements: dict[tuple[Size, int], Found] = field(default_factory=dict)
    rule: tuple[object, ...] = ()
    unused: Iterator[int] = field(default_factory=itertools.count, compare=False, repr=False)

    def number(self, facts: Facts) -> int:
        """Return the number of a kind. A number always stands for the same facts.

        A plan in a thread and the loop may call it at once: each number is taken once, and some are never used.
        """
        found = self.numbers.get(facts)
        return self.numbers.setdefault(facts, next(self.unused)) if found is None else found

    def under(self, rule: tuple[object, ...]) -> Kinds:
        """Return the kinds with the placements by this rule, without any that were found by another one.

        It returns none where there are too many.
        """
        if len(self.numbers) > _MOST_KINDS:
            return Kinds(rule=rule)
        if rule == self.rule and len(self.placements) <= _MOST_PLACEMENTS:
            return self
        return Kinds(self.numbers, rule=rule, unused=self.unused)


@dataclass
class Findings:
    """The findings of a capacity so far: the kind of each node, and all nodes by size, the best first.

    ``origin`` is the capacity from which it ``differs`` in some nodes alone, and which ranks the others; None:
    it ranks all nodes itself.
    """

    kinds: Kinds = field(default_factory=Kinds)
    of_nodes: dict[str, int] = field(default_factory=dict)
    rankings: dict[Size, Ranking] = field(default_factory=dict)
    members: Mapping[int, Sequence[tuple[int, str]]] | None = None
    origin: Capacity | None = None
    differs: frozenset[str] = frozenset()

    def inherit(self, known: Findings, owner: Capacity, nodes: set[str]) -> None:
        """Take what the capacity *owner* found, from which this one's differs in these nodes."""
        origin, differs = known.origin or owner, known.differs.union(nodes)
        if len(differs) <= _MOST_CHANGED:
            self.origin, self.differs = origin, differs
        else:
            self.of_nodes = {node: one for node, one in origin.known.of_nodes.items() if node not in differs}
        for node in known.differs.difference(nodes):
            if node in known.of_nodes:
                self.of_nodes[node] = known.of_nodes[node]
