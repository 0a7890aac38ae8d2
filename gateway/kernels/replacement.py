"""Replacement of kernels: a new kernel takes the place of one that its notebook had.

The replaced kernel counts for no limit of the new one, and its capacity becomes the new one's. It
ends when the new kernel is certain to have its capacity, so that a start that is refused, or given
up while it waits, costs no kernel.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Coroutine, Mapping
from typing import Any, Protocol, cast

from jupyter_server import CallContext

from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.sharing.registry import KernelOwners
from jupyter_aliquot.provisioner.terminations import Asked, asked_by_user

from .kernel import REPLACES, ManagedKernel
from .request_context import REPLACED_KERNEL, replaced_kernel, spare


class Kernels(Protocol):
    """The kernel manager."""

    def find(self, kernel_id: str) -> ManagedKernel | None:
        """Return the kernel of this id, if there is one of this server."""
        ...

    def is_starting(self, kernel_id: str) -> bool:
        """Return whether its start is under way."""
        ...

    def is_stopping(self, kernel_id: str) -> bool:
        """Return whether it is being ended."""
        ...

    def end_kernel(self, kernel_id: str, asked: Asked) -> Coroutine[Any, Any, None]:
        """End it for the reason *asked*."""
        ...


class ReplacementTracker:
    """The kernels that a later kernel replaces. Made by the kernel manager.

    A request names the kernel that its start replaces: a session that changes its kernel does so,
    and a server in gateway mode.

    ``has_queue`` is False without admission; then Jupyter ends the replaced kernel with the
    request.
    """

    def __init__(self, kernels: Kernels, owners: KernelOwners, log: logging.Logger, *, has_queue: bool) -> None:
        self._kernels = kernels
        self._owners = owners
        self._log = log
        self._has_queue = has_queue
        self._ending: set[asyncio.Task[None]] = set()

    def requested(self, user: User, env: Mapping[str, str]) -> frozenset[str]:
        """Return the user's kernels that the requested start replaces, by *env* or by its session.

        Kernels of others, and kernels that end, are left out.
        """
        kernel_id = replaced_kernel(env)
        return self.replaced_with(kernel_id) if kernel_id and self._may_replace(kernel_id, user.name) else frozenset()

    def replaced_with(self, kernel_id: str) -> frozenset[str]:
        """Return this kernel and, if it never ran, the kernels that it was to replace."""
        kernel = self._kernels.find(kernel_id)
        before = kernel.replaces if kernel is not None and kernel.grant is None else ()
        owner = self._owners.get(kernel_id)
        return frozenset({kernel_id, *(one for one in before if self._owners.get(one) == owner)})

    def start_arguments(self, replaced: frozenset[str]) -> dict[str, list[str]]:
        """Return arguments of the start for a later gateway.

        By them it ends the kernels that this one did not end.
        """
        return {REPLACES: sorted(replaced)} if replaced and self._has_queue else {}

    def ended_here(self, replaced: frozenset[str], *, waits: bool) -> frozenset[str]:
        """Return the kernels of *replaced* that this tracker ends.

        *waits*: the new kernel waits for a grant.

        A session's own kernel ends with the session's request where the new kernel does not wait.
        """
        if not self._has_queue:
            return frozenset()
        return replaced if waits else replaced - {CallContext.get(REPLACED_KERNEL)}

    def replace_later(self, replaced: frozenset[str]) -> None:
        """End those of *replaced* that wait themselves.

        The new kernel waits for a grant, and ends the others then.
        """
        for kernel_id in replaced:
            kernel = self._kernels.find(kernel_id)
            if self._kernels.is_starting(kernel_id) and kernel is not None and kernel.grant is None:
                self._end_soon(kernel_id)
            else:
                spare(kernel_id)

    def replace_now(self, replaced: frozenset[str]) -> None:
        """End the replaced kernels: the new one, without a GPU, runs."""
        for kernel_id in replaced:
            self._end_soon(kernel_id)

    def end_replaced(self, kernel: ManagedKernel) -> None:
        """End the kernels that this one replaces. Called by the kernel, and by admission.

        It has its grant, or lacks nothing but their capacity.
        """
        for kernel_id in kernel.replaces:
            if self._may_replace(kernel_id, kernel.owner):
                self._end_soon(kernel_id)

    async def finish(self, kernel_id: str, used: Callable[[], Container[str]]) -> None:
        """End the kernels that a recovered kernel replaces, if an earlier gateway did not.

        Kernels that a notebook has (*used*) stay: the notebook was never told of the new kernel.
        Kernels that were requested after it stay, too: their ids are in use again. A kernel that
        waits for a grant ends them later.
        """
        kernel = self._kernels.find(kernel_id)
        if kernel is None or not kernel.replaces:
            return
        if kernel.request() is not None and kernel.grant is None:
            return
        await asyncio.wait({cast("asyncio.Future[None]", kernel.ready)})
        if kernel.start_failure() is not None or self._owners.get(kernel_id) != kernel.owner:
            return
        for one in kernel.replaces:
            old = self._kernels.find(one)
            is_older = old is not None and old.queued_at < kernel.queued_at
            if is_older and self._may_replace(one, kernel.owner) and one not in used():
                self._log.info("kernel=%s replaced_by=%s ends=now a gateway before this one left it", one, kernel_id)
                self._end_soon(one)

    def under_way(self) -> tuple[asyncio.Task[None], ...]:
        """Return the ends of kernels that are not done yet."""
        return tuple(self._ending)

    def _may_replace(self, kernel_id: str, owner: str) -> bool:
        return self._owners.get(kernel_id) == owner and not self._kernels.is_stopping(kernel_id)

    def _end_soon(self, kernel_id: str) -> None:
        owner = self._owners.get(kernel_id)
        if owner is None:
            return  # it ended meanwhile
        task = asyncio.create_task(self._kernels.end_kernel(kernel_id, asked_by_user(owner, owner)))
        self._ending.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, ending: asyncio.Task[None]) -> None:
        self._ending.discard(ending)
        if not ending.cancelled() and (error := ending.exception()) is not None:
            self._log.error("replaced=still_there reason=%s", error)
