"""The owners of kernels, and the users and teams that each kernel is shared with.

`rights` decides from these facts what a user may do with a kernel.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.sharing.rights import access_of
from jupyter_aliquot.gateway.sharing.shares import UNSHARED, Shares


class KernelOwners(Mapping[str, str]):
    """Kernel id to the owner's name, in the order in which they were noted.

    Both directions are a look-up: of a thousand kernels, a user's few are asked for many times a
    second.
    """

    def __init__(self, owners: Mapping[str, str] | None = None) -> None:
        self._owners: dict[str, str] = {}
        # Dicts for their order.
        self._ids: dict[str, dict[str, None]] = {}
        for kernel_id, owner in (owners or {}).items():
            self.note(kernel_id, owner)

    def __getitem__(self, kernel_id: str) -> str:
        return self._owners[kernel_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._owners)

    def __len__(self) -> int:
        return len(self._owners)

    def get(self, kernel_id: str, default: Any = None) -> Any:
        """Return the owner, as dict.get does, and as fast.

        Each status report calls it for each kernel.
        """
        return self._owners.get(kernel_id, default)

    def of(self, owner: str) -> Collection[str]:
        """Return the ids of this user's kernels."""
        return self._ids.get(owner, {}).keys()

    def note(self, kernel_id: str, owner: str) -> None:
        """Make this user the kernel's owner from now on."""
        self.forget(kernel_id)
        self._owners[kernel_id] = owner
        self._ids.setdefault(owner, {})[kernel_id] = None

    def forget(self, kernel_id: str) -> None:
        """Remove a kernel that has ended. Idempotent."""
        owner = self._owners.pop(kernel_id, None)
        if owner is None:
            return
        ids = self._ids[owner]
        del ids[kernel_id]
        if not ids:
            del self._ids[owner]


class SharedKernel(Protocol):
    """A kernel. It keeps its shares."""

    @property
    def shares(self) -> Shares: ...

    def take_shares(self, shares: Shares) -> None:
        """Replace the shares."""
        ...


class Kernels(Protocol):
    """The kernel manager."""

    def __contains__(self, kernel_id: str, /) -> bool: ...

    def find(self, kernel_id: str) -> SharedKernel | None:
        """Return the kernel of this id, if there is one of this server."""
        ...

    def list_kernel_ids(self) -> list[str]:
        """Return the ids of all kernels, in the order in which they were started."""
        ...


class ShareRegistry:
    """The shares of all kernels. Made by the kernel manager.

    A kernel's shares are kept with the kernel, and end with it. Each of *observers* is called with
    a kernel's id after its shares changed.
    """

    def __init__(
        self,
        kernels: Kernels,
        owners: KernelOwners,
        observers: Iterable[Callable[[str], None]],
        log: logging.Logger,
    ) -> None:
        self._kernels = kernels
        self._owners = owners
        self._observers = tuple(observers)
        self._log = log
        # The websockets of other users than the owner, per kernel.
        self._collaborators: Counter[str] = Counter()
        # The kernels that are shared just now.
        self._shared_ids: set[str] = set()

    def owner_of(self, kernel_id: str) -> str | None:
        """Return the owner's name; None for a kernel that does not exist."""
        found: str | None = self._owners.get(kernel_id)
        return found

    def shares_of(self, kernel_id: str) -> Shares:
        """Return the users and teams that the kernel is shared with."""
        kernel = self._kernels.find(kernel_id)
        return UNSHARED if kernel is None else kernel.shares

    def concerns(self, user: User, kernel_id: str) -> bool:
        """Return whether the kernel is the user's own or shared with the user by name.

        An administrator may see more kernels than these.
        """
        return self.shares_of(kernel_id).access(user.name, user.teams, self.owner_of(kernel_id)) is not Access.NONE

    def share(self, kernel_id: str, shares: Shares, by: User) -> None:
        """Share the kernel with these users and teams from now on, and with no others."""
        kernel = self._kernels.find(kernel_id)
        assert kernel is not None  # the handler has checked
        kernel.take_shares(shares)
        self.note(kernel_id, shares)
        self._log.info("kernel=%s shared=%s by=%s", kernel_id, shares.report(), by.name)
        for observer in self._observers:
            observer(kernel_id)

    def note(self, kernel_id: str, shares: Shares) -> None:
        """Remember whether the kernel is shared, so that lists look at shared kernels alone."""
        (self._shared_ids.add if shares else self._shared_ids.discard)(kernel_id)

    def forget(self, kernel_id: str) -> None:
        """Remove a kernel that has ended."""
        self._shared_ids.discard(kernel_id)

    def collaborator_came(self, kernel_id: str) -> None:
        """Count an open websocket of another user than the owner.

        It does not keep the kernel from being culled.
        """
        self._collaborators[kernel_id] += 1

    def collaborator_went(self, kernel_id: str) -> None:
        """Count a closed one off."""
        self._collaborators[kernel_id] -= 1
        if self._collaborators[kernel_id] <= 0:
            del self._collaborators[kernel_id]

    def collaborators_of(self, kernel_id: str) -> int:
        """Return how many websockets of other users than the owner are open."""
        return self._collaborators.get(kernel_id, 0)

    def visible_to(self, user: User) -> list[str]:
        """Return the ids of the kernels that the user may see, in the order of their starts.

        Each status request asks first of all: of a thousand kernels, this looks at the user's own
        and at shared ones.
        """
        if user.is_admin:
            return self._kernels.list_kernel_ids()
        own = self._owners.of(user.name)
        shared = self._shared_ids.difference(own)
        seen = {kernel_id for kernel_id in shared if access_of(user, self, kernel_id) is not Access.NONE}
        if seen:
            return [one for one in self._kernels.list_kernel_ids() if one in own or one in seen]
        return [one for one in own if one in self._kernels]
