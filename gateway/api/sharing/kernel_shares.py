"""REST of a kernel's shares under /aliquot/api/v1: list, give and take back. For its owner.

sharing/shares.py decides which names are valid.
"""

from __future__ import annotations

from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado.web import HTTPError, RequestHandler, authenticated

from jupyter_aliquot.gateway.api.jupyter import read_body
from jupyter_aliquot.gateway.api.kernels import KERNEL, OneKernelHandler, told_as_http
from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.auth.identity import tells_people_apart
from jupyter_aliquot.gateway.kernels.manager import AliquotKernelManager
from jupyter_aliquot.gateway.sharing.rights import require_access
from jupyter_aliquot.gateway.sharing.shares import Shares, check_name, read_share

_KINDS = {"users": "user", "teams": "team"}


class _KernelSharesHandler(OneKernelHandler):
    """The base class of both handlers. It has no HTTP method of its own."""

    def shares(self, kernel_id: str) -> Shares:
        """Return the kernel's shares.

        Raises:
            HTTPError: 404 and 403 as for every kernel; 409 for one that cannot be shared here.
        """
        if kernel_id not in self.kernel_manager:
            if self.state(kernel_id) == "ended":
                raise HTTPError(
                    409, f"Requested the shares of kernel {kernel_id}, but it has ended, and its shares with it"
                )
            raise HTTPError(
                409,
                f"Requested the shares of kernel {kernel_id}, but another program started it, and that "
                "program has no users",
            )
        require_access(self.requester, self.kernel_manager, kernel_id, Access.OWN)
        return self.manager.shares_of(kernel_id)

    @property
    def manager(self) -> AliquotKernelManager:
        """Return our kernel manager. Raises HTTPError 409 if this server uses Jupyter's own."""
        manager = self.kernel_manager
        if not isinstance(manager, AliquotKernelManager):
            raise HTTPError(
                409, "Requested the shares of a kernel, but this server's kernels have no owners, and cannot be shared"
            )
        return manager

    async def share(self, kernel_id: str, shares: Shares) -> None:
        """Replace the kernel's shares, notify pages that listen, and answer when they are on disk."""
        self.manager.sharing.share(kernel_id, shares, self.requester)
        await self.manager.handover.noted(kernel_id)
        if self.sources.events is not None:
            self.sources.events.tell()
        self.answer({"shares": shares.report()})


class SharesHandler(_KernelSharesHandler):
    """Answer the users and teams that a kernel is shared with."""

    @authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        self.answer({"shares": self.shares(kernel_id).report()})


class ShareHandler(_KernelSharesHandler):
    """Share a kernel with one user or team, or take the share back."""

    @authenticated
    @authorized
    async def put(self, kernel_id: str, kind: str, name: str) -> None:
        before = self.shares(kernel_id)
        if not tells_people_apart(self.identity_provider):
            raise HTTPError(
                409,
                f"Requested to share a kernel with {_KINDS[kind]} {name[:40]!r}, but this server has one user, so no "
                "other could open it. Name the users of this server first (c.AliquotIdentityProvider.users).",
            )
        with told_as_http():
            access = read_requested_access(read_body(self.get_json_body))
            share = read_share(_KINDS[kind], name, access, self.manager.owner_of(kernel_id) or "")
            shares = before.with_one(share)
        await self.share(kernel_id, shares)

    @authenticated
    @authorized
    async def delete(self, kernel_id: str, kind: str, name: str) -> None:
        before, one = self.shares(kernel_id), _KINDS[kind]
        with told_as_http():
            check_name(one, name)
        if before.find(one, name) is None:
            found = ", ".join(f"{share.kind} {share.name}" for share in before.given) or "no user or team"
            raise HTTPError(
                404, f"Requested to stop sharing the kernel with the {one} {name}, but it is shared with {found}"
            )
        await self.share(kernel_id, before.without(one, name))


def read_requested_access(body: dict[str, Any] | None) -> object:
    """Return the access that the body requests. Raises HTTPError 400."""
    if body is None or set(body) != {"access"}:
        found = ", ".join(sorted(body or {})) or "nothing"
        raise HTTPError(
            400,
            f'Requested to share a kernel with the fields {found[:80]}. Send {{"access": "read"}} or '
            '{"access": "write"}',
        )
    return body["access"]


_SHARES = f"{KERNEL}/shares"

SHARE_HANDLERS: tuple[tuple[str, type[RequestHandler]], ...] = (
    (_SHARES, SharesHandler),
    (f"{_SHARES}/(?P<kind>users|teams)/(?P<name>[^/]+)", ShareHandler),
)
