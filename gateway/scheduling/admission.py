"""The scheduling cycle, and the only writer of queue and ledger.

The planner decides which request goes next, and on which node. The node's agent decides whether there is
capacity. The cycle waits for the agent of the gateway's own node alone; others have lanes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.base.lead import CUT_OFF
from jupyter_aliquot.gateway.base.tasks import in_groups
from jupyter_aliquot.gpu_hook.waiting import end_task, until_first
from jupyter_aliquot.provisioner.errors import (
    AgentUnavailableError,
    AliquotError,
    GrantError,
    WithdrawnError,
)
from jupyter_aliquot.provisioner.resources import Grant, Request

from .agents.commits import Commits, OwnNode, ResizeObserver
from .agents.lanes import Asked, Lane, Lanes, NoRemoteAgents, RemoteAgents
from .agents.moves import Moves
from .agents.orphans import release_orphans
from .agents.plan_beside import plan_beside
from .agents.readiness import Readiness
from .agents.releases import Releases, resolve
from .agents.renewal import Renewal
from .checks import check_request, refusal_without_agent, seconds_to_next_look
from .ledger import Holding, KernelRef, Ledger, LedgerSnapshot
from .lending.evicting import Evictor
from .lending.tenure import resumed
from .planner import Admit, Plan
from .queue import QueueEntry, RequestQueue, Waiting, growth_of, pending_of, return_of
from .serving.order import queue_order
from .snapshot import AdmissionSettings, AdmissionSnapshot, Agent
from .wait_reason import agent_refused, agent_unavailable, not_planned

__all__ = ["Admission", "AdmissionSettings", "AdmissionSnapshot", "Agent", "KernelRef", "QueueEntry"]


class Admission:
    """Grants for this gateway's kernels, one cycle at a time."""

    def __init__(
        self,
        agent: Agent,
        clock: Clock,
        settings: AdmissionSettings,
        log: logging.Logger | None = None,
        remote: RemoteAgents | None = None,
    ) -> None:
        self._agent = agent
        self._clock = clock
        self._settings = settings
        self._log = log or logging.getLogger(__name__)
        told = (settings.past, settings.leaving_devices, settings.loads)
        self._ledger = Ledger(settings.quotas, settings.cordon_of, *told)
        self._queue = RequestQueue()
        # Ended grants of which their agent does not know yet.
        self._releases = Releases(self._log)
        self._own = OwnNode(agent)
        answers = (self._ledger, self._queue, self._releases, settings, clock)
        self._commits = Commits(*answers, self.plan_again, self._unanswered, self._log)
        self._renewal = Renewal(self._ledger, self._releases, self._commits.tell_size, self._log, settings.lead)
        parts = (self._ledger, self._releases, self._renewal, clock)
        self._lanes = Lanes(remote or NoRemoteAgents(), *parts, self._agent_moved, self._log)
        # Kernels that waited in an earlier gateway's queue, and whose requests are to come again.
        self._expected: set[str] = set()
        self._began = clock.wall()
        self._work = asyncio.Event()
        self._moves = Moves(self._work, self._is_idle)
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self.evictor = Evictor(self._ledger, clock, self._work.set, self._log, settings.lead)
        self._observers: list[Callable[[], None]] = []
        self.readiness = Readiness(clock, settings.ready_seconds)
        agent.listen(self._agent_moved)

    # ---- requests

    async def start(self) -> None:
        self._work.set()
        self._task = asyncio.create_task(self._run(), name="aliquot-admission")

    async def stop(self, *, leaves_kernels: bool = False) -> None:
        """Withdraw the waiting requests and take no new ones.

        Grants can still be released afterwards.

        With *leaves_kernels* the waiting requests stay as they are: the next gateway of this name
        queues them again.
        """
        self._is_stopped = True
        for waiting in () if leaves_kernels else self._queue:
            self.withdraw(waiting.requester.kernel_id, "the gateway is stopping")
        task, self._task = self._task, None
        if task is not None:
            await end_task(task)
        self._moves.stop_looking()
        await self._lanes.finish()
        await self._finish_releases()

    def adopt(self, holding: Holding) -> None:
        """Take over the grant of a kernel that outlived its gateway.

        It is unconfirmed until the agent has renewed it.
        """
        now, tenure = self._clock.now(), self._settings.tenure_of(holding.grant.kernel_id)
        self._ledger.commit(granted=[resumed(holding, tenure, now, self._clock.wall() - now)])
        self._work.set()

    def expect(self, kernel_id: str) -> None:
        """Count a kernel as waiting until its request comes, or its start is given up.

        Called by recovery, whose kernels submit their requests only when the first cycles are over. Meanwhile
        kernels that started ahead of this one keep the condition on which they did.
        """
        self._expected.add(kernel_id)

    def adopt_ending(self, holding: Holding) -> None:
        """Count the grant of a kernel that an earlier gateway released, while a process of it keeps memory."""
        self._ledger.commit(granted=[holding])
        self._ledger.commit(released=[holding.grant.kernel_id])

    def check(
        self, requester: KernelRef, request: Request, before: Grant | None = None, waits_since: float | None = None
    ) -> None:
        """Refuse a request that waiting cannot help. Raises what check_request raises.

        The class policy judges a start by the kernel's owner, and a change by the user who requests
        it.
        """
        if before is None:
            self._settings.check_class(requester.owner, request, requester.kernelspec)
            # A request that an earlier gateway queued keeps its place.
            if waits_since is None or waits_since >= self._began:
                waiting = [one for one in self._queue.pending(requester.replaces) if one.returns_to is None]
                self._settings.check_queue(requester, waiting)
        now = None if before is None else before.request
        self._settings.check_budget(requester.owner, requester.teams, request, now)
        # The request replaces the one that this kernel waits for already.
        others = self._queue.pending((requester.kernel_id,))
        check_request(self._ledger.snapshot(), others, self._settings.caps, requester, request, before)

    def submit(
        self,
        requester: KernelRef,
        request: Request,
        wait_seconds: float | None = None,
        waits_since: float | None = None,
        on_room_reserved: Callable[[], None] = lambda: None,
    ) -> asyncio.Future[Grant]:
        """Queue a request.

        The future returns its Grant, to be returned with release, or raises AliquotError.

        *waits_since*, in seconds since the epoch, is the time at which an earlier gateway queued
        it. Its queue timeout begins anew: no gateway could serve it meanwhile. *on_room_reserved*
        ends the kernels that it replaces; it is called when their capacity is all that the request
        lacks. Cancelling the future withdraws the request. Raises what check raises, and GrantError
        for a kernel that waits or holds a grant already.
        """
        kernel_id = requester.kernel_id
        if self._is_stopped:
            raise WithdrawnError("Requested a grant, but the gateway is stopping. Try again when it has started")
        if kernel_id in self._queue or self._holds(kernel_id):
            raise GrantError(f"Kernel {kernel_id} waits for a GPU or holds one already. Use another kernel id.")
        self._expected.discard(kernel_id)
        try:
            self.check(requester, request, waits_since=waits_since)
        except AliquotError:
            self._queue.outcomes["refused"] += 1
            raise
        future: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        since, shown_since = self._since(waits_since)
        patience = [w for w in (wait_seconds, self._settings.queue_timeout_seconds) if w is not None]
        deadline = self._clock.now() + min(patience) if patience else None
        pending = pending_of(requester, request, since, deadline)
        self._queue.add(Waiting(requester, pending, shown_since, future, not_planned(request), on_room_reserved))
        future.add_done_callback(lambda done: self._requester_left(kernel_id, done))
        self._work.set()
        return future

    def _since(self, waits_since: float | None) -> tuple[float, float]:
        """Return since when a request waits, by admission's clock and in seconds since the epoch."""
        shown = self._clock.wall()
        shown_since = shown if waits_since is None else min(waits_since, shown)
        return self._clock.now() - (shown - shown_since), shown_since

    def withdraw(self, kernel_id: str, reason: str = "the start was canceled") -> bool:
        """Take a request out of the queue, and return whether it was there.

        Its future raises WithdrawnError.
        """
        self._work.set()
        return self._queue.withdraw(kernel_id, reason)

    async def release(self, kernel_id: str) -> None:
        """End a kernel's request and grant.

        Idempotent. Afterwards the ledger holds nothing for the kernel.
        """
        self.withdraw(kernel_id)
        self._expected.discard(kernel_id)
        holding = self._ledger.snapshot().holdings.get(kernel_id)
        if holding is None:
            return
        done = self._releases.ask(kernel_id, holding.grant.node)
        if self._task is None:
            await self._lanes.finish()
            await self._finish_releases()
        self._work.set()
        await asyncio.shield(done)

    async def resize(self, kernel_id: str, request: Request, waits_since: float | None = None) -> Grant | QueueEntry:
        """Change the size of a running kernel.

        Return the new Grant or, while capacity lacks, its place in the queue.

        A refused request changes nothing. Any other replaces the change that this kernel waits for.
        *waits_since* is as for submit. Raises what check raises, and GrantError for a kernel that
        holds nothing here.
        """
        await self._commits.until_answered(kernel_id)
        holding = self._ledger.snapshot().holdings.get(kernel_id)
        if holding is None or kernel_id in self._releases or self._is_stopped:
            raise GrantError(
                f"Kernel {kernel_id} holds no GPU that this server granted. Start a kernel of the other size."
            )
        if holding.is_evicted:
            raise GrantError(f"Kernel {kernel_id} is evicted. Change its size when it has its GPU again")
        self.check(holding.requester, request, holding.grant)
        self._withdraw_growth(kernel_id, "another size was asked for")
        if request == holding.grant.request and self._agent_of(holding.grant.node).unavailable_since is not None:
            return holding.grant  # for another request the agent is asked: another gateway may have changed it
        waiting = growth_of(holding, request, *self._since(waits_since))
        self._queue.add(waiting)
        self._work.set()
        await waiting.until_looked_at()
        entry = None if waiting.future.done() else self.waiting(kernel_id, grows=True)
        return await waiting.future if entry is None else entry

    async def withdraw_resize(self, kernel_id: str, reason: str = "the resize was canceled") -> bool:
        """Give up a change of size that waits, and return whether one did. One that is answered now does not."""
        await self._commits.until_answered(kernel_id)
        return self._withdraw_growth(kernel_id, reason)

    def _withdraw_growth(self, kernel_id: str, reason: str) -> bool:
        waiting = self._queue.get(kernel_id)
        return waiting is not None and waiting.is_growth and self.withdraw(kernel_id, reason)

    def observe_resizes(self, observer: ResizeObserver) -> None:
        """Call *observer* with each granted size, and with each resize's error after it had waited."""
        self._commits.observe_resizes(observer)

    def take_moved(self, grant: Grant) -> None:
        """Note that a node's agent moved a kernel to another device: others get what it left."""
        self._commits.take_moved(grant)

    def waiting(self, kernel_id: str, *, grows: bool = False) -> QueueEntry | None:
        """Return the kernel's place in the queue.

        None for a kernel that does not wait to start, or to grow.
        """
        entry = self._queue.entry(kernel_id)
        return entry if entry is not None and entry.is_growth == grows else None

    def snapshot(self) -> AdmissionSnapshot:
        """Return the grants and the queue, frozen."""
        return AdmissionSnapshot(
            agent_state="ok" if self._agent.unavailable_since is None else "unavailable",
            agent_message=self._agent.message,
            queue=self._queue.entries(),
            counts=dict(self._queue.outcomes),
            ledger=self._ledger.snapshot(),
            pending=tuple(p for p in self._queue.pending() if p.kernel_id not in self._releases),
            releasing=frozenset(self._releases),
        )

    @property
    def ledger(self) -> LedgerSnapshot:
        """The grants now."""
        return self._ledger.snapshot()

    def plan_again(self) -> None:
        """Look at the queue again: the teams' quotas changed, or a node was cordoned."""
        self._work.set()

    def observe(self, observer: Callable[[], None]) -> Callable[[], None]:
        """Call *observer* after each cycle. Returns a function that ends that."""
        self._observers.append(observer)
        return lambda: self._observers.remove(observer)

    def _requester_left(self, kernel_id: str, future: asyncio.Future[Grant]) -> None:
        if future.cancelled():
            waiting = self._queue.get(kernel_id)
            if waiting is not None and waiting.future is future:
                self.withdraw(kernel_id)
        else:
            # A caller that stopped listening is no defect: asyncio need not report the error as
            # never retrieved.
            future.exception()

    def _holds(self, kernel_id: str) -> bool:
        return kernel_id in self._ledger.snapshot().holdings and kernel_id not in self._releases

    def _agent_moved(self) -> None:
        """Look again, for an agent came, went, or may have room."""
        self.readiness.has_looked = True
        self._moves.note()

    def _agent_of(self, node: str) -> Agent:
        lane = self._lanes.of(node)
        return self._agent if lane is None else lane.agent

    def _is_idle(self) -> bool:
        if self._agent.unavailable_since is not None or self._agent.connections != self._own.seen_connections:
            return False
        ledger = self._ledger.snapshot()
        return self._lanes.is_settled and not (self._queue or ledger.unsettled or ledger.ending)

    # ---- the cycle

    async def _run(self) -> None:
        while True:
            await self._wait_for_work()
            await self._turn()  # a frame of its own, so that nothing of the cycle is kept alive while the loop waits

    async def _turn(self) -> None:
        looked_at = list(self._queue)
        self._moves.begin()
        try:
            await self._cycle()
        except Exception:
            self._log.exception("admission=failed; the queue is looked at again")
        finally:
            self._moves.end()
        for waiting in looked_at:
            if waiting.requester.kernel_id not in self._lanes.asked:
                waiting.looked_at.set()
        self.readiness.note(self._ledger.snapshot(), is_away=self._agent.unavailable_since is not None)
        for observer in list(self._observers):
            observer()

    async def _wait_for_work(self) -> None:
        """Wait until the event is set, or until the first deadline of a waiting request.

        Without the lead no deadline counts, and no event says that it is back.
        """
        if not self._work.is_set():
            is_led = self._settings.lead.is_current()
            seconds = self._seconds_to_next_look() if is_led else self._settings.recheck_seconds
            sleeps = (self._clock.sleep(seconds),) if self._queue or self._has_doubts() or not is_led else ()
            await until_first(self._work.wait(), *sleeps)
        self._work.clear()
        self._moves.stop_looking()

    def _seconds_to_next_look(self) -> float:
        away_since, queue = self._agent.unavailable_since, list(self._queue)
        if self._lanes:
            # No request waits for the own agent alone, and one that an agent has to answer is not refused meanwhile.
            away_since, busy = None, self._busy()
            queue = [one for one in queue if one.requester.kernel_id not in busy]
        return seconds_to_next_look(queue, away_since, self._settings, self._clock.now())

    def _busy(self) -> set[str]:
        """Return the kernels that are not planned for: their last grant is not released, or they are asked for now."""
        return {*self._releases, *self._lanes.asked}

    async def _look_at_agents(self) -> bool:
        """Tell the agents what they do not know, and take their answers; return whether there are any."""
        # 1. Ended grants make capacity free.
        told = await self._tell_releases()
        try:
            # 2. After the agent came back, grants are renewed before requests are served.
            await self._renew_holdings()
            # 3. The capacity that is free by the agents' account, whichever program reserved the rest.
            self._moves.forget()
            node = await self._agent.status()
            self._ledger.commit(node=node, others=self._lanes.tend(node.name))
        except AliquotError as error:
            if not self._lanes:
                self._wait_for_agent(error)
                return False
            away = replace(self._ledger.snapshot().node, is_away=True)
            self._ledger.commit(node=away, others=self._lanes.tend(away.name))
        finally:
            # Those who released ask anew only when it is known whether the kernel keeps memory.
            resolve(told)
        return True

    async def _cycle(self) -> None:
        if not await self._look_at_agents():
            return
        if not self._settings.lead.is_current():
            return self._wait_for_lead()
        self._queue_returns(self._ledger.snapshot())
        self.evictor.review(self._expected.union(one.requester.kernel_id for one in self._queue))
        await self.evictor.call_off_endless(self._agent, self._ledger.snapshot().node)
        snapshot = self._lanes.promised(self._ledger.snapshot())
        # 4. Heads of the queue, without kernels whose last grant is not released yet, or is asked for now.
        busy = self._busy()
        heads = {w.requester.kernel_id: w for w in self._queue if w.requester.kernel_id not in busy}
        # 5. Plan.
        planned = await plan_beside(snapshot, [one.pending for one in heads.values()], self._clock.now())
        if not self._settings.lead.is_current():
            return self._wait_for_lead()
        planned = planned.without({one for one, waiting in heads.items() if self._queue.get(one) is not waiting})
        for refused in planned.refusals:
            self._commits.refuse(heads[refused.kernel_id], refused.error)
        for wait in planned.waiting:
            heads[wait.kernel_id].why = wait.reason
        for kernel_id in planned.preempting:
            self._queue.preempt(heads[kernel_id])
        self._rank()
        # 6. Commit each with its agent, 7. deliver it, 8. requeue: a request that is not delivered
        # keeps its place.
        of_nodes = planned.by_node(snapshot)
        self._ask_others(snapshot, of_nodes, heads)
        own = of_nodes.get("", Plan())
        await in_groups([partial(self._commits.commit, heads[one.kernel_id], one, self._own) for one in own.admissions])
        # 9. Evict: the agent reports when the capacity of these kernels is free.
        await self.evictor.carry_out(self._agent, snapshot.node.name, own.evictions)

    def _ask_others(self, snapshot: LedgerSnapshot, of_nodes: Mapping[str, Plan], heads: Mapping[str, Waiting]) -> None:
        """Give each lane what was planned for its node; a busy one gets it in a later cycle."""
        nothing = Plan()
        for node in snapshot.others:
            lane, there = self._lanes.of(node.name), of_nodes.get(node.name, nothing)
            if lane is not None and lane.is_open:
                asked = [self._asked(lane, heads[one.kernel_id], one) for one in there.admissions]
                tells = self.evictor.has_work(node, there.evictions) and lane.is_news(there.evictions)
                if asked or tells:
                    lane.run(asked, self.evictor.jobs(lane.agent, node, there.evictions), there.evictions)
                continue
            for waiting in (heads[one.kernel_id] for one in there.admissions):
                if lane is not None and lane.refused and not lane.is_busy:
                    waiting.why = agent_refused(waiting.pending.request, lane.refused)
                    continue
                told = f"the agent of the node {node.name} has not answered yet"
                waiting.why = agent_unavailable(waiting.pending.request, told)

    def _asked(self, lane: Lane, waiting: Waiting, admit: Admit) -> Asked:
        holding = self._ledger.snapshot().holdings.get(admit.kernel_id) or waiting.promised(lane.agent.name)
        return Asked(holding, admit.parts, partial(self._commits.commit, waiting, admit, lane))

    def _queue_returns(self, snapshot: LedgerSnapshot) -> None:
        """Let each evicted kernel wait for its devices, at the place of its first request."""
        for waiting in self._queue:
            holding = snapshot.holdings.get(waiting.requester.kernel_id)
            if waiting.is_return and (holding is None or not holding.is_evicted):
                self._queue.withdraw(waiting.requester.kernel_id, "the kernel has its GPU")
        for kernel_id, holding in snapshot.unsettled.items():
            waiting_now = self._queue.get(kernel_id)
            if not holding.is_evicted or kernel_id in self._releases or (waiting_now and waiting_now.is_return):
                continue
            self.withdraw(kernel_id, "the kernel was evicted")
            self._queue.add(return_of(holding, *self._since(holding.since)))

    def _rank(self) -> None:
        self._queue.rank(queue_order(self._ledger.snapshot(), self._queue.pending(), self._clock.now()))

    async def _finish_releases(self) -> None:
        resolve(await self._tell_releases())

    async def _tell_releases(self) -> list[asyncio.Future[None]]:
        """Remove ended grants from the ledger, and then tell the own agent. The lanes tell theirs."""
        self._ledger.commit(released=self._releases)
        told = await self._releases.tell(self._agent, self._lanes.is_own)
        with suppress(AgentUnavailableError):
            await release_orphans(self._agent, self._own.orphans, self._log, self._settings.lead)
        return [*told, *self._lanes.put_off()]

    async def _renew_holdings(self) -> None:
        if self._own.seen_connections != self._agent.connections:
            self._own.seen_connections = self._agent.connections
            self._ledger.doubt(None)
        own = [one for one in self._ledger.snapshot().unsettled.values() if self._lanes.is_own(one.grant.node)]
        await self._renewal.renew(self._agent, own)

    def _has_doubts(self) -> bool:
        """Return whether a grant is unconfirmed, or an eviction or a release under way, which time alone may change."""
        if self._own.orphans or self._releases.has(self._lanes.is_own):
            return True
        found = self._ledger.snapshot().unsettled.values()
        return any(not one.is_confirmed or one.is_leaving or one.stays_until for one in found)

    def _unanswered(self, waiting: Waiting, error: AliquotError) -> None:
        """Keep a request whose agent did not answer."""
        if self._lanes:
            waiting.why = agent_unavailable(waiting.pending.request, str(error))
        else:
            self._wait_for_agent(error)

    def _wait_for_lead(self) -> None:
        """Keep the requests while another replica may lead, which has them in its queue, too."""
        self._rank()
        for waiting in self._queue:
            waiting.why = agent_unavailable(waiting.pending.request, CUT_OFF)

    def _wait_for_agent(self, error: AliquotError) -> None:
        """Keep the requests while the agent is away.

        Those that have waited for it for too long are refused.
        """
        if not self._settings.lead.is_current():
            return self._wait_for_lead()
        self._rank()
        now, away_since = self._clock.now(), self._agent.unavailable_since
        for waiting in self._queue:
            refusal = refusal_without_agent(waiting, away_since, self._settings, now, error)
            if refusal is not None:
                self._commits.refuse(waiting, refusal)
            else:
                waiting.why = agent_unavailable(waiting.pending.request, str(error))
