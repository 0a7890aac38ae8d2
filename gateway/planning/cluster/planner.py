"""``plan(snapshot, pending, now)``: which request gets which parts of which node. Pure, deterministic.

First all that fits starts, in the order of the teams and of the requests in them. For the others
the plan then moves, reclaims and preempts, in the order of ``Rules.steps``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from jupyter_aliquot.gateway.planning.withdrawal.moving import move_for
from jupyter_aliquot.gateway.planning.withdrawal.taking import preempt_for, reclaim_for
from jupyter_aliquot.gateway.planning.withdrawal.withdrawing import Taken

from .decisions import Cause, Kind, Plan, WaitReason
from .draft import Draft
from .engine import Engine
from .entries import Entry, Shape, entries_of
from .holds import Holds
from .placing import OF_NODES, Placed, is_allowed_everywhere, refusal
from .rules import PlanningError, Rules, Step
from .shares import Shares
from .snapshot import Request, Snapshot
from .team_queues import Key, TeamQueues
from .team_tree import TeamTree

# Reasons that no move and no withdrawal changes.
_HOPELESS = (Kind.NEVER,)
DEFAULT = Rules()


def plan(snapshot: Snapshot, pending: Sequence[Request], now: float, rules: Rules = DEFAULT) -> Plan:
    """Decide about all requests. Raises PlanningError for a snapshot that contradicts itself."""
    if not math.isfinite(now):
        raise PlanningError(f"The time is {now}. Give the seconds of a clock")
    return _Planner(snapshot, pending, now, rules).run()


class _Planner:
    def __init__(self, snapshot: Snapshot, pending: Sequence[Request], now: float, rules: Rules) -> None:
        self._rules, self._now = rules, now
        self._tree = TeamTree(snapshot.teams)
        self._engine = Engine(snapshot, pending, self._tree, rules)
        self._entries = entries_of(pending, self._engine.works, self._tree, rules, now)
        self._shares = Shares(self._engine, self._entries, rules)
        self._holds = Holds(self._engine, rules, now)
        self._draft = Draft(self._engine)

    def run(self) -> Plan:
        for step in self._rules.steps:
            if step is Step.START:
                self._start()
            else:
                self._take(step)
        return self._draft.finish(self._entries, self._holds, self._shares.all())

    def _start(self) -> None:
        """Start what fits, and keep GPUs for what does not."""
        failed: dict[Shape, WaitReason] = {}
        # Shapes without their team, for which there are no GPUs.
        failed_for_all: dict[Shape, WaitReason] = {}

        def is_settled(entry: Entry) -> bool:
            shape = self._shape(entry)
            reason = failed.get(shape)
            if reason is None:
                general = failed_for_all.get(shape[1:])
                if general is None:
                    return False
                reason = failed[shape] = refusal(self._engine, entry) or general
            entry.reason = reason
            return True

        def attempt(entry: Entry) -> bool:
            placed = self._holds.place_beside(entry)
            if isinstance(placed, Placed):
                self._draft.start(entry, placed)
                self._holds.close_for(entry)
                return True
            entry.reason = placed
            if not self._holds.has(entry) and not self._holds.hold_for(entry, placed):
                shape = self._shape(entry)
                failed[shape] = placed
                if placed.kind in OF_NODES and is_allowed_everywhere(self._engine, entry):
                    failed_for_all[shape[1:]] = placed
            return False

        self._serve(is_settled, attempt)
        if self._draft.free_ending():
            failed.clear()
            failed_for_all.clear()
            self._serve(is_settled, attempt)

    def _take(self, step: Step) -> None:
        """Move, reclaim or preempt for what did not start."""
        failed = set[tuple[Shape, int]]()
        searches = 0

        def key(entry: Entry) -> tuple[Shape, int]:
            return (self._shape(entry), entry.request.priority)

        def attempt(entry: Entry) -> bool:
            nonlocal searches
            searches += 1
            self._holds.open_for(entry)
            taken = self._search(step, entry)
            if taken is None:
                failed.add(key(entry))
            else:
                failed.clear()
                taken.commit(self._draft, entry, Cause.PREEMPT if step is Step.PREEMPT else Cause.RECLAIM)
            self._holds.close_for(entry)
            return taken is not None

        self._serve(lambda entry: searches >= self._rules.most_searches or key(entry) in failed, attempt)

    def _search(self, step: Step, entry: Entry) -> Taken | None:
        request = entry.request
        if entry.reason is not None and entry.reason.kind in _HOPELESS:
            return None
        if step is Step.MOVE:
            return move_for(self._engine, entry, self._rules)
        if self._now - request.submitted < request.eviction_delay:
            return None
        search = preempt_for if step is Step.PREEMPT else reclaim_for
        return search(self._engine, self._shares, entry, self._rules, self._now)

    def _shape(self, entry: Entry) -> Shape:
        """Return the shape; with the estimate while one may end before a hold begins."""
        return (*entry.shape, entry.request.estimate) if self._holds.are_timed else entry.shape

    def _serve(self, is_settled: Callable[[Entry], bool], attempt: Callable[[Entry], bool]) -> None:
        """Attempt the next step of each request in order; of one that succeeds, the step after it."""
        waiting: dict[str, list[tuple[Key, Entry]]] = {}
        for entry in self._entries:
            if not entry.is_complete:
                waiting.setdefault(entry.request.team, []).append((entry.key, entry))
        queues = TeamQueues(self._tree, self._shares.key, waiting, is_settled)
        while (found := queues.pop()) is not None:
            team, entry = found
            if attempt(entry) and not entry.is_complete:
                queues.push(team, entry.key, entry)
