"""Processes whose hook is of before and knows an open or a closed gate only: they get a part of each cycle.

Nothing is measured of them. Opportunistic ones wait while production works; who has a smaller part than an equal one is
closed for the rest of a cycle.
"""

from __future__ import annotations

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import OPEN, Order
from jupyter_aliquot.gpu_hook.protocol.codec import Gate

from .history import Kernel
from .policy import Policy

CYCLE = 200 * MILLISECOND  # ten looks: tenths are the finest part
CLOSED = Order(gate=Gate.CLOSED)


def gate_of(
    policy: Policy, kernel: Kernel, entitled: float | None, contenders: int, is_production_working: bool, now: int
) -> Order:
    if not kernel.is_production and is_production_working:
        span = policy.floor_interval(policy.period)  # one look in so many: nobody starves
        return OPEN if now % span < policy.period else CLOSED
    # While its gate is open it has the part of one among equals; so it is open for longer the more there are.
    part = min(1.0, (entitled if entitled is not None else 1.0) * max(1, contenders))
    if kernel.is_capped:
        part = min(part, kernel.weight / 100 * max(1, contenders))
    return OPEN if now % CYCLE < part * CYCLE else CLOSED
