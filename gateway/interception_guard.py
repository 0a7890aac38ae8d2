"""Ends this server's kernels that go past the hook, where the administrator's configuration says so.

It decides by the agent's word alone, and remembers the last kernels it ended so that their owners learn why.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from aliquot.gateway.status import LocalKernel, NodeView
from aliquot.gateway.unhooked import process_text
from aliquot.gpu_hook.client import KernelStatus
from aliquot.provisioner.resources import Bytes, GpuShare, Request, WorkloadClass

_REMEMBERED = 100
_FAILED = "failed"


class KernelEnder(Protocol):
    """The part of a kernel manager that ends kernels."""

    def __contains__(self, kernel_id: Any) -> bool: ...

    async def shutdown_kernel(self, kernel_id: str, now: bool = False) -> None:
        """End it, with its grant."""
        ...


@dataclass(frozen=True)
class GuardRules:
    """What ends a kernel: a self-check that failed; a process on a device that no hook sees."""

    requires_interception: bool = True
    ends_unhooked: bool = False

    def reason(self, kernel: KernelStatus) -> str:
        """Why this kernel is to be ended; empty when it may go on."""
        if self.requires_interception and kernel.interception.startswith(_FAILED):
            return (
                f"its GPU calls are not seen ({kernel.interception}), and c.Aliquot.require_interception is set. "
                "'aliquot doctor' shows what is wrong"
            )
        if self.ends_unhooked and kernel.unhooked_processes:
            found = "; ".join(process_text(process) for process in kernel.unhooked_processes)
            return f"it has memory that is not counted ({found}), and c.Aliquot.unhooked_process_policy is 'end'"
        return ""


class InterceptionGuard:
    """Looks at each word of the agent; see NodeWatch.listen."""

    def __init__(self, manager: KernelEnder, log: logging.Logger, rules: GuardRules | None = None) -> None:
        self._rules = rules or GuardRules()
        self._manager = manager
        self._log = log
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._ended: deque[LocalKernel] = deque(maxlen=_REMEMBERED)

    def look(self, view: NodeView) -> None:
        """Called by NodeWatch with each new view."""
        for kernel in view.status.kernels if view.status else ():
            is_ours = kernel.kernel_id in self._manager and kernel.kernel_id not in self._ending
            reason = self._rules.reason(kernel) if is_ours else ""
            if reason:
                self._ending[kernel.kernel_id] = asyncio.create_task(self._end(kernel, reason))

    def ended(self) -> tuple[LocalKernel, ...]:
        """The kernels that were ended here, the last ones, with the reason."""
        return tuple(self._ended)

    async def stop(self) -> None:
        """Wait for what is being ended."""
        await asyncio.gather(*self._ending.values(), return_exceptions=True)

    async def _end(self, kernel: KernelStatus, reason: str) -> None:
        self._log.warning("kernel=%s ended=uncontrolled reason=%s", kernel.kernel_id, reason)
        try:
            await self._manager.shutdown_kernel(kernel.kernel_id, now=True)
        except Exception:
            # It lives, so the status must not call it ended; the next look tries again.
            self._log.exception("kernel=%s ended=failed", kernel.kernel_id)
        else:
            self._ended.append(_ended_kernel(kernel, reason))
        finally:
            self._ending.pop(kernel.kernel_id, None)


def _ended_kernel(kernel: KernelStatus, reason: str) -> LocalKernel:
    limit = None if kernel.memory_limit is None else Bytes(kernel.memory_limit)
    return LocalKernel(
        id=kernel.kernel_id,
        name=dict(kernel.attributes).get("kernelspec", ""),
        owner=kernel.owner,
        label=kernel.label,
        request=Request(GpuShare(kernel.hundredths), limit, WorkloadClass(kernel.workload_class)),
        state="ended",
        reason=reason,
        created=kernel.created,
    )
