"""The tree of teams: what is below each team, and the way from it to the top. Pure.

The quota file and the quotas that admission counts share this structure.
It knows names alone; amounts and rules belong to its users.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# The name of the top, above all teams without a parent. It is on no way.
TOP = ""


@dataclass(frozen=True)
class Fault:
    """One reason why names are no tree: a parent that is not there, or a cycle of parents.

    ``cycle`` begins and ends with ``name``; it is empty where the ``parent`` is unknown.
    """

    name: str
    parent: str
    cycle: tuple[str, ...] = ()


class HierarchyError(ValueError):
    """Names that are no tree, with their first ``fault``."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        way = " → ".join(fault.cycle)
        told = f"{fault.name!r} is its own parent: {way}" if fault.cycle else f"{fault.parent!r} is unknown"
        super().__init__(f"{told}. Give {fault.name!r} another parent, or none")


class Hierarchy:
    """The names of a tree, in the order of *parents*, a mapping of each name to the one above it.

    Raises HierarchyError if they are no tree.
    """

    def __init__(self, parents: Mapping[str, str]) -> None:
        for fault in faults(parents):
            raise HierarchyError(fault)
        self._children: dict[str, list[str]] = {}
        self._apart: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self.ways: dict[str, tuple[str, ...]] = {}
        for name, parent in parents.items():
            self._children.setdefault(parent, []).append(name)
            self.ways[name] = _way(name, parents)

    def children(self, name: str) -> tuple[str, ...]:
        """Return the names directly below this one."""
        return tuple(self._children.get(name, ()))

    def way(self, name: str) -> tuple[str, ...]:
        """Return the name and those above it, from below; of a name that is not in the tree, itself."""
        return self.ways.get(name) or ((name,) if name != TOP else ())

    def is_above(self, name: str, other: str) -> bool:
        """Return whether the one is the other, or above it."""
        return name == TOP or name in self.way(other)

    def apart(self, name: str, other: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return both ways up to the nearest name that is above both, without that."""
        found = self._apart.get((name, other))
        if found is None:
            mine, theirs = self.way(name), self.way(other)
            left = tuple(one for one in mine if one not in theirs), tuple(one for one in theirs if one not in mine)
            found = self._apart[name, other] = left
        return found


def faults(parents: Mapping[str, str]) -> Iterator[Fault]:
    """Yield why these are no tree; a cycle once, at the first of its names."""
    told: set[str] = set()
    for name, parent in parents.items():
        if parent != TOP and parent not in parents:
            yield Fault(name, parent)
        elif name not in told and (cycle := _cycle(name, parents)):
            told.update(cycle)
            yield Fault(name, parent, cycle)


def _cycle(name: str, parents: Mapping[str, str]) -> tuple[str, ...]:
    """Return the cycle through this name, itself at both ends; nothing if there is none."""
    seen, above = [name], parents[name]
    while above != TOP and above in parents and above not in seen:
        seen.append(above)
        above = parents[above]
    return (*seen, name) if above == name != TOP else ()


def _way(name: str, parents: Mapping[str, str]) -> tuple[str, ...]:
    found = [name]
    while (above := parents[found[-1]]) != TOP:
        found.append(above)
    return tuple(found)
