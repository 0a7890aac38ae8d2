"""Combine a controller's orders for single devices into the words of one process's page.

The page has one gate for all devices. This module also has the orders that hold before a
controller's first order, or after its failure. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jupyter_aliquot.gpu_hook.agent.compute.measurement.views import MILLISECOND
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import MEASURED, OPEN, Order
from jupyter_aliquot.gpu_hook.protocol.codec import Gate, Pace

PAUSES_ONLY = Order(gate=Gate.PACED, pace=Pace.TIME, allowed_with_busy_peers=0, in_flight_cap=1)
# Between its welcome and the activity pages that follow, a process knows no peer, so its work is
# bounded.
FIRST_ALLOWANCE = 10 * MILLISECOND
WAITING = Order(gate=Gate.CLOSED)  # as it did while there was no agent
CAUTIOUS = replace(PAUSES_ONLY, allowed=FIRST_ALLOWANCE)


def first_order(is_production: bool, is_contended: bool, has_production_beside: bool) -> Order:
    """Return the order for a process that joins, until the controller has seen it."""
    if not is_contended:
        return OPEN
    return CAUTIOUS if has_production_beside and not is_production else MEASURED


def fallback(is_production: bool) -> Order:
    """Return the order after a controller failed.

    Production goes on; other processes have its pauses, by its activity pages.
    """
    return MEASURED if is_production else PAUSES_ONLY


def combine(orders: Sequence[Order]) -> tuple[Gate, tuple[Order, ...]]:
    """Return the gate of a process, and its devices' orders under it.

    An order that holds the process on one device does not hold it on another.
    """
    gates = {order.gate for order in orders}
    if len(gates) == 1:
        return gates.pop(), tuple(orders)
    return Gate.PACED, tuple(map(_under_a_paced_gate, orders))


def _under_a_paced_gate(order: Order) -> Order:
    if order.gate is Gate.OPEN:
        return replace(order, pace=Pace.OFF)
    if order.gate is Gate.CLOSED:
        return replace(order, pace=Pace.TIME, allowed=0, allowed_with_busy_peers=0)
    return order
