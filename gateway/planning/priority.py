"""The order of requests by one policy, as a key. Pure.

The simulator's orders (``queue_orders``) also stop jobs for others; a key only says what goes first.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from enum import Enum

from .gittins import GittinsIndex
from .queue_orders import LIMITS


class Order(str, Enum):
    """The order of requests of equal priority in a team."""

    FIFO = "fifo"
    LAS = "las"
    GITTINS = "gittins"
    SRTF = "srtf"
    SRSF = "srsf"


def urgency(
    order: Order, *, attained: float = 0.0, estimate: float | None = None, milli: int = 0, past: GittinsIndex | None
) -> tuple[float, ...]:
    """Return the key of a request: the smallest goes first, and equal ones as they came.

    Args:
        order: the policy.
        attained: GPU-seconds that it got before. They count in the steps of Tiresias' queues, so that
            small differences reorder nothing.
        estimate: seconds that it will run; None, which goes last, where that is not known.
        milli: its size.
        past: the service of past work, for the Gittins index; None: nothing is known of it.
    """
    if order is Order.FIFO:
        return ()
    if order in (Order.LAS, Order.GITTINS):
        level = bisect_right(LIMITS, attained)
        index = past.of(attained) if order is Order.GITTINS and past is not None else 0.0
        return (level, -index)
    if estimate is None:
        return (math.inf,)
    return (estimate * (milli if order is Order.SRSF else 1),)
