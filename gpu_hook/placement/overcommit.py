"""The administrator's overcommit: how much more may be reserved than there is.

This module computes what it leaves of a device. Pure, and shared: the agent reserves by it, and the
gateway plans by the agent's status, so that both get the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from .placement import WHOLE, DeviceState

MOST_RATIO = 16.0


@dataclass(frozen=True)
class Oversubscription:
    """The limits of overcommit.

    Reservations of production may come to ``production`` times each device; those of both classes
    together to the larger of the factors. ``host_bytes`` is the budget of host copies; None: no
    limit. Reservations beyond a device have to fit there.
    """

    production: float = 1.0
    opportunistic: float = 1.0
    host_bytes: int | None = None

    def ratio(self, workload_class: str) -> float:
        return self.production if workload_class == "production" else self.opportunistic

    @property
    def most(self) -> float:
        return max(self.production, self.opportunistic)


@dataclass(frozen=True)
class Reserved:
    """The reserved part of one device: in total, and by production."""

    hundredths: int = 0
    bytes: int = 0
    production_hundredths: int = 0
    production_bytes: int = 0


def device_state(
    uuid: str,
    index: int,
    memory_bytes: int,
    reserved: Reserved,
    rule: Oversubscription,
    workload_class: str = "production",
    *,
    lost: bool = False,
) -> DeviceState:
    """Return one device, with what a request of this class may reserve of it."""
    ratio = rule.ratio(workload_class)
    free_hundredths = int(WHOLE * ratio) - reserved.hundredths
    free_bytes = int(memory_bytes * ratio) - reserved.bytes
    # memory that opportunistic kernels hold beyond it is no reason to refuse production
    if workload_class == "production":
        free_hundredths = min(
            int(WHOLE * ratio) - reserved.production_hundredths, int(WHOLE * rule.most) - reserved.hundredths
        )
        free_bytes = min(
            int(memory_bytes * ratio) - reserved.production_bytes, int(memory_bytes * rule.most) - reserved.bytes
        )
    return DeviceState(
        uuid=uuid,
        index=index,
        memory_bytes=memory_bytes,
        free_hundredths=max(0, free_hundredths),
        free_bytes=max(0, free_bytes),
        lost=lost,
        reservable_hundredths=int(WHOLE * ratio),
        reservable_bytes=int(memory_bytes * ratio),
        backed_hundredths=max(0, WHOLE - reserved.hundredths),
        backed_bytes=max(0, memory_bytes - reserved.bytes),
    )
