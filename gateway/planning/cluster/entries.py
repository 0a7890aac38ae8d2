"""Requests while a plan is made: which members are placed already, and their order in a team."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .decisions import WaitReason
from .engine import Place, Work
from .rules import Order, PlanningError, Rules
from .snapshot import Locality, Request
from .team_queues import Key
from .team_tree import TeamTree

# Of two steps with one shape, neither fits if the other fits nowhere.
Shape = tuple[object, ...]


@dataclass(eq=False)
class Entry:
    """A request in a plan."""

    request: Request
    # Members of running work of the same name.
    running: int
    # Members that run or will, below which it is of no use.
    least: int
    locality: Locality
    order: Key
    placed: int = 0
    places: dict[int, Place] = field(default_factory=dict)
    reason: WaitReason | None = None

    @property
    def step(self) -> range:
        """The members to place next: all that it needs to be of use, and then one by one."""
        needed = max(1, self.least - self.running - self.placed)
        return range(self.placed, min(self.placed + needed, len(self.request.sizes)))

    @property
    def milli(self) -> int:
        """Thousandths of a device that the next step wants."""
        return sum(self.request.sizes[at] for at in self.step)

    @property
    def is_complete(self) -> bool:
        """Whether all members are placed."""
        return self.placed >= len(self.request.sizes)

    @property
    def key(self) -> Key:
        """The key in its team: priority, then members beyond the least number, then the order of the rules."""
        surplus = max(0, self.placed + self.running - self.least + 1)
        return (-self.request.priority, surplus, *self.order)

    def advance(self, places: Mapping[int, Place]) -> None:
        """Note that the next step was placed."""
        self.placed += len(places)
        self.places.update(places)

    def next_shape(self, *, with_estimate: bool = False) -> Shape:
        """Return the shape of the next step."""
        one = self.request
        step = self.step
        sizes = one.sizes if len(step) == len(one.sizes) else one.sizes[step.start : step.stop]
        estimate = one.estimate if with_estimate else None
        return (one.team, sizes, one.is_preemptible, one.models, one.cpu, one.memory, self.locality, estimate)


def entries_of(
    pending: Iterable[Request], works: Mapping[str, Work], tree: TeamTree, rules: Rules, now: float
) -> list[Entry]:
    """Return an entry for each request. Raises PlanningError if one cannot be planned."""
    names = set[str]()
    found: list[Entry] = []
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
        work = works.get(request.name)
        running = len(work.running.members) if work else 0
        least = request.min_members if request.min_members is not None else len(request.sizes) + running
        order = (*_value(request, rules), request.submitted, request.name)
        found.append(Entry(request, running, least, _relaxed(request, rules, now), order))
    return found


def _value(request: Request, rules: Rules) -> Sequence[float]:
    if rules.order is Order.FIFO:
        return ()
    if rules.order is Order.LAS:
        return (request.attained,)
    if rules.order is Order.GITTINS and rules.gittins is not None:
        return (-rules.gittins.of(request.attained),)
    if request.estimate is None:
        return (math.inf,)
    return (request.estimate * (request.milli if rules.order is Order.SRSF else 1),)


def _relaxed(request: Request, rules: Rules, now: float) -> Locality:
    """Return the locality after its waiting time; a clock that went back counts as no waiting."""
    waited = max(0.0, now - request.submitted)
    if not request.locality or not rules.relax_after:
        return Locality.ANY
    steps = int(min(waited / rules.relax_after, float(Locality.LINK)))
    return Locality(max(0, request.locality - steps))
