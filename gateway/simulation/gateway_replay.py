"""A trace through the gateway's own plan: quotas, queue, backfill and swap-outs, as admission has them. Pure.

``scheduling.planner`` decides here over the nodes of the simulated cluster; the reasons of waits, of
which no user hears, are left out. What agents and kernels do takes no time: a kernel starts and
leaves at once. One that leaves keeps what it has done.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from types import MappingProxyType

from jupyter_aliquot.gateway.planning.jobs import DEVICE, Job
from jupyter_aliquot.gateway.scheduling.foreseeing.ends import moment_after
from jupyter_aliquot.gateway.scheduling.ledger import Device, Holding, KernelRef, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.planner import Admit, Pending, serve
from jupyter_aliquot.gateway.scheduling.queue_policy import PATIENCE_SECONDS
from jupyter_aliquot.gateway.scheduling.resize import held_of, quota_of
from jupyter_aliquot.gateway.scheduling.serving.order import queue_order
from jupyter_aliquot.gateway.sizes.wish import Wish
from jupyter_aliquot.gateway.state.queue_memory import QueueMemory
from jupyter_aliquot.gateway.teams.values import EVERYONE_ELSE, Quotas
from jupyter_aliquot.gpu_hook.placement.placement import WHOLE
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Request

from .simulator import EVENTS_PER_REPORT, SAME, Outcome, Run
from .traces import TraceError

_MEMORY = Bytes(80 << 30)  # of each device; sizes of a trace have no memory limit
_MILLI = DEVICE // WHOLE  # thousandths in one hundredth


class _Clock:
    """The time of the trace, also as the time of day."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def wall(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


@dataclass
class _Life:
    """One job. ``left`` is what remains of it while it does not run; ``end`` when it will have ended."""

    job: Job
    left: float
    first_start: float | None = None
    end: float = math.inf
    stops: int = 0


