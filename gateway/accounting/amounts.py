"""Amounts of GPU time, and what they are counted for. Values; no I/O, no clock.

Amounts are whole numbers, so that sums are exact in any order: hundredths of a GPU times
milliseconds. A charge is thousandths of that, for its weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

# Of one GPU-hour.
UNITS_PER_HOUR = 100 * 3_600_000
CHARGE_PER_UNIT = 1000


class Subject(NamedTuple):
    """The subject of a row of the accounting.

    ``team`` is empty for a user of no team; ``model`` for a request that waits, where the node has
    several models.
    """

    user: str
    team: str
    size: str
    priority: str
    model: str


@dataclass(frozen=True)
class Amounts:
    """GPU time of a subject.

    Args:
        used: GPU time used, as the agent counts it.
        on_gpu: Time with memory on the GPU, times the size.
        swapped_out: Time with memory in the host, times the size.
        waiting: Time in want of a GPU, times the size: in the queue, evicted, or waiting for room.
        charged: By the policy in force at that time, in thousandths.
    """

    used: int = 0
    on_gpu: int = 0
    swapped_out: int = 0
    waiting: int = 0
    charged: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(
            self.used + other.used,
            self.on_gpu + other.on_gpu,
            self.swapped_out + other.swapped_out,
            self.waiting + other.waiting,
            self.charged + other.charged,
        )

    @property
    def idle(self) -> int:
        """The time on the GPU that was not used. A kernel may use more than its size, of idle GPUs."""
        return max(0, self.on_gpu - self.used)

    def __bool__(self) -> bool:
        return bool(self.used or self.on_gpu or self.swapped_out or self.waiting or self.charged)


NOTHING = Amounts()
