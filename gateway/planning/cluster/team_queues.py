"""The queues of teams: which request is served next, while shares change with each that starts.

Each team keeps a heap of the teams below it. Serving a request changes the keys of the teams on its
path alone.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from .team_tree import TeamTree

Key = tuple[Any, ...]
_Entry = TypeVar("_Entry")


class _Branch(Generic[_Entry]):
    """One team: its own requests, the last one served first, and the teams below it by key."""

    def __init__(self, name: str, order: int) -> None:
        self.name = name
        self.order = order
        self.own: list[tuple[Key, int, _Entry]] = []
        self.below: list[tuple[Key, int, _Branch[_Entry]]] = []


class TeamQueues(Generic[_Entry]):
    """Serves requests one at a time, of the team with the smallest key first.

    Args:
        tree: the teams.
        key: (team, its next entry) to the team's key.
        entries: team to its entries with their keys in the team.
        is_settled: whether an entry need not be served any more; it is passed over.
    """

    def __init__(
        self,
        tree: TeamTree,
        key: Callable[[str, _Entry], Key],
        entries: Mapping[str, Sequence[tuple[Key, _Entry]]],
        is_settled: Callable[[_Entry], bool],
    ) -> None:
        self._key = key
        self._is_settled = is_settled
        self._branches = {name: _Branch[_Entry](name, at) for at, name in enumerate(tree.paths)}
        self._paths = tree.paths
        self._top = _Branch[_Entry]("", 0)
        self._number = 0
        for team, own in entries.items():
            keyed = [(one, at, entry) for at, (one, entry) in enumerate(own)]
            keyed.sort(key=lambda item: item[:2], reverse=True)
            self._branches[team].own = keyed
            self._number += len(keyed)
        # Teams whose keys have to be found again before the next request is served.
        self._stale: str | None = None
        for name in sorted(self._branches, key=lambda one: -len(tree.paths[one])):
            self._offer(tree.paths[name])

    def pop(self) -> tuple[str, _Entry] | None:
        """Remove and return the next request with its team; None if none is left."""
        self._settle()
        branch = self._top
        while branch.below:
            _, _, below = branch.below[0]
            if self._head(below) is None:
                heappop(branch.below)
                continue
            own = self._own_head(below)
            if own is not None and self._head(below) is own:
                below.own.pop()
                self._stale = below.name
                return below.name, own
            branch = below
        return None

    def push(self, team: str, key: Key, entry: _Entry) -> None:
        """Add a request."""
        self._number += 1
        own = self._branches[team].own
        insort(own, (key, self._number, entry), key=lambda item: _Reversed(item[:2]))
        if self._stale is None:
            self._stale = team

    def _settle(self) -> None:
        """Put the teams on the path of the last request into their heaps again."""
        if self._stale is None:
            return
        path, self._stale = self._paths[self._stale], None
        for at, name in enumerate(path):
            above = self._branches[path[at + 1]] if at + 1 < len(path) else self._top
            if above.below and above.below[0][2].name == name:
                heappop(above.below)
            else:
                above.below = sorted((one for one in above.below if one[2].name != name), key=lambda one: one[:2])
            self._offer(path[at:])

    def _offer(self, path: Sequence[str]) -> None:
        branch = self._branches[path[0]]
        head = self._head(branch)
        if head is not None:
            above = self._branches[path[1]] if len(path) > 1 else self._top
            heappush(above.below, (self._key(branch.name, head), branch.order, branch))

    def _head(self, branch: _Branch[_Entry]) -> _Entry | None:
        """Return the next request of a team or of one below it; its own requests go first."""
        own = self._own_head(branch)
        if own is not None:
            return own
        while branch.below:
            found = self._head(branch.below[0][2])
            if found is not None:
                return found
            heappop(branch.below)
        return None

    def _own_head(self, branch: _Branch[_Entry]) -> _Entry | None:
        while branch.own:
            entry = branch.own[-1][2]
            if not self._is_settled(entry):
                return entry
            branch.own.pop()
        return None


class _Reversed:
    """A key that sorts the other way round."""

    def __init__(self, key: Key) -> None:
        self._key = key

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other._key < self._key)
