"""A plan of many nodes and requests, made in a thread beside the event loop.

It is the same plan, and one cycle still waits for it. What changes meanwhile is for the commits to
find, as between a plan and an agent's answer: a request that left the queue gets nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from jupyter_aliquot.gateway.scheduling.ledger import LedgerSnapshot
from jupyter_aliquot.gateway.scheduling.planner import Pending, Plan, plan

# Nodes times requests that the loop plans itself, in a few milliseconds: a thread would delay them.
_MOST_AT_ONCE = 500


async def plan_beside(snapshot: LedgerSnapshot, pending: Sequence[Pending], now: float) -> Plan:
    """Return `plan` of the same arguments; the loop serves others while a long one is made."""
    if len(pending) * (1 + len(snapshot.others)) <= _MOST_AT_ONCE:
        return plan(snapshot, pending, now)
    # A copy, for the plan notes placements that it found in the snapshot's capacity.
    return await asyncio.to_thread(plan, replace(snapshot), pending, now)
