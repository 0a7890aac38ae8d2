"""Overcommit: how much more of a device may be reserved than it has.

This module computes what it leaves of a device. Pure, and shared: the agent reserves by it, and the
gateway plans by the agent's status, so that both get the same answer. automatic.py finds the
ceilings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .placement import WHOLE, DeviceState, Part

MOST_RATIO = 16.0
# The contexts of kernels that are swapped out stay on the device, and may take so much of it.
CONTEXTS_PART = 0.25


@dataclass(frozen=True)
class Oversubscription:
    """The limits of overcommit.

    Reservations of production may come to ``production`` times each device; those of both classes
    together to the larger of the factors. ``ceilings`` are the most for single devices, by uuid.
    ``host_bytes`` is the budget of host copies; None: no limit. Reservations beyond a device have
    to fit there.
    """

    production: float = 1.0
    opportunistic: float = 1.0
    host_bytes: int | None = None
    ceilings: Mapping[str, float] = field(default_factory=dict)

    def ratio(self, workload_class: str, uuid: str = "") -> float:
        ratio = self.production if workload_class == "production" else self.opportunistic
        return min(ratio, self.ceilings.get(uuid, ratio))

    def lowered(self, uuid: str, most: float) -> Oversubscription:
        """Return the limits with a lower ceiling of one device."""
        return replace(self, ceilings={**self.ceilings, uuid: min(most, self.ceilings.get(uuid, most))})

    def most_of(self, uuid: str) -> float:
        """Return the largest ratio of a device, whatever the class."""
        return min(self.most, self.ceilings.get(uuid, self.most))

    @property
    def most(self) -> float:
        return max(self.production, self.opportunistic)


@dataclass(frozen=True)
class Reserved:
    """The reserved part of one device: in total, and by production.

    ``kept_bytes`` are those of kernels whose memory never leaves the device. ``kernels`` counts the
    kernels.
    """

    hundredths: int = 0
    bytes: int = 0
    production_hundredths: int = 0
    production_bytes: int = 0
    kept_bytes: int = 0
    kernels: int = 0

    def plus(self, part: Part, is_production: bool, sign: int = 1) -> Reserved:
        """Return it with one more part; ``sign`` -1: without that part."""
        hundredths, amount = sign * part.hundredths, sign * part.reserved_bytes
        return Reserved(
            self.hundredths + hundredths,
            self.bytes + amount,
            self.production_hundredths + hundredths * is_production,
            self.production_bytes + amount * is_production,
            self.kept_bytes + amount * part.is_kept,
            self.kernels + sign,
        )


def device_state(
    uuid: str,
    index: int,
    memory_bytes: int,
    reserved: Reserved,
    rule: Oversubscription,
    workload_class: str = "production",
    *,
    lost: bool = False,
    context_bytes: int = 0,
) -> DeviceState:
    """Return one device, with what a request of this class may reserve of it.

    Memory that never leaves is not overcommitted: the ratio is of the rest, and one kernel has to
    fit into the rest. A context takes ``context_bytes``.
    """
    ratio, most = _ratios(rule, uuid, workload_class, reserved.kernels * context_bytes, memory_bytes)
    rest_bytes, moving_bytes = memory_bytes - reserved.kept_bytes, reserved.bytes - reserved.kept_bytes
    free_hundredths = round(WHOLE * ratio) - reserved.hundredths
    free_bytes = int(rest_bytes * ratio) - moving_bytes
    # memory that opportunistic kernels hold beyond it is no reason to refuse production
    if workload_class == "production":
        free_hundredths = min(
            round(WHOLE * ratio) - reserved.production_hundredths, round(WHOLE * most) - reserved.hundredths
        )
        free_bytes = min(int(memory_bytes * ratio) - reserved.production_bytes, int(rest_bytes * most) - moving_bytes)
    free_bytes = max(0, min(free_bytes, rest_bytes))
    return DeviceState(
        uuid=uuid,
        index=index,
        memory_bytes=memory_bytes,
        free_hundredths=max(0, free_hundredths),
        free_bytes=free_bytes,
        lost=lost,
        reservable_hundredths=round(WHOLE * ratio),
        reservable_bytes=int(memory_bytes * ratio),
        backed_hundredths=max(0, WHOLE - reserved.hundredths),
        backed_bytes=(backed_bytes := max(0, memory_bytes - reserved.bytes)),
        firm_bytes=min(free_bytes, backed_bytes) if ratio > 1 else free_bytes,
    )


def _ratios(
    rule: Oversubscription, uuid: str, workload_class: str, contexts_bytes: int, memory_bytes: int
) -> tuple[float, float]:
    """Return how often a class may reserve the device, and all classes together.

    A device is not overcommitted further once the contexts of its kernels take more than a quarter
    of it: they stay while their kernels are out.
    """
    most = rule.most_of(uuid)
    if contexts_bytes > CONTEXTS_PART * memory_bytes:
        most = min(most, 1.0)
    return min(rule.ratio(workload_class, uuid), most), most
