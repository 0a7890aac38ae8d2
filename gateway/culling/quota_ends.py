"""Ends of kernels that a team's policy allows: their GPU goes back to the team that is owed it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from jupyter_aliquot.provisioner.terminations import EndingCode, asked_by_rule

from .interception import KernelEnder


class QuotaEnds:
    """The ends under way. Admission decides which kernels end."""

    def __init__(self, manager: KernelEnder, log: logging.Logger) -> None:
        self._manager = manager
        self._log = log
        self._ending: dict[str, asyncio.Task[None]] = {}

    def end(self, kernel_id: str, why: str) -> None:
        """End a kernel of this server. Called by admission."""
        if kernel_id in self._manager and kernel_id not in self._ending:
            self._ending[kernel_id] = asyncio.create_task(self._end(kernel_id, why))

    async def stop(self) -> None:
        """Wait for the kernels that are being ended."""
        await asyncio.gather(*self._ending.values(), return_exceptions=True)

    async def _end(self, kernel_id: str, why: str) -> None:
        try:
            asked = replace(asked_by_rule(EndingCode.CULLED, why), is_for_quota=True)
            await self._manager.end_kernel(kernel_id, asked)
        except Exception:
            self._log.exception("kernel=%s ended=failed", kernel_id)
        finally:
            self._ending.pop(kernel_id, None)
