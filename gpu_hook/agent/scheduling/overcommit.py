"""The overcommit in force: what was asked for, as far as devices and host memory allow it now.

The keeper looks at host memory with each look at the devices. Where less is left than was set
aside for copies, it lowers the budget, so that no copy makes the machine kill a process: kernels
that run keep what they have, and new ones are admitted for less.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from jupyter_aliquot.gpu_hook.agent.devices.host_memory import available_memory_bytes
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import Ledger
from jupyter_aliquot.gpu_hook.placement.automatic import DeviceNeeds, find_overcommit
from jupyter_aliquot.gpu_hook.placement.placement import format_bytes

from .settings import LeaseSettings

log = logging.getLogger(__name__)

RESIDENCY_IS_OFF = "kernels keep their memory on this GPU (--residency off)"
CHECK_FAILED = "the self-check of swapping failed on this GPU: {}"
NOT_CHECKED = "the self-check of swapping has not answered for this GPU yet"

_LEFT_PART = 16  # of the machine's memory: a sixteenth is for others
_LEFT_MOST = 1 << 30
_STEP_BYTES = 64 << 20
_RISE_PART = 16  # a budget rises by a sixteenth of what is set aside, or not yet


class CopyStore(Protocol):
    """The owner of the host copies."""

    @property
    def held_bytes(self) -> int: ...

    @property
    def warm_bytes(self) -> int: ...

    def limit_budget(self, memory_bytes: int) -> None: ...


def affordable_bytes(
    budget_bytes: int,
    held_bytes: int,
    warm_bytes: int,
    available_bytes: int | None,
    machine_bytes: int,
    promised_bytes: int = 0,
) -> int:
    """Return how much of a budget for copies the machine can give now. Pure.

    Args:
        budget_bytes: The host memory that is set aside for copies.
        held_bytes: What copies take of it already.
        warm_bytes: What segments without a copy take, which can be dropped.
        available_bytes: What the machine has left; None: unknown.
        machine_bytes: All that the machine has.
        promised_bytes: The part of what is left that others are to have: that of software GPUs.
    """
    if available_bytes is None:
        return budget_bytes
    left = available_bytes + warm_bytes - promised_bytes - min(_LEFT_MOST, machine_bytes // _LEFT_PART)
    afford = held_bytes + max(0, left)
    return budget_bytes if afford >= budget_bytes else max(held_bytes, afford - afford % _STEP_BYTES)


class OvercommitKeeper:
    """Keeps the ledger's rule and the budget of copies. ``reasons`` say why a device has no more."""

    def __init__(
        self,
        ledger: Ledger,
        settings: LeaseSettings,
        copies: CopyStore,
        available: Callable[[], int | None] = available_memory_bytes,
    ) -> None:
        self._ledger = ledger
        self._settings = settings
        self._copies = copies
        self._available = available
        self._machine_bytes = ledger.host_memory_bytes
        self._failures: dict[str, str] = {}
        self.budget_bytes = settings.host.bytes(self._machine_bytes)
        self.host_bytes = self.budget_bytes
        self.reasons: Mapping[str, str] = {}
        self._apply()

    def note_checks(self, found: Mapping[str, str]) -> bool:
        """Note the outcome of the self-check by device: empty, or why it failed.

        Return whether the rule has changed.
        """
        self._failures.update(found)
        return self._apply()

    def look(self, promised_bytes: int = 0) -> bool:
        """Look at the devices and the host; return whether the rule has changed."""
        copies, machine = self._copies, self._machine_bytes
        afford = affordable_bytes(
            self.budget_bytes, copies.held_bytes, copies.warm_bytes, self._available(), machine, promised_bytes
        )
        is_back = afford == self.budget_bytes or afford >= self.host_bytes + self.budget_bytes // _RISE_PART
        if afford < self.host_bytes or (afford > self.host_bytes and is_back):
            log.warning("event=host_memory copies=%d set_aside=%d", afford, self.budget_bytes)
            self.host_bytes = afford
            self._copies.limit_budget(afford)
        return self._apply()

    @property
    def problem(self) -> str:
        """Return why less host memory is for copies than was set aside; empty where all is."""
        if self.host_bytes >= self.budget_bytes:
            return ""
        return (
            f"Other programs have taken host memory: {format_bytes(self.host_bytes)} of the "
            f"{format_bytes(self.budget_bytes)} that are set aside can hold copies of swapped-out kernels. Kernels "
            "that run keep what they have. End other programs, or lower --swap-memory"
        )

    def _apply(self) -> bool:
        settings, ledger = self._settings, self._ledger
        devices = [
            DeviceNeeds(
                facts.uuid, facts.memory_bytes, ledger.contexts.measured(facts.uuid), self._obstacle(facts.uuid)
            )
            for facts in ledger.devices
        ]
        found = find_overcommit(settings.overcommit, devices, self.host_bytes)
        self.reasons = found.reasons
        has_changed = found.rule != ledger.oversubscription
        if has_changed:
            log.info("event=overcommit ceilings=%s host_bytes=%d", dict(found.rule.ceilings), self.host_bytes)
        ledger.oversubscription = found.rule
        return has_changed

    def _obstacle(self, uuid: str) -> str:
        if self._settings.residency == "off":
            return RESIDENCY_IS_OFF
        failure = self._failures.get(uuid)
        if failure is None:  # an administrator who gives a number knows the machine
            return NOT_CHECKED if self._settings.overcommit.production is None else ""
        return CHECK_FAILED.format(failure) if failure else ""
