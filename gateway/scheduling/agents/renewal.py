"""Grants are renewed with an agent that came back, before it is asked for others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container
from dataclasses import replace
from functools import partial
from typing import Protocol

from jupyter_aliquot.gateway.base.lead import ALONE, Lead
from jupyter_aliquot.gateway.base.tasks import in_groups
from jupyter_aliquot.gateway.scheduling.ledger import Holding, KernelRef, Ledger
from jupyter_aliquot.provisioner.errors import AgentUnavailableError, AliquotError
from jupyter_aliquot.provisioner.resources import Grant


class RenewingAgent(Protocol):
    """The part of an agent's link that renews reservations."""

    async def renew(self, requester: KernelRef, grant: Grant) -> Grant:
        """Hold the kernel's reservation again, in its present size. Raises AliquotError."""
        ...


class Renewal:
    """Renews unconfirmed grants, and writes what came of it into admission's ledger.

    *ended* has the kernels whose grant has ended; *tell_size* is called with a grant of another size or device.
    Without the *lead* they stay unconfirmed: their kernels may have ended at another replica.
    """

    def __init__(
        self,
        ledger: Ledger,
        ended: Container[str],
        tell_size: Callable[[str, Grant], None],
        log: logging.Logger,
        lead: Lead = ALONE,
    ) -> None:
        self.lead = lead
        self._ledger = ledger
        self._ended = ended
        self._tell_size = tell_size
        self._log = log

    async def renew(self, agent: RenewingAgent, holdings: Collection[Holding]) -> None:
        """Renew those of a node's grants that are unconfirmed. Raises AgentUnavailableError.

        The newest come first: the agent soon releases a grant that no kernel has joined yet. The calls
        go in groups, as each of a thousand round trips waits for a busy machine.
        """
        await in_groups([partial(self._renew, agent, one) for one in reversed(list(holdings)) if not one.is_confirmed])

    async def _renew(self, agent: RenewingAgent, holding: Holding) -> bool:
        kernel_id = holding.grant.kernel_id
        if kernel_id in self._ended or not self.lead.is_current():
            return True
        try:
            renewed = await agent.renew(holding.requester, holding.grant)
        except AgentUnavailableError:
            raise
        except AliquotError as error:
            self._log.error("kernel=%s grant=doubtful reason=%s", kernel_id, error)
            self._change(kernel_id, partial(_refused, str(error)))
            return True
        is_held = self._change(kernel_id, partial(_renewed, renewed))
        is_same = (renewed.request, renewed.uuids) == (holding.grant.request, holding.grant.uuids)
        if is_held and not is_same:
            self._tell_size(kernel_id, renewed)
        return True

    def _change(self, kernel_id: str, change: Callable[[Holding], Holding]) -> bool:
        """Change what the ledger has now, and return whether it has the kernel.

        While the agent answered, the kernel may have ended, or have been told to leave.
        """
        now = self._ledger.snapshot().holdings.get(kernel_id)
        if now is not None:
            self._ledger.commit(granted=[change(now)])
        return now is not None


def _refused(why: str, now: Holding) -> Holding:
    return replace(now, refusal=why)


def _renewed(grant: Grant, now: Holding) -> Holding:
    return replace(now.resized(grant), is_confirmed=True, refusal="")
