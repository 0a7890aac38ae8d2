"""Teams, their quotas and the queue, as the quota file describes them. Values; no I/O, no clock.

The words are Kueue's and KAI's: a team has a nominal quota; it borrows what others do not use, and
lends what it does not use. Amounts are hundredths of a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from jupyter_aliquot.gateway.planning.hierarchy import Hierarchy
from jupyter_aliquot.gateway.planning.node_choice import NodeOrder

from .budgets import NO_BUDGETS, Budgets

# The only model of a file whose quotas name none: all GPUs count alike.
ANY_MODEL = ""
# Devices that no quota of the file names.
OTHER_MODEL = "other"
# A user of this name in a team's list stands for each user whom no other team includes.
EVERYONE_ELSE = "*"

Amounts = Mapping[str, int]
NOTHING: Amounts = MappingProxyType({})

QUEUE_ORDERS = ("fifo", "las", "gittins", "srtf", "drf")
TEAM_ORDERS = ("fifo", "las", "gittins", "srtf")  # within one team; drf is an order of teams
ENDED = ("never", "low", "any")
BORROWERS = ("any", "low")


@dataclass(frozen=True)
class Team:
    """One team.

    Args:
        name: Unique in the file.
        line: Its line in the file.
        parent: The team above it; empty: the organization.
        users: Names of its users.
        groups: Groups of the Hub whose members are its users.
        nominal: What it is owed, by GPU model.
        borrowing: The most beyond that, by model; None: no limit.
        lending: The most of its own that others may use, by model; None: no limit.
        weight: Its part of what it and others borrow, in relation to theirs.
        reclaim_seconds: How long a kernel that borrows runs at least before it is evicted.
        may_be_ended: Which of its borrowing kernels may be ended where they cannot be swapped out.
        borrowers: The priority of kernels that may borrow: any, or low alone.
        overcommit: The most times its memory that a GPU is reserved while a kernel of the team has
            a part of it; None: as the node agent has it.
        queue_order: The order of its own requests; None: as the queue's.
        former_names: Names that it had, whose GPU time the accounting counts for it.
    """

    name: str
    line: int = 0
    parent: str = ""
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    nominal: Amounts = field(default_factory=lambda: NOTHING)
    borrowing: Amounts | None = None
    lending: Amounts | None = None
    weight: float = 1.0
    reclaim_seconds: float = 0.0
    may_be_ended: str = "never"
    borrowers: str = "any"
    overcommit: float | None = None
    queue_order: str | None = None
    former_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Quotas:
    """The whole file: the organization, its teams in the file's order, the queue and the budgets.

    ``usage_half_life``: seconds after which half of a team's use over quota is forgotten; None: at once.
    ``locality_seconds``: how long a request waits for devices of one NVLink or PCIe domain.
    ``neighbor_floor``: the part of its speed alone below which a kernel of normal priority refuses a neighbor.
    """

    organization: str = ""
    teams: Mapping[str, Team] = field(default_factory=lambda: MappingProxyType({}))
    order: str = "fifo"
    is_backfilling: bool = True
    node_order: NodeOrder = NodeOrder.BEST_FIT
    usage_half_life: float | None = None
    budgets: Budgets = NO_BUDGETS
    locality_seconds: float = 0.0
    neighbor_floor: float = 0.0

    @cached_property
    def lowers_overcommit(self) -> bool:
        """Tell whether a team's kernels share a GPU's memory less than the node agent lets them."""
        return any(team.overcommit is not None for team in self.teams.values())

    def overcommit_of(self, user: str, groups: Iterable[str] = ()) -> float:
        """Return the most times its memory that a GPU with a kernel of this user is reserved."""
        team = self.team_of(user, groups)
        return math.inf if team is None or team.overcommit is None else team.overcommit

    @cached_property
    def present_names(self) -> Mapping[str, str]:
        """The present name of each former name of a team."""
        return {former: team.name for team in self.teams.values() for former in team.former_names}

    @cached_property
    def models(self) -> tuple[str, ...]:
        """The GPU models that quotas name, sorted; ANY_MODEL alone where they name none."""
        found = {model for team in self.teams.values() for model in team.nominal}
        return tuple(sorted(found - {ANY_MODEL})) or (ANY_MODEL,)

    def model_of(self, device_name: str) -> str:
        """Return the model of a device; OTHER_MODEL for one that no quota names.

        A model is a part of the device's name: ``H200`` is ``NVIDIA H200``. The longest match counts.
        """
        if self.models == (ANY_MODEL,):
            return ANY_MODEL
        words = device_name.casefold()
        found = [model for model in self.models if model.casefold() in words]
        return max(found, key=len) if found else OTHER_MODEL

    def team_of(self, user: str, groups: Iterable[str] = ()) -> Team | None:
        """Return the team in which a user's kernels count; None for a user of no team.

        A team that names the user comes first, then the first one of a group of the user, then the
        team of everyone else.
        """
        named = self._of_users.get(user)
        if named is not None:
            return named
        of = frozenset(groups)
        grouped = next((team for team in self.teams.values() if not of.isdisjoint(team.groups)), None) if of else None
        return grouped or self._of_everyone_else

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """The tree of the teams' names. Raises HierarchyError if they are none, which reading a file finds."""
        return Hierarchy({team.name: team.parent for team in self.teams.values()})

    def children(self, name: str) -> tuple[Team, ...]:
        """Return the teams directly below this one; of the empty name, below the organization."""
        return tuple(self.teams[one] for one in self.hierarchy.children(name))

    @cached_property
    def _of_users(self) -> Mapping[str, Team]:
        return {user: team for team in self.teams.values() for user in team.users if user != EVERYONE_ELSE}

    @cached_property
    def _of_everyone_else(self) -> Team | None:
        return next((team for team in self.teams.values() if EVERYONE_ELSE in team.users), None)

    def ancestors(self, name: str) -> tuple[Team, ...]:
        """Return the team and those above it, from below."""
        return tuple(self.teams[one] for one in self.hierarchy.way(name))
