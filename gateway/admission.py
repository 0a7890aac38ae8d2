"""The scheduling cycle, and the only writer of queue and ledger. Who goes next is planner's decision, and the node
agent has the last word on whether there is room."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from aliquot.gpu_hook.waiting import end_task
from aliquot.provisioner.errors import (
    AgentUnavailableError,
    AliquotError,
    DeviceLostError,
    GrantError,
    LimitError,
    NoRoomError,
    WithdrawnError,
)
from aliquot.provisioner.resources import GpuShare, Grant, Request

from .clock import Clock
from .ledger import Asker, Holding, Ledger, Node
from .planner import Admit, Pending, never_fits, plan
from .request_queue import QueueEntry, RequestQueue, Waiting

__all__ = ["Admission", "AdmissionSettings", "AdmissionSnapshot", "Agent", "Asker", "QueueEntry"]


class Agent(Protocol):
    """The node agent, as agent_link.AgentLink gives it."""

    # Counts the connections made: a new number means that reservations must be renewed.
    connections: int
    unavailable_since: float | None
    message: str

    def listen(self, listener: Callable[[], None]) -> None: ...

    async def status(self) -> Node: ...

    async def reserve(self, asker: Asker, request: Request, placement: Mapping[str, int]) -> Grant: ...

    async def release(self, kernel_id: str) -> None: ...


@dataclass(frozen=True)
class AdmissionSettings:
    """``user_limit``: what one user may hold and wait for in all. Times in seconds; None: no limit."""

    user_limit: GpuShare | None = None
    queue_timeout_seconds: float | None = None
    agent_loss_seconds: float = 30.0
    # The agent tells when room returns; this bounds the harm of an event that was missed.
    recheck_seconds: float = 5.0


@dataclass(frozen=True)
class AdmissionSnapshot:
    """What handlers and metrics show of admission. ``agent_state``: ok or unavailable; ``counts`` by outcome."""

    agent_state: str
    agent_message: str
    node: Node
    holdings: tuple[Holding, ...]
    queue: tuple[QueueEntry, ...]
    counts: Mapping[str, int] = field(default_factory=dict)


class Admission:
    """Grants for this gateway's kernels, one cycle at a time."""

    def __init__(
        self, agent: Agent, clock: Clock, settings: AdmissionSettings, log: logging.Logger | None = None
    ) -> None:
        self._agent = agent
        self._clock = clock
        self._settings = settings
        self._log = log or logging.getLogger(__name__)
        self._ledger = Ledger()
        self._queue = RequestQueue()
        # What the agent must still hear of. The future, if any, waits until the ledger has forgotten it.
        self._releases: dict[str, asyncio.Future[None] | None] = {}
        self._seen_connections = 0
        self._work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._observers: list[Callable[[], None]] = []
        agent.listen(self._work.set)

    # ---- for askers

    async def start(self) -> None:
        self._work.set()
        self._task = asyncio.create_task(self._run(), name="aliquot-admission")

    async def stop(self, *, leaves_kernels: bool = False) -> None:
        """Withdraw what waits and take nothing new. What is held can still be released afterwards.

        ``leaves_kernels``: what waits is left as it is, for the next gateway of this name queues it again.
        """
        self._is_stopped = True
        for waiting in () if leaves_kernels else self._queue:
            self.withdraw(waiting.asker.kernel_id, "the gateway is stopping")
        task, self._task = self._task, None
        if task is not None:
            await end_task(task)
        await self._finish_releases()

    def adopt(self, holding: Holding) -> None:
        """Take over what a kernel holds that outlived its gateway. Doubtful until the agent has renewed it."""
        self._ledger.commit(granted=[replace(holding, is_confirmed=False)])
        self._work.set()

    def check(self, owner: str, request: Request) -> None:
        """Refuse what waiting cannot help. Raises NeverFitsError, DeviceLostError, RequestError, LimitError."""
        devices = [device.state() for device in self._ledger.snapshot().node.devices]
        # Before the agent was first heard nobody knows; the first cycle then refuses.
        error = never_fits(devices, request) if devices else None
        if error is not None:
            raise error
        limit = self._settings.user_limit
        if limit is None:
            return
        held, waiting = self._ledger.snapshot().held_by(owner), self._queue.asked_by(owner)
        if held.hundredths + waiting.hundredths + request.gpus.hundredths > limit.hundredths:
            raise LimitError(
                f"asked {request.gpus} GPU; {owner} holds {held}, waits for {waiting} and may have {limit} in all. "
                "Ask for less, or end a kernel that is not needed"
            )

    def submit(
        self, asker: Asker, request: Request, wait_seconds: float | None = None, waits_since: float | None = None
    ) -> asyncio.Future[Grant]:
        """Queue a request. The future gives its Grant, to be given back with release, or raises AliquotError.

        ``waits_since``, in seconds since the epoch: it was queued before, by a gateway that has ended. Its patience
        begins anew, for nobody could serve it meanwhile. Cancelling the future withdraws the request. Raises what
        check raises, and GrantError for a kernel that waits or holds already.
        """
        kernel_id = asker.kernel_id
        if self._is_stopped:
            raise WithdrawnError("asked for a grant; the gateway is stopping")
        if kernel_id in self._queue or self._holds(kernel_id):
            raise GrantError(f"asked a grant for kernel {kernel_id}; it waits for one or holds one already")
        try:
            self.check(asker.owner, request)
        except AliquotError:
            self._queue.outcomes["refused"] += 1
            raise
        future: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        now, shown = self._clock.now(), self._clock.wall()
        shown_since = shown if waits_since is None else min(waits_since, shown)
        patience = [w for w in (wait_seconds, self._settings.queue_timeout_seconds) if w is not None]
        deadline = now + min(patience) if patience else None
        pending = Pending(kernel_id, asker.owner, request, now - (shown - shown_since), deadline)
        self._queue.add(Waiting(asker, pending, shown_since, future))
        future.add_done_callback(lambda done: self._asker_left(kernel_id, done))
        self._work.set()
        return future

    def withdraw(self, kernel_id: str, reason: str = "its asker gave it up") -> bool:
        """Take a request out of the queue; tells whether it was there. Its future raises WithdrawnError."""
        self._work.set()
        return self._queue.withdraw(kernel_id, reason)

    async def release(self, kernel_id: str) -> None:
        """End what a kernel has of us, waiting or held. Idempotent; afterwards the ledger holds nothing for it."""
        self.withdraw(kernel_id)
        if kernel_id not in self._ledger.snapshot().holdings:
            return
        done = self._releases.get(kernel_id)
        if done is None:
            done = self._releases[kernel_id] = asyncio.get_running_loop().create_future()
        if self._task is None:
            await self._finish_releases()
        self._work.set()
        await asyncio.shield(done)

    def waiting(self, kernel_id: str) -> QueueEntry | None:
        """Its place in the queue and why; None for a kernel that does not wait."""
        return next((entry for entry in self._queue.entries() if entry.kernel_id == kernel_id), None)

    def snapshot(self) -> AdmissionSnapshot:
        """What is held and who waits, frozen."""
        ledger = self._ledger.snapshot()
        return AdmissionSnapshot(
            agent_state="ok" if self._agent.unavailable_since is None else "unavailable",
            agent_message=self._agent.message,
            node=ledger.node,
            holdings=tuple(ledger.holdings.values()),
            queue=self._queue.entries(),
            counts=dict(self._queue.outcomes),
        )

    def observe(self, observer: Callable[[], None]) -> Callable[[], None]:
        """Call this after each cycle. Returns what ends it."""
        self._observers.append(observer)
        return lambda: self._observers.remove(observer)

    def _asker_left(self, kernel_id: str, future: asyncio.Future[Grant]) -> None:
        if future.cancelled():
            waiting = self._queue.get(kernel_id)
            if waiting is not None and waiting.future is future:
                self.withdraw(kernel_id)
        else:
            # An asker that stopped listening is no defect: asyncio need not report the error as unseen.
            future.exception()

    def _holds(self, kernel_id: str) -> bool:
        return kernel_id in self._ledger.snapshot().holdings and kernel_id not in self._releases

    # ---- the cycle

    async def _run(self) -> None:
        while True:
            await self._wait_for_work()
            try:
                await self._cycle()
            except Exception:
                self._log.exception("admission=failed; the queue is looked at again")
            for observer in list(self._observers):
                observer()

    async def _wait_for_work(self) -> None:
        """Until somebody sets the event, or until the first deadline of those who wait."""
        if not self._work.is_set():
            waits: set[asyncio.Future[bool]] = {asyncio.ensure_future(self._work.wait())}
            if self._queue or self._has_doubts():
                waits.add(asyncio.ensure_future(self._sleep_to_next_deadline()))
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
        self._work.clear()

    async def _sleep_to_next_deadline(self) -> bool:
        # Its result is nobody's; it has the type of the event's wait beside which it runs.
        now = self._clock.now()
        deadlines = [w.pending.deadline for w in self._queue if w.pending.deadline is not None]
        if self._agent.unavailable_since is not None:
            deadlines += [self._agent_deadline(waiting) for waiting in self._queue]
        seconds = min([deadline - now for deadline in deadlines] + [self._settings.recheck_seconds])
        await self._clock.sleep(max(0.0, seconds))
        return False

    async def _cycle(self) -> None:
        # 1. What ended makes room.
        await self._finish_releases()
        try:
            # 2. After the agent came back, those who hold come before those who wait.
            await self._renew_holdings()
            # 3. Snapshot: the agent's word on what is free, whoever reserved it.
            snapshot = self._ledger.commit(node=await self._agent.status())
        except AliquotError as error:
            self._wait_for_agent(error)
            return
        # 4. Heads: in order of arrival. A kernel whose last grant is not released yet is not among them.
        heads = {w.asker.kernel_id: w for w in self._queue if w.asker.kernel_id not in self._releases}
        # 5. Plan.
        planned = plan(snapshot, [waiting.pending for waiting in heads.values()], self._clock.now())
        for refused in planned.refusals:
            self._refuse(heads[refused.kernel_id], refused.error)
        for wait in planned.waiting:
            heads[wait.kernel_id].reason = wait.reason
        # 6. Commit each with the agent, 7. deliver; 8. requeue: who is not delivered keeps its place.
        for admit in planned.admissions:
            if not await self._commit(heads[admit.kernel_id], admit):
                break

    async def _finish_releases(self) -> None:
        """The ledger forgets first. An agent that is away hears of it when it is back, before anything else."""
        self._ledger.commit(released=self._releases)
        for kernel_id, done in list(self._releases.items()):
            try:
                await self._agent.release(kernel_id)
            except AgentUnavailableError as error:
                self._releases[kernel_id] = None
                self._log.info("kernel=%s release=later reason=%s", kernel_id, error)
            except AliquotError as error:
                self._releases.pop(kernel_id, None)
                self._log.error("kernel=%s release=refused reason=%s", kernel_id, error)
            else:
                self._releases.pop(kernel_id, None)
            if done is not None and not done.done():
                done.set_result(None)

    async def _renew_holdings(self) -> None:
        if self._seen_connections != self._agent.connections:
            self._seen_connections = self._agent.connections
            self._ledger.doubt_all()
        for kernel_id, holding in self._ledger.snapshot().holdings.items():
            if holding.is_confirmed or kernel_id in self._releases:
                continue
            grant = holding.grant
            placement = {quota.uuid: quota.share.hundredths for quota in grant.quotas}
            try:
                renewed = await self._agent.reserve(holding.asker, grant.request, placement)
            except AgentUnavailableError:
                raise
            except AliquotError as error:
                self._log.error("kernel=%s grant=doubtful reason=%s", kernel_id, error)
                continue
            self._ledger.commit(granted=[Holding(renewed, holding.asker, holding.since)])

    def _has_doubts(self) -> bool:
        return any(not holding.is_confirmed for holding in self._ledger.snapshot().holdings.values())

    async def _commit(self, waiting: Waiting, admit: Admit) -> bool:
        """Reserve what was planned. False: the rest of the plan is void, for the agent sees it otherwise."""
        if self._queue.get(admit.kernel_id) is not waiting:
            return True
        if self._agent.connections != self._seen_connections:
            # Another agent, which has not heard yet of those who hold: they come first.
            self._work.set()
            return False
        try:
            grant = await self._agent.reserve(waiting.asker, waiting.pending.request, admit.placement())
        except (NoRoomError, DeviceLostError) as error:
            # Somebody else on this node was faster. The agent's event tells when that is over.
            waiting.reason = f"waiting for {waiting.pending.request.gpus} GPU: {error}"
            return False
        except AgentUnavailableError as error:
            # It may have reserved before it went; should its asker leave meanwhile, nobody else would release that.
            self._releases.setdefault(admit.kernel_id, None)
            self._wait_for_agent(error)
            return False
        except AliquotError as error:
            self._refuse(waiting, error)
            return False
        self._deliver(waiting, grant)
        return True

    def _deliver(self, waiting: Waiting, grant: Grant) -> None:
        self._ledger.commit(granted=[Holding(grant, waiting.asker, waiting.shown_since)])
        if self._queue.grant(waiting, grant):
            self._log.info("kernel=%s granted=%s owner=%s", grant.kernel_id, grant.request.gpus, grant.owner)
            return
        # Its asker left while the agent reserved it.
        self._releases.setdefault(grant.kernel_id, None)
        self._work.set()

    def _refuse(self, waiting: Waiting, error: AliquotError) -> None:
        self._log.info("kernel=%s refused=%s reason=%s", waiting.asker.kernel_id, type(error).__name__, error)
        self._queue.refuse(waiting, error)

    def _agent_deadline(self, waiting: Waiting) -> float:
        away_since = self._agent.unavailable_since or 0.0
        return max(waiting.pending.since, away_since) + self._settings.agent_loss_seconds

    def _wait_for_agent(self, error: AliquotError) -> None:
        """Nobody is lost while the agent is away, but nobody waits for it for ever."""
        now = self._clock.now()
        message = f"node agent unavailable: {error}"
        for waiting in self._queue:
            deadline = waiting.pending.deadline
            if self._agent.unavailable_since is not None:
                deadline = min(self._agent_deadline(waiting), deadline or float("inf"))
            if deadline is not None and now >= deadline:
                waited = f"asked {waiting.pending.request.gpus} GPU; waited {now - waiting.pending.since:.0f} s"
                self._refuse(waiting, AgentUnavailableError(f"{waited}; {message}"))
            else:
                waiting.reason = f"{message}; trying again"
