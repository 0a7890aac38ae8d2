"""Ends of kernels that cannot leave a GPU which the cluster takes back. Their owners are warned first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from jupyter_aliquot.gateway.base.clock import Clock
from jupyter_aliquot.gateway.base.lead import ALONE, Lead
from jupyter_aliquot.provisioner.terminations import EndingCode, asked_by_rule

from .interception import KernelEnder
from .policy import Announcement

WARNING_SECONDS = 30.0


class TakenGpus:
    """The kernels that are to end so, of those that the keeper of holders names."""

    def __init__(self, manager: KernelEnder, clock: Clock, log: logging.Logger, lead: Lead = ALONE) -> None:
        self._manager = manager
        self._clock = clock
        self._log = log
        self._lead = lead
        self._announced: Mapping[str, Announcement] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}

    def announced(self) -> Mapping[str, Announcement]:
        """Return the kernels that end if they do not leave."""
        return self._announced

    def note(self, stuck: Mapping[str, str]) -> None:
        """Take the kernels that cannot leave now, each with why: announce their ends, and end those that are due.

        Called again and again by the keeper of holders. A kernel that is not named any more stays.
        """
        now = self._clock.wall()
        ours = {one: why for one, why in stuck.items() if one in self._manager} if self._lead.is_current() else {}
        before = self._announced
        self._announced = {one: before.get(one) or _announcement(one, why, now) for one, why in ours.items()}
        for kernel_id, told in self._announced.items():
            if kernel_id not in before:
                self._log.info("kernel=%s ends_in=%g reason=%s", kernel_id, WARNING_SECONDS, told.reason)
            if told.at <= now and kernel_id not in self._ending:
                self._ending[kernel_id] = asyncio.create_task(self._end(told))

    async def stop(self) -> None:
        """Wait for the kernels that are being ended."""
        await asyncio.gather(*self._ending.values(), return_exceptions=True)

    async def _end(self, told: Announcement) -> None:
        try:
            await self._manager.end_kernel(told.kernel_id, asked_by_rule(EndingCode.NODE_LOST, told.ending), now=True)
        except Exception:
            self._log.exception("kernel=%s ended=failed", told.kernel_id)
        finally:
            self._ending.pop(told.kernel_id, None)


def _announcement(kernel_id: str, why: str, now: float) -> Announcement:
    reason = f"the cluster takes its GPU back, and it cannot leave it: {why}"
    ending = f"because the cluster took its GPU back, and it could not leave it: {why}"
    return Announcement(kernel_id, now + WARNING_SECONDS, reason, ending, False, now)