class GatewayReplay:
    """One run of a trace. Each instance runs once. A team of the trace counts as one user.

    *quotas* None: as a gateway without a quota file. Raises TraceError for a team that the quota file does not have.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        sizes: Sequence[int],
        quotas: Quotas | None,
        *,
        has_overhead: bool = True,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self._lives = {job.name: _Life(job, job.seconds) for job in sorted(jobs, key=lambda job: job.submit)}
        self._arrivals = list(self._lives.values())
        self._arrived = 0
        self._has_overhead, self._on_progress = has_overhead, on_progress
        self._clock = _Clock()
        self._memory = QueueMemory(None, self._clock, logging.getLogger(__name__))
        self._quotas = None if quotas is None else _of_trace(quotas, jobs)
        self._ledger = LedgerSnapshot(others=tuple(_nodes(sizes)), quotas=self._quotas)
        self._milli = DEVICE * sum(sizes)
        self._pending: list[Pending] = []
        # End and name; of one that left meanwhile the end is another.
        self._ends: list[tuple[float, str]] = []
        self._runs: list[Run] = []
        self._never: list[Job] = []
        self._use: list[tuple[float, int]] = []

    def run(self) -> Outcome:
        """Play until the last job has ended."""
        events, total = 0, len(self._arrivals)
        while (at := self._next_moment()) < math.inf:
            self._clock.at = at
            self._end_due()
            self._arrive_due()
            self._plan()
            events += 1
            if events % EVENTS_PER_REPORT == 0:
                self._on_progress(len(self._runs), total)
        self._on_progress(len(self._runs), total)
        stuck = [self._lives[one.kernel_id].job for one in self._pending]
        return Outcome(tuple(self._runs), tuple(self._use), self._milli, (*self._never, *stuck))

    def _next_moment(self) -> float:
        arrival = self._arrivals[self._arrived].job.submit if self._arrived < len(self._arrivals) else math.inf
        while self._ends and self._lives[self._ends[0][1]].end != self._ends[0][0]:
            heappop(self._ends)
        end = self._ends[0][0] if self._ends else math.inf
        return min(arrival, end, self._next_rule()) if self._pending else min(arrival, end)

    def _next_rule(self) -> float:
        """Return when time alone next changes what a plan may do: kernels that may leave, requests that waited."""
        now, found = self._clock.at, math.inf
        for at in self._moments_of_rules():
            if now < at < found:
                found = at
        return found

    def _moments_of_rules(self) -> Iterator[float]:
        quotas = self._quotas
        if quotas is None:
            return
        for one in self._ledger.holdings.values():
            team = quotas.team_of(one.grant.owner)
            yield moment_after(one.granted_at, team.reclaim_seconds if team else 0.0)
        for waiting in self._pending:
            yield moment_after(waiting.since, quotas.locality_seconds)
            yield moment_after(waiting.since, PATIENCE_SECONDS)

    def _end_due(self) -> None:
        now = self._clock.at
        while self._ends and (self._ends[0][0] <= now or math.isclose(self._ends[0][0], now, rel_tol=SAME)):
            end, name = heappop(self._ends)
            life = self._lives[name]
            if life.end == end:
                start = life.job.submit if life.first_start is None else life.first_start
                self._runs.append(Run(life.job, start, now, life.stops))
                life.end = math.inf
                self._ledger = self._ledger.without(name)

    def _arrive_due(self) -> None:
        now = self._clock.at
        while self._arrived < len(self._arrivals) and self._arrivals[self._arrived].job.submit <= now:
            job = self._arrivals[self._arrived].job
            request = Request(GpuShare(-(-job.milli // _MILLI)))
            self._pending.append(Pending(job.name, job.team, request, job.submit, wish=Wish(seconds=job.seconds)))
            self._arrived += 1

    def _plan(self) -> None:
        """Plan, and carry out what was planned, until a plan changes nothing."""
        is_settled = False
        while not is_settled:
            self._memory.note(self._ledger)
            ledger = replace(self._ledger, past=self._memory.now())
            waiting = sorted(self._pending, key=lambda one: one.since)
            planned = serve(ledger, queue_order(ledger, waiting, self._clock.at), self._clock.at)
            asked = {one.kernel_id: one for one in self._pending}
            for refused in planned.refusals:
                self._never.append(self._lives[refused.kernel_id].job)
            for admit in planned.admissions:
                self._start(asked[admit.kernel_id], admit)
            done = {one.kernel_id for one in planned.refusals} | {one.kernel_id for one in planned.admissions}
            self._pending = [one for one in self._pending if one.kernel_id not in done]
            for evicted in planned.evictions:
                self._stop(evicted.kernel_id)
            is_settled = not (planned.admissions or planned.evictions)
        self._note_use()

    def _start(self, asked: Pending, admit: Admit) -> None:
        name, now = asked.kernel_id, self._clock.at
        node = self._ledger.capacity().node_of(admit.parts)
        grown = self._ledger.with_parts(name, asked.request, admit.parts)
        grant = Grant(name, asked.owner, asked.request, node, tuple(map(quota_of, admit.parts)), "", ())
        holding = Holding(
            grant,
            KernelRef(name, asked.owner, wish=asked.wish),
            asked.since,
            queued_at=asked.since,
            granted_at=now,
            is_backfilled=admit.is_backfilled,
            passed=admit.passed,
        )
        self._ledger = replace(grown, holdings=MappingProxyType({**grown.holdings, name: holding}))
        life = self._lives[name]
        life.first_start = now if life.first_start is None else life.first_start
        life.end = now + life.left + (life.job.start_overhead if self._has_overhead else 0.0)
        heappush(self._ends, (life.end, name))

    def _stop(self, name: str) -> None:
        """Swap a kernel out; it waits for its devices at the place of its first request."""
        life, now = self._lives[name], self._clock.at
        holding = self._ledger.holdings[name]
        life.left, life.end = min(life.job.seconds, max(0.0, life.end - now)), math.inf
        life.stops += 1
        gone = self._ledger.without(name)
        out = replace(holding, is_evicted=True)
        self._ledger = replace(gone, holdings=MappingProxyType({**gone.holdings, name: out}))
        grant = holding.grant
        back = Pending(name, grant.owner, grant.request, holding.queued_at, returns_to=held_of(grant))
        self._pending.append(back)

    def _note_use(self) -> None:
        held = (one.grant.request.gpus.hundredths for one in self._ledger.holdings.values() if not one.is_evicted)
        used = _MILLI * sum(held)
        is_over = not self._pending and self._arrived == len(self._arrivals) and not self._ends
        if not self._use or self._use[-1][1] != used or is_over:
            self._use.append((self._clock.at, used))


def _nodes(sizes: Sequence[int]) -> Iterator[Node]:
    nothing = GpuShare(0), Bytes(0)
    for at, count in enumerate(sizes):
        name = f"node-{at:05}"
        devices = tuple(
            Device(f"GPU-{name}-{one}", one, "simulated", _MEMORY, *nothing, by_production=nothing)
            for one in range(count)
        )
        yield Node(name, "simulated", devices, evicted=frozenset())


def _of_trace(quotas: Quotas, jobs: Sequence[Job]) -> Quotas:
    """Return the quotas with each team as the one user of its name, beside everyone else. Raises TraceError."""
    teams = {
        name: replace(team, users=(name, EVERYONE_ELSE) if EVERYONE_ELSE in team.users else (name,), groups=())
        for name, team in quotas.teams.items()
    }
    found = replace(quotas, teams=MappingProxyType(teams))
    unknown: Mapping[str, Job] = {job.team: job for job in jobs if found.team_of(job.team) is None}
    for name, job in unknown.items():
        known = ", ".join(quotas.teams) or "none"
        raise TraceError(
            f"The job {job.name!r} is of the team {name!r}, which the quota file does not have. Its teams: {known}. "
            "Add the team, or one of everyone else (users: ['*'])"
        )
    return found
