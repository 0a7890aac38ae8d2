"""The rights of users to kernels, from owners and shares: the one place that decides them.

The authorizer, handlers, sessions, websockets, reports and events ask here.
"""

from __future__ import annotations

from typing import Protocol, cast

from tornado.web import HTTPError

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.auth.principals import User

from .shares import UNSHARED, Shares, too_little


class SharedKernels(Protocol):
    """The part of a kernel manager that knows the owners and the shares of kernels."""

    def owner_of(self, kernel_id: str) -> str | None:
        """Return the owner's name; None for a kernel that does not exist."""
        ...

    def shares_of(self, kernel_id: str) -> Shares:
        """Return the kernel's shares; none for a kernel that does not exist, or is not shared."""
        ...


def owner_for(user: User, kernel_manager: object, kernel_id: str) -> str:
    """Return the name of a kernel's owner; the user's own with a kernel manager without owners.

    Such a manager, as of the kernels beside a gateway's, shares no kernel.
    """
    if not hasattr(kernel_manager, "owner_of"):
        return user.name
    return cast(SharedKernels, kernel_manager).owner_of(kernel_id) or ""


def access_for(who: User, owner: str, shares: Shares = UNSHARED) -> Access:
    """Return this user's access to a kernel of this owner."""
    return Access.OWN if who.is_admin else shares.access(who.name, who.teams, owner)


def access_of(requester: User, kernel_manager: object, kernel_id: str) -> Access:
    """Return the user's access to this kernel; none with a kernel manager that knows no owners."""
    if requester.is_admin:
        return Access.OWN
    if not requester.name or not hasattr(kernel_manager, "owner_of"):
        return Access.NONE
    manager = cast(SharedKernels, kernel_manager)
    return manager.shares_of(kernel_id).access(requester.name, requester.teams, manager.owner_of(kernel_id))


def require_access(requester: User, kernel_manager: object, kernel_id: str, needed: Access) -> Access:
    """Return the user's access.

    Raises HTTPError: 404 for a kernel that the user may not see, 403 for too little access.
    """
    access = access_of(requester, kernel_manager, kernel_id)
    if access is Access.NONE:
        raise HTTPError(404, f"Kernel does not exist: {kernel_id}")
    if access < needed:
        owner = cast(SharedKernels, kernel_manager).owner_of(kernel_id) or ""
        raise HTTPError(403, too_little(access, needed, owner, kernel_id))
    return access
