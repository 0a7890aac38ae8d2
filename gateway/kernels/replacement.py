"""The part of the kernel manager that lets a new kernel come in the place of one that its notebook had.

The old one counts for no limit of the new one, and its room is the new one's. It is ended when the new one is certain
to have room, so that a start that is refused, or given up while it waits, costs nobody a kernel.
"""

# mypy: disable-error-code="no-untyped-call"
# Jupyter Server's kernel managers carry no types.
from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping
from typing import Any, cast

from jupyter_server import CallContext

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.provisioner.terminations import asked_by_user

from .kernel import REPLACES, ManagedKernel
from .request_context import ANSWER, REPLACED_KERNEL, VARIABLE
from .sharing import SharedKernelManager


class ReplacingKernelManager(SharedKernelManager):
    """Which kernel is replaced, the request tells: a session that changes its kernel, or a server in gateway mode."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._ending: set[asyncio.Task[None]] = set()

    async def end_kernel(self, kernel_id: str, asked: Any, now: bool = False) -> None:
        raise NotImplementedError  # by the class that ends kernels

    def asked_to_replace(self, user: User, env: Mapping[str, str]) -> frozenset[str]:
        """The asker's kernels in whose place the start comes that is asked for now, by ``env`` of its body or by its
        session. Those of others, and those that end, are none.

        In the place of one that never ran, it comes in the place of those, too, whose place that one was to take.
        """
        kernel_id = _named(env)
        if not kernel_id or self.owners.get(kernel_id) != user.name or kernel_id in self._stopping:
            return frozenset()
        kernel = self._kernels.get(kernel_id)
        before = kernel.replaces if isinstance(kernel, ManagedKernel) and kernel.grant is None else ()
        return frozenset({kernel_id, *(one for one in before if self.owners.get(one) == user.name)})

    def intended(self, replaced: frozenset[str]) -> dict[str, list[str]]:
        """Among the arguments of the start, so that a gateway that comes after us ends them where we did not."""
        return {REPLACES: sorted(replaced)} if replaced and self.admission is not None else {}

    def ended_by_us(self, replaced: frozenset[str], *, waits: bool) -> frozenset[str]:
        """Those of them that nobody else ends. ``waits``: for a grant; else a session's own ends with its request."""
        if self.admission is None:
            return frozenset()
        return replaced if waits else replaced - {CallContext.get(REPLACED_KERNEL)}

    def replace_later(self, replaced: frozenset[str]) -> None:
        """A kernel was asked for in their place that waits for a grant: one that waits, too, ends at once."""
        for kernel_id in replaced:
            kernel = self._kernels.get(kernel_id)
            if kernel_id in self._pending_kernels and isinstance(kernel, ManagedKernel) and kernel.grant is None:
                self._end_soon(kernel_id)
            else:
                self.spare(kernel_id)

    def replace_now(self, replaced: frozenset[str]) -> None:
        """A kernel without a GPU runs in their place."""
        for kernel_id in replaced:
            self._end_soon(kernel_id)

    def end_replaced(self, kernel: ManagedKernel) -> None:
        """It has its grant, or lacks nothing but their room. Called by itself, and by admission."""
        for kernel_id in kernel.replaces:
            if self.owners.get(kernel_id) == kernel.owner and kernel_id not in self._stopping:
                self._end_soon(kernel_id)

    async def finish_replacing(self, kernel_id: str, used: Callable[[], Container[str]]) -> None:
        """End those in whose place it came, where a gateway before us did not come to it. Called by adoption.

        Not those that a notebook has (``used``), for it was never told of the new one; nor those that were asked for
        after it: their ids are in use again. One that waits for a grant ends them when it has it.
        """
        kernel = self._kernels.get(kernel_id)
        if not isinstance(kernel, ManagedKernel) or not kernel.replaces:
            return
        if kernel.request() is not None and kernel.grant is None:
            return
        await asyncio.wait({cast("asyncio.Future[None]", kernel.ready)})
        if kernel.start_failure() is not None or self.owners.get(kernel_id) != kernel.owner:
            return
        for one in kernel.replaces:
            old = self._kernels.get(one)
            is_older = isinstance(old, ManagedKernel) and old.queued_at < kernel.queued_at
            if is_older and self.owners.get(one) == kernel.owner and one not in self._stopping and one not in used():
                self.log.info("kernel=%s replaced_by=%s ends=now a gateway before this one left it", one, kernel_id)
                self._end_soon(one)

    def _end_soon(self, kernel_id: str) -> None:
        owner = self.owners.get(kernel_id)
        if owner is None:
            return  # it ended meanwhile
        ending = asyncio.ensure_future(self.end_kernel(kernel_id, asked_by_user(owner, owner)))
        self._ending.add(ending)
        ending.add_done_callback(self._ended)

    def _ended(self, ending: asyncio.Task[None]) -> None:
        self._ending.discard(ending)
        if not ending.cancelled() and (error := ending.exception()) is not None:
            self.log.error("replaced=still_there reason=%s", error)

    def kernel_model(self, kernel_id: str) -> dict[str, Any]:
        """Called by Jupyter's handlers for each kernel they show. A server in gateway mode leaves the others to us."""
        model: dict[str, Any] = super().kernel_model(kernel_id)
        kernel = self._kernels.get(kernel_id)
        if isinstance(kernel, ManagedKernel) and kernel.replaces and "owner" not in model:
            model[ANSWER] = sorted(kernel.replaces)
        return model


def _named(env: Mapping[str, str]) -> str:
    """The kernel that the request itself is to replace; empty for none."""
    return str(CallContext.get(REPLACED_KERNEL) or env.get(VARIABLE) or "")
