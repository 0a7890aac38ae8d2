"""Pure: from a controller's orders for single devices to the words of one process's page, whose gate is for all.

Also the orders that hold where no controller spoke yet, or one failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import MEASURED, OPEN, Order
from jupyter_aliquot.gpu_hook.protocol.codec import Gate, Pace

PAUSES_ONLY = Order(gate=Gate.PACED, pace=Pace.TIME, allowed_beside=0, in_flight_cap=1)
# Between its welcome and the boards that follow it a process knows of no neighbour: what it may do then is bounded.
FIRST_ALLOWANCE = 10 * MILLISECOND
WAITING = Order(gate=Gate.CLOSED)  # as it did while there was no agent
CAUTIOUS = replace(PAUSES_ONLY, allowed=FIRST_ALLOWANCE)


def first_order(is_production: bool, is_contended: bool, has_production_beside: bool) -> Order:
    """For a process that joins, until the controller has seen it."""
    if not is_contended:
        return OPEN
    return CAUTIOUS if has_production_beside and not is_production else MEASURED


def fallback(is_production: bool) -> Order:
    """Return the order after a controller failed: production goes on, and others have its pauses, by its boards."""
    return MEASURED if is_production else PAUSES_ONLY


def combine(orders: Sequence[Order]) -> tuple[Gate, tuple[Order, ...]]:
    """The gate of a process, and its devices' orders under it: what holds it on one device does not on another."""
    gates = {order.gate for order in orders}
    if len(gates) == 1:
        return gates.pop(), tuple(orders)
    return Gate.PACED, tuple(map(_under_a_paced_gate, orders))


def _under_a_paced_gate(order: Order) -> Order:
    if order.gate is Gate.OPEN:
        return replace(order, pace=Pace.OFF)
    if order.gate is Gate.CLOSED:
        return replace(order, pace=Pace.TIME, allowed=0, allowed_beside=0)
    return order
