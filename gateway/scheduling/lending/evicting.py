"""Evictions with the node agent: kernels that leave, and kernels that wait to return. Admission calls it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from jupyter_aliquot.gateway.scheduling.ledger import Holding, Ledger
from jupyter_aliquot.provisioner.errors import AgentUnavailableError, AliquotError

from .reclaim import Evict

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

    ``again`` has the queue looked at again.
    """

    def __init__(self, agent: EvictingAgent, ledger: Ledger, again: Callable[[], None], log: logging.Logger) -> None:
        self._agent = agent
        self._ledger = ledger
        self._again = again
        self._log = log
        self._enders: list[EndKernel] = []

    def observe_ends(self, ender: EndKernel) -> None:
        """Call *ender* with each kernel that is to end, and why."""
        self._enders.append(ender)

    async def carry_out(self, evictions: Sequence[Evict]) -> None:
        """Tell kernels to leave, and those to stay that no request needs to leave any more."""
        wanted = {one.kernel_id for one in evictions}
        for kernel_id, holding in self._ledger.snapshot().holdings.items():
            if holding.is_leaving and kernel_id not in wanted and holding.is_confirmed:
                await self._call_off(kernel_id)
        for one in evictions:
            await self._evict(one)

    async def _evict(self, one: Evict) -> None:
        holding = self._holding(one.kernel_id)
        if holding is None or holding.is_leaving or holding.is_evicted:
            return
        if one.is_ended:
            self._end(holding, one)
            return
        try:
            await self._agent.evict(one.kernel_id)
        except AgentUnavailableError:
            return  # the next cycle tells it
        except AliquotError as error:
            self._log.info("kernel=%s eviction=refused reason=%s", one.kernel_id, error)
            self._change(one.kernel_id, stays_because=str(error))
            self._again()
            return
        why = "quota" if one.is_for_quota else "backfill"
        self._log.info(
            "kernel=%s owner=%s evicted_for=%s why=%s", one.kernel_id, holding.grant.owner, one.wanted_by, why
        )
        self._change(one.kernel_id, leaves_for=one.wanted_by)

    def _end(self, holding: Holding, one: Evict) -> None:
        self._log.info("kernel=%s owner=%s ended_for=%s", one.kernel_id, holding.grant.owner, one.wanted_by)
        self._change(one.kernel_id, leaves_for=one.wanted_by)
        for ender in self._enders:
            ender(one.kernel_id, _WHY.format(why=holding.stays_because))

    async def _call_off(self, kernel_id: str) -> None:
        try:
            await self._agent.readmit(kernel_id)
        except AliquotError as error:
            self._log.info("kernel=%s eviction=not_called_off reason=%s", kernel_id, error)
            return
        self._log.info("kernel=%s eviction=called_off", kernel_id)
        self._change(kernel_id, leaves_for="")

    def _change(self, kernel_id: str, **facts: str) -> None:
        holding = self._holding(kernel_id)
        if holding is not None:
            self._ledger.commit(granted=[replace(holding, **facts)])  # type: ignore[arg-type]  # texts alone

    def _holding(self, kernel_id: str) -> Holding | None:
        return self._ledger.snapshot().holdings.get(kernel_id)
