"""The guard that ends kernels which use a GPU without the hook.

It ends kernels in containers always, others if configured. It decides by the agent's reports alone.
Its reasons are kept with those of all other terminations.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, Protocol

from jupyter_aliquot.gateway.base.lead import ALONE, Lead
from jupyter_aliquot.gateway.node.unhooked import process_text
from jupyter_aliquot.gateway.node.view import NodeView
from jupyter_aliquot.gpu_hook.client.client import KernelStatus
from jupyter_aliquot.provisioner.terminations import Asked, EndingCode, asked_by_rule

_FAILED = "failed"


class KernelEnder(Protocol):
    """The part of a kernel manager that ends kernels."""

    def __contains__(self, kernel_id: Any) -> bool: ...

    def is_in_container(self, kernel_id: str) -> bool:
        """Return whether it runs in a container, and not as a process of this machine."""
        ...

    async def end_kernel(self, kernel_id: str, asked: Asked, now: bool = False) -> None:
        """End it, with its grant, for this reason."""
        ...


@dataclass(frozen=True)
class GuardRules:
    """The reasons that end a kernel: a failed self-check, or a process on a device without a hook."""

    requires_interception: bool = True
    ends_unhooked: bool = False

    def may_end(self, kernel: KernelStatus) -> bool:
        """Return whether a rule may apply to the kernel.

        Of a thousand kernels, mostly none does.
        """
        return bool(kernel.unhooked_processes) or kernel.interception.startswith(_FAILED)

    def reason(self, kernel: KernelStatus, in_container: bool = False) -> Asked | None:
        """Return why this kernel must end; None if it may go on.

        If a container's engine dropped a device silently, only the self-check shows it.
        """
        if (self.requires_interception or in_container) and kernel.interception.startswith(_FAILED):
            why = "it runs in a container" if in_container else "c.Aliquot.require_interception is set"
            return asked_by_rule(
                EndingCode.INTERCEPTION,
                f"because its GPU calls are not seen ({kernel.interception}), and {why}. "
                "'aliquot doctor' shows what is wrong",
            )
        if self.ends_unhooked and kernel.unhooked_processes:
            found = "; ".join(process_text(process) for process in kernel.unhooked_processes)
            return asked_by_rule(
                EndingCode.UNCONTROLLED,
                f"because it has memory that is not counted ({found}), and c.Aliquot.unhooked_process_policy is 'end'",
            )
        return None


class InterceptionGuard:
    """The check of each report of the agent; see NodeWatch.listen."""

    def __init__(
        self, manager: KernelEnder, log: logging.Logger, rules: GuardRules | None = None, lead: Lead = ALONE
    ) -> None:
        self._lead = lead
        self._rules = rules or GuardRules()
        self._manager = manager
        self._log = log
        self._ending: dict[str, asyncio.Task[None]] = {}

    def check(self, view: NodeView) -> None:
        """Called by NodeWatch with each new view."""
        if not self._lead.is_current():
            return
        for kernel in filter(self._rules.may_end, view.status.kernels if view.status else ()):
            is_ours = kernel.kernel_id in self._manager and kernel.kernel_id not in self._ending
            in_container = is_ours and self._manager.is_in_container(kernel.kernel_id)
            reason = self._rules.reason(kernel, in_container) if is_ours else None
            if reason is not None:
                self._ending[kernel.kernel_id] = asyncio.create_task(self._end(kernel.kernel_id, reason))

    async def stop(self) -> None:
        """Wait for the kernels that are being ended."""
        await asyncio.gather(*self._ending.values(), return_exceptions=True)

    async def _end(self, kernel_id: str, reason: Asked) -> None:
        try:
            await self._manager.end_kernel(kernel_id, reason, now=True)
        except Exception:
            # It lives. The next check tries again.
            self._log.exception("kernel=%s ended=failed", kernel_id)
        finally:
            self._ending.pop(kernel_id, None)
