"""The part of the kernel manager that knows whose kernels are, and with whom they are shared.

What somebody may do with one, auth.access_of decides from what is told here. Ending is the owner's: what Jupyter does
by itself to the kernel of a session that goes, it does to nobody else's.
"""

# mypy: disable-error-code="no-untyped-call"
# Jupyter Server's kernel managers carry no types.
from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from jupyter_server import CallContext
from tornado.web import HTTPError

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.auth.identity import access_of, current_user
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.auth.shares import Shares
from jupyter_aliquot.gateway.channels.shared_connection import look_at_sockets
from jupyter_aliquot.gateway.state.persistence import Heritage

from .kernel import ManagedKernel
from .request_context import SPARED_KERNEL
from .resize import ResizableKernelManager


class SharedKernelManager(ResizableKernelManager):
    """Shares are kept with their kernel, and end with it."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._share_observers: list[Callable[[str], None]] = [self.pending.look_again, look_at_sockets]
        self._guests: Counter[str] = Counter()
        # Those that are shared just now.
        self._shared_ids: set[str] = set()

    def owner_of(self, kernel_id: str) -> str | None:
        """Whose kernel it is; None for one that is not there. Asked by the authorizer."""
        found: str | None = self.owners.get(kernel_id)
        return found

    def shares_of(self, kernel_id: str) -> Shares:
        """With whom it is shared. Asked by the authorizer."""
        kernel = self._kernels.get(kernel_id)
        return kernel.shares if isinstance(kernel, ManagedKernel) else Shares()

    def concerns(self, user: User, kernel_id: str) -> bool:
        """Whether it is his or shared with him by name: an administrator may see more. Asked by GET ?owner=me."""
        return self.shares_of(kernel_id).access(user.name, user.teams, self.owner_of(kernel_id)) is not Access.NONE

    def share(self, kernel_id: str, shares: Shares) -> None:
        """From now on it is shared so, and with nobody else."""
        kernel = self.get_kernel(kernel_id)
        assert isinstance(kernel, ManagedKernel)  # kernel_manager_class makes no other
        kernel.take_shares(shares)
        self._note_shares(kernel_id, shares)
        self.log.info("kernel=%s shared=%s by=%s", kernel_id, shares.report(), current_user().name)
        for observer in self._share_observers:
            observer(kernel_id)

    def observe_shares(self, observer: Callable[[str], None]) -> None:
        """Call this after each change of them, with the kernel's id."""
        self._share_observers.append(observer)

    def guest_came(self, kernel_id: str) -> None:
        """A websocket of somebody else's opened. Who looks at another's kernel does not keep it from being culled."""
        self._guests[kernel_id] += 1

    def guest_went(self, kernel_id: str) -> None:
        """It closed."""
        self._guests[kernel_id] -= 1
        if self._guests[kernel_id] <= 0:
            del self._guests[kernel_id]

    def guests_of(self, kernel_id: str) -> int:
        """How many websockets of others than its owner there are."""
        return self._guests.get(kernel_id, 0)

    def list_kernels(self) -> list[dict[str, Any]]:
        """Called by GET /api/kernels: the kernels that the asker may see."""
        models = []
        for kernel_id in self.visible_to(current_user()):
            with contextlib.suppress(HTTPError, KeyError):  # it ended just now
                models.append(self.kernel_model(kernel_id))
        return models

    def visible_to(self, user: User) -> list[str]:
        """The ids of those that this user may see, as they were started. Asked before anything else of them is.

        By each who asks for a status: of a thousand kernels it looks at his own, and at those that are shared.
        """
        if user.is_admin:
            return list(self.list_kernel_ids())
        own = self.owners.of(user.name)
        guest_of = {one for one in self._shared_ids.difference(own) if access_of(user, self, one) is not Access.NONE}
        if guest_of or self.leaves_kernels:
            return [one for one in self.list_kernel_ids() if one in own or one in guest_of]
        return [one for one in own if one in self]

    def make_kernel(self, kernel_id: str, heritage: Heritage) -> ManagedKernel:
        """Called by adoption. One that was shared still is."""
        kernel = super().make_kernel(kernel_id, heritage)
        self._note_shares(kernel_id, kernel.shares)
        return kernel

    def unmake_kernel(self, kernel_id: str, kernel: ManagedKernel | None) -> None:
        """Called by adoption, which failed."""
        super().unmake_kernel(kernel_id, kernel)
        if kernel_id not in self._kernels:
            self._shared_ids.discard(kernel_id)

    def remove_kernel(self, kernel_id: str) -> Any:
        """Called by MultiKernelManager when a kernel has ended, or never started."""
        self._shared_ids.discard(kernel_id)
        return super().remove_kernel(kernel_id)

    def _note_shares(self, kernel_id: str, shares: Shares) -> None:
        (self._shared_ids.add if shares else self._shared_ids.discard)(kernel_id)

    def kernel_model(self, kernel_id: str) -> dict[str, Any]:
        """Called by Jupyter's handlers for each kernel they show. One that is another's than the asker's says so."""
        model: dict[str, Any] = super().kernel_model(kernel_id)
        user, owner = current_user(), self.owner_of(kernel_id)
        if owner != user.name:
            model["access"], model["owner"] = access_of(user, self, kernel_id).word, owner
        return model

    def update_env(self, *, kernel_id: str, env: dict[str, str]) -> None:
        """Called by PATCH /api/sessions/{id}: what somebody else's session is called is nothing to the kernel."""
        if access_of(current_user(), self, kernel_id) is Access.OWN:
            super().update_env(kernel_id=kernel_id, env=env)

    def spare(self, kernel_id: str) -> None:
        """What the request that is served now does by itself ends it not: it is of a session that is a guest's."""
        CallContext.set(SPARED_KERNEL, kernel_id)

    def may_end(self, kernel_id: str) -> bool:
        """Whether who asks now may end it; the server itself may."""
        if CallContext.get(SPARED_KERNEL) == kernel_id:
            return False
        return access_of(current_user(), self, kernel_id) is Access.OWN
