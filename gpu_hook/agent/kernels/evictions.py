"""Kernels that gave up their parts for a while: swapped out, and not reserved.

A gateway decides who leaves and returns. This module carries that out: the parts of an evicted
kernel are free for others once its memory is out, and no cell brings it back before the gateway
readmits it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from jupyter_aliquot.gpu_hook.agent.ledger.ledger import Ledger, LedgerError
from jupyter_aliquot.gpu_hook.agent.scheduling.keeper import LeaseKeeper
from jupyter_aliquot.gpu_hook.agent.scheduling.records import LeaseRecord, read_moment
from jupyter_aliquot.gpu_hook.agent.swap.facts import ResidencyFacts
from jupyter_aliquot.gpu_hook.agent.swap.table import MOVING
from jupyter_aliquot.gpu_hook.placement.placement import NO_ROOM, Refusal, format_bytes, resize

from .kernel import Kernel
from .reservations import Refused, Reservations

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Leaving:
    """A kernel that was told to leave its parts, and has not left.

    ``stays_because`` is why its memory cannot leave; ``refusal`` is why the last move failed, and
    is tried again. Both are empty while all is well.
    """

    kernel_id: str
    seconds: int
    is_moving: bool
    stays_because: str
    refusal: str


class Evictions:
    """The evicted kernels of this node. It calls ``changed`` when parts became free, or taken."""

    def __init__(
        self, reservations: Reservations, ledger: Ledger, leases: LeaseKeeper, changed: Callable[[], None]
    ) -> None:
        self._reservations = reservations
        self._ledger = ledger
        self._leases = leases
        self._changed = changed

    def evict(self, kernel_id: str) -> bool:
        """Have a kernel leave its devices, now or after its work there; one that is being moved, after its move.

        Return whether it has left. Raises Refused for a kernel whose memory cannot leave, and where
        the host has no memory for its copy.
        """
        kernel = self._find(kernel_id)
        record = self._leases.record(kernel_id)
        if record is None or not record.facts.is_swappable:
            why = "its memory is not known yet" if record is None else record.facts.mode_reason
            raise Refused("conflict", f"kernel {kernel_id} cannot be swapped out: {why}")
        if not kernel.is_evicted and (lacking := self._ledger.copy_shortage(kernel_id)) is not None:
            raise Refused(
                NO_ROOM,
                f"kernel {kernel_id} cannot be swapped out for others: copies of kernels would take "
                f"{format_bytes(lacking.needs_bytes)} of host memory, and {format_bytes(lacking.budget_bytes)} is set "
                "aside for them",
            )
        self._mark(kernel, is_evicted=True)
        self.look(kernel_id)
        return kernel_id in self._ledger.aside

    def readmit(self, kernel_id: str) -> None:
        """Reserve an evicted kernel's parts again, and let its memory in. Raises Refused if they do not fit."""
        kernel = self._find(kernel_id)
        if kernel_id in self._ledger.aside:
            self._check_room(kernel)
            try:
                self._ledger.put_back(kernel_id)
            except LedgerError as error:
                raise Refused(NO_ROOM, str(error)) from error
            kernel.residency.is_set_aside = False
            log.info("event=readmitted kernel=%s", kernel_id)
            self._changed()
        self._mark(kernel, is_evicted=False)

    def look(self, kernel_id: str) -> None:
        """Set a kernel's parts aside if it is to leave, and its memory is out.

        Called after each change of a kernel's lease.
        """
        kernel, record = self._reservations.find(kernel_id), self._leases.record(kernel_id)
        if kernel is None or record is None or not record.is_evicted or kernel_id in self._ledger.aside:
            return
        # Processes that are expected back after the agent's restart may still have their memory there.
        if record.is_out and not kernel.is_expecting and _is_off_devices(kernel.residency.facts()):
            self._ledger.set_aside(kernel_id)
            kernel.residency.is_set_aside = True
            kernel.write_journal()
            log.info("event=evicted kernel=%s", kernel_id)
            self._changed()

    def leaving(self) -> list[Leaving]:
        """Return the kernels that were told to leave, and have not left: for the status."""
        now, aside = read_moment().monotonic, frozenset(self._ledger.aside)
        told = [one.kernel_id for one in self._reservations.kernels if one.is_evicted and one.kernel_id not in aside]
        records = [record for one in told if (record := self._leases.record(one)) is not None]
        return [_leaving(record, now) for record in records]

    def _mark(self, kernel: Kernel, *, is_evicted: bool) -> None:
        if kernel.is_evicted != is_evicted:
            kernel.is_evicted = is_evicted
            kernel.write_journal()
        if self._ledger.is_moving(kernel.kernel_id):
            return self._leases.notify()  # the end of its move evicts it
        self._leases.evict(kernel.kernel_id, is_evicted=is_evicted)

    def _check_room(self, kernel: Kernel) -> None:
        """Raise Refused where devices or host memory have no room for the kernel beside the others."""
        asked, name = kernel.reservation, kernel.kernel_id
        placed = resize(
            self._ledger.device_states(asked.workload_class),
            asked.parts,
            asked.hundredths,
            asked.memory_limit,
            residency=asked.residency,
            host=self._ledger.host_room(without=name),
        )
        if isinstance(placed, Refusal):
            raise Refused(placed.code, placed.message)

    def _find(self, kernel_id: str) -> Kernel:
        kernel = self._reservations.find(kernel_id)
        if kernel is None or kernel.is_ending:
            raise Refused("not_found", f"no kernel {kernel_id} is reserved here")
        return kernel


def _is_off_devices(facts: ResidencyFacts) -> bool:
    """Return whether no memory that can leave is on the devices.

    A move that got stuck leaves some there: a process of several did not answer.
    """
    return all(device.on_device_bytes <= device.unswappable_bytes for device in facts.devices)


def _leaving(record: LeaseRecord, now: float) -> Leaving:
    facts = record.residency.facts()
    since = now if record.evicted_since is None else record.evicted_since
    refusal = "" if facts.refusal is None else facts.refusal.text
    is_moving = facts.state in MOVING or record.is_beginning is not None
    return Leaving(facts.kernel_id, int(now - since), is_moving, facts.mode_reason, refusal)
