"""Requests while a plan is made: which members are placed already, and their order in a team."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from jupyter_aliquot.gateway.planning.priority import Order, urgency

from .decisions import WaitReason
from .engine import Work
from .rules import PlanningError, Rules
from .snapshot import Locality, Request
from .team_queues import Key
from .team_tree import TeamTree

# Of two steps with one shape, neither fits if the other fits nowhere.
Shape = tuple[object, ...]


class Entry:
    """A request in a plan. The step, its size, its key and its shape are those of the next members to place."""

    __slots__ = (
        "_order",
        "key",
        "least",
        "locality",
        "milli",
        "placed",
        "reason",
        "request",
        "running",
        "shape",
        "step",
    )

    def __init__(self, request: Request, running: int, locality: Locality, order: Key) -> None:
        self.request = request
        # Members of running work of the same name.
        self.running = running
        # Members that run or will, below which it is of no use.
        self.least = len(request.sizes) + running if request.min_members is None else request.min_members
        self.locality = locality
        self.placed = 0
        self.reason: WaitReason | None = None
        self._order = order
        self._begin_step()

    @property
    def is_too_small(self) -> bool:
        """Whether it is of no use with all its members."""
        return self.running + len(self.request.sizes) < self.least

    @property
    def is_complete(self) -> bool:
        """Whether all members are placed."""
        return self.placed >= len(self.request.sizes)

    def advance(self, members: int) -> None:
        """Note that so many members, those of the step, were placed."""
        self.placed += members
        if not self.is_complete:
            self._begin_step()

    def _begin_step(self) -> None:
        """Take all members that it needs to be of use; after that, one by one."""
        request, placed = self.request, self.placed
        count = len(request.sizes)
        end = min(count, placed + max(1, self.least - self.running - placed))
        sizes = request.sizes if end - placed == count else request.sizes[placed:end]
        self.step = range(placed, end)
        self.milli = sum(sizes)
        surplus = max(0, placed + self.running - self.least + 1)
        self.key: Key = (-request.priority, surplus, *self._order)
        self.shape: Shape = (
            request.team,
            sizes,
            request.is_preemptible,
            request.models,
            request.cpu,
            request.memory,
            int(self.locality),
            self.is_too_small,
        )


def entries_of(
    pending: Iterable[Request], works: Mapping[str, Work], tree: TeamTree, rules: Rules, now: float
) -> list[Entry]:
    """Return an entry for each request. Raises PlanningError if one cannot be planned."""
    names = set[str]()
    found: list[Entry] = []
    is_fifo = rules.order is Order.FIFO
    for request in pending:
        if request.name in names:
            raise PlanningError(f"Two requests are named {request.name!r}. Give each a name of its own")
        names.add(request.name)
        if request.team not in tree.teams:
            raise PlanningError(f"{request.name!r} waits for the team {request.team!r}, which is no team. Add the team")
        if not request.sizes or min(request.sizes) <= 0:
            raise PlanningError(
                f"{request.name!r} requests {request.sizes} thousandths of a GPU. Request 1 or more each"
            )
        _check(request)
        work = works.get(request.name)
        running = len(work.running.members) if work else 0
        order = (
            (request.submitted, request.name) if is_fifo else (*_value(request, rules), request.submitted, request.name)
        )
        locality = _relaxed(request, rules, now) if request.locality else Locality.ANY
        found.append(Entry(request, running, locality, order))
    return found


def _check(request: Request) -> None:
    for name in ("submitted", "attained", "estimate", "eviction_delay"):
        value = getattr(request, name)
        if value is not None and math.isnan(value):
            raise PlanningError(f"{name} of {request.name!r} is {value}. Give seconds")
    for name in ("cpu", "memory"):
        value = getattr(request, name)
        if value < 0:
            raise PlanningError(f"{request.name!r} requests {name} {value}. Request 0 or more")


def _value(request: Request, rules: Rules) -> Sequence[float]:
    attained, estimate = request.attained, request.estimate
    return urgency(rules.order, attained=attained, estimate=estimate, milli=request.milli, past=rules.gittins)


def _relaxed(request: Request, rules: Rules, now: float) -> Locality:
    """Return the locality after its waiting time; a clock that went back counts as no waiting."""
    waited = max(0.0, now - request.submitted)
    if not rules.relax_after:
        return Locality.ANY
    steps = int(min(waited / rules.relax_after, float(Locality.LINK)))
    return Locality(max(0, request.locality - steps))
