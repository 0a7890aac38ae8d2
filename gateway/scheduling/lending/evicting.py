"""Evictions with the node agent: kernels that leave, and kernels that wait to return. Admission calls it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.base.lead import ALONE, Lead
from jupyter_aliquot.gateway.scheduling.cordons import DRAIN, TAKEN
from jupyter_aliquot.gateway.scheduling.ledger import Holding, Leaving, Ledger, Node
from jupyter_aliquot.provisioner.errors import AgentUnavailableError, AliquotError, GrantError

from .reclaim import Evict

# A kernel that has not left after so long, and whose memory does not move, stays: another one is tried.
EVICTION_SECONDS = 60.0
# A kernel that could not be swapped out is tried again after so long. NCCL may be closed by then.
STAYS_SECONDS = 300.0
# A kernel whose copy the host had no memory for is tried again after so long.
_SPARED_SECONDS = 30.0

# Called with a kernel that ends because its team's policy says so, and the reason.
EndKernel = Callable[[str, str], None]
_WHY = (
    "because the team that is owed its GPU took it back, it could not be swapped out ({why}), and the quota file lets "
    "such kernels of its team be ended"
)


class EvictingAgent(Protocol):
    """The part of the agent's link that evicts kernels."""

    async def evict(self, kernel_id: str) -> None: ...

    async def readmit(self, kernel_id: str) -> None: ...


class Evictor:
    """The evictions under way. It writes the facts about leaving into admission's ledger, and nothing else.

    ``again`` has the queue looked at again. Without the ``lead`` it tells agents nothing.
    """

    def __init__(
        self, ledger: Ledger, clock: Clock, again: Callable[[], None], log: logging.Logger, lead: Lead = ALONE
    ) -> None:
        self._lead = lead
        self._ledger = ledger
        self._clock = clock
        self._again = again
        self._log = log
        self._enders: list[EndKernel] = []

    def observe_ends(self, ender: EndKernel) -> None:
        """Call *ender* with each kernel that is to end, and why."""
        self._enders.append(ender)

    def review(self, waiting: Collection[str]) -> None:
        """Let kernels be tried again. Called before each plan.

        *waiting* are the kernels whose requests wait. A kernel that passed none of them leaves for none.
        """
        now, snapshot = self._clock.now(), self._ledger.snapshot()
        changed = []
        for holding in snapshot.unsettled.values():
            tried = holding.tried_again(now)
            if tried.is_backfilled and tried.passed.isdisjoint(waiting):
                tried = replace(tried, is_backfilled=False, passed=frozenset())
            if tried is not holding:
                changed.append(tried)
        if changed:
            self._ledger.commit(granted=changed)

    async def call_off_endless(self, agent: EvictingAgent, node: Node) -> None:
        """Have the kernels of a node stay that cannot leave."""
        for kernel_id, leaving in (node.leaving or {}).items():
            told, why = self._holding(kernel_id), _why_endless(leaving)
            if why and told is not None and told.is_leaving and told.is_confirmed:
                await self._call_off(agent, kernel_id, why)

    def has_work(self, node: Node, evictions: Sequence[Evict]) -> bool:
        """Return whether the agent of a node is to be told anything."""
        snapshot = self._ledger.snapshot()
        return bool(evictions or node.leaving) or any(
            one.is_leaving and snapshot.node_of(one.grant) is node for one in snapshot.unsettled.values()
        )

    def jobs(self, agent: EvictingAgent, node: Node, evictions: Sequence[Evict]) -> list[Callable[[], Awaitable[None]]]:
        """Return the same for another node, whose lane does it."""
        return [
            partial(self.call_off_endless, agent, node),
            partial(self.carry_out, agent, node.name, evictions),
        ]

    async def carry_out(self, agent: EvictingAgent, name: str, evictions: Sequence[Evict]) -> None:
        """Tell kernels of a node to leave, and those to stay that no request needs to leave any more."""
        wanted = {one.kernel_id for one in evictions}
        snapshot = self._ledger.snapshot()
        for kernel_id, holding in snapshot.unsettled.items():
            is_told = holding.is_leaving and not holding.is_ended and holding.is_confirmed
            if is_told and kernel_id not in wanted and snapshot.node_of(holding.grant).name == name:
                await self._call_off(agent, kernel_id)
        for one in evictions:
            await self._evict(agent, one)

    async def _evict(self, agent: EvictingAgent, one: Evict) -> None:
        holding = self._holding(one.kernel_id)
        if holding is None or holding.is_evicted or holding.is_ended or not self._lead.is_current():
            return
        if holding.is_leaving:
            self._change(one.kernel_id, lambda now: replace(now, leaves_for=one.wanted_by))
            return
        if one.is_ended:
            self._end(holding, one)
            return
        try:
            await agent.evict(one.kernel_id)
        except AgentUnavailableError:
            return  # the next cycle tells it
        except AliquotError as error:
            self._refused(one.kernel_id, error)
            return
        why = "quota" if one.is_for_quota else {DRAIN: "drain", TAKEN: "cluster"}.get(one.wanted_by, "backfill")
        self._log.info(
            "kernel=%s owner=%s evicted_for=%s why=%s", one.kernel_id, holding.grant.owner, one.wanted_by, why
        )
        self._change(one.kernel_id, lambda now: replace(now, leaves_for=one.wanted_by))

    def _refused(self, kernel_id: str, error: AliquotError) -> None:
        """Let the kernel stay for a while, so that the next plan takes another one."""
        self._log.info("kernel=%s eviction=refused reason=%s", kernel_id, error)
        cannot_leave = type(error) is GrantError  # not that it is gone, or that its copy has no room
        seconds, why = (STAYS_SECONDS, str(error)) if cannot_leave else (_SPARED_SECONDS, "")
        self._change(kernel_id, lambda now: now.stays(self._clock.now() + seconds, why))
        self._again()

    def _end(self, holding: Holding, one: Evict) -> None:
        self._log.info("kernel=%s owner=%s ended_for=%s", one.kernel_id, holding.grant.owner, one.wanted_by)
        self._change(one.kernel_id, lambda now: replace(now, leaves_for=one.wanted_by, is_ended=True))
        for ender in self._enders:
            ender(one.kernel_id, _WHY.format(why=holding.stays_because))

    async def _call_off(self, agent: EvictingAgent, kernel_id: str, why: str = "") -> None:
        """Have a kernel stay that was told to leave; ``why`` it could not leave, if it could not."""
        if not self._lead.is_current():
            return
        try:
            await agent.readmit(kernel_id)
        except AliquotError as error:
            self._log.info("kernel=%s eviction=not_called_off reason=%s", kernel_id, error)
            return
        self._log.info("kernel=%s eviction=called_off reason=%s", kernel_id, why or "no request needs it")
        until = self._clock.now() + STAYS_SECONDS
        self._change(kernel_id, lambda now: now.stays(until, why) if why else replace(now, leaves_for=""))

    def _change(self, kernel_id: str, change: Callable[[Holding], Holding]) -> None:
        holding = self._holding(kernel_id)
        if holding is not None:
            self._ledger.commit(granted=[change(holding)])

    def _holding(self, kernel_id: str) -> Holding | None:
        return self._ledger.snapshot().holdings.get(kernel_id)


def _why_endless(leaving: Leaving) -> str:
    """Return why the kernel does not leave; empty while it may still do so."""
    if leaving.stays_because or leaving.is_moving or leaving.seconds < EVICTION_SECONDS:
        return leaving.stays_because
    return leaving.refusal or f"it did not leave within {EVICTION_SECONDS:g} s"
