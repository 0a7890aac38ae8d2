"""Reservations whose answer never came: the agent may hold them, and releases them before it is asked for others.

The answer is lost with its connection, or because the gateway stops. Another node may have the kernel
before this one's agent is back.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from jupyter_aliquot.gateway.base.lead import ALONE, Lead
from jupyter_aliquot.gateway.scheduling.ledger import KernelRef
from jupyter_aliquot.gateway.scheduling.snapshot import Agent
from jupyter_aliquot.provisioner.errors import AgentUnavailableError, AliquotError
from jupyter_aliquot.provisioner.resources import Grant, Request

from .releases import ReleasingAgent


async def reserve(
    agent: Agent, orphans: set[str], requester: KernelRef, request: Request, placement: Mapping[str, int]
) -> Grant:
    """Reserve with an agent. The kernel is among *orphans* until it answers. Raises AliquotError."""
    orphans.add(requester.kernel_id)
    try:
        grant = await agent.reserve(requester, request, placement)
    except AgentUnavailableError:
        raise
    except AliquotError:
        orphans.discard(requester.kernel_id)
        raise
    orphans.discard(requester.kernel_id)
    return grant


async def release_orphans(agent: ReleasingAgent, orphans: set[str], log: logging.Logger, lead: Lead = ALONE) -> None:
    """Release what the agent may hold. Raises AgentUnavailableError, and then keeps the rest of *orphans*.

    Without the *lead* all stay: another replica may have been granted the same kernels.
    """
    for kernel_id in sorted(orphans):
        if not lead.is_current():
            return
        try:
            await agent.release(kernel_id)
        except AgentUnavailableError:
            raise
        except AliquotError as error:
            log.error("kernel=%s release=refused reason=%s", kernel_id, error)
        orphans.discard(kernel_id)
