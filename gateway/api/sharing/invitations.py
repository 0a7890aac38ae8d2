"""REST of users' invitations to folders of theirs: list, invite, end, accept, decline.

folders/invitations.py decides which folders and names are valid.
"""

from __future__ import annotations

import asyncio

from jupyter_server.auth.decorator import authorized
from tornado.web import HTTPError, RequestHandler, authenticated

from jupyter_aliquot.gateway.api.base import AliquotHandler
from jupyter_aliquot.gateway.api.jupyter import read_body
from jupyter_aliquot.gateway.auth.identity import tells_people_apart
from jupyter_aliquot.gateway.base.http_errors import http_error
from jupyter_aliquot.gateway.folders.invitation import Invitation, read_wish
from jupyter_aliquot.gateway.folders.invitation_report import invitation_report, invitations_report, refusal
from jupyter_aliquot.gateway.folders.invitations import Invitations
from jupyter_aliquot.gateway.kernels.manager import AliquotKernelManager
from jupyter_aliquot.provisioner.errors import AliquotError


class _InvitationsHandler(AliquotHandler):
    """The base class of these handlers. It has no HTTP method of its own."""

    @property
    def found(self) -> Invitations:
        """Return this server's invitations. Raises HTTPError 409 if it starts no kernels itself."""
        found = self.sources.invitations
        if found is None:
            raise HTTPError(409, "Requested invitations to folders, but another server starts this one's kernels")
        return found

    def refusal(self) -> str | None:
        """Return why no user can invite here; None where users can."""
        manager = self.kernel_manager
        has_images = isinstance(manager, AliquotKernelManager) and manager.has_images
        return refusal(self.found, has_images=has_images, has_users=tells_people_apart(self.identity_provider))

    def invitation(self, id_: str) -> Invitation:
        """Return one that the user sees. Raises HTTPError 404 for every other id."""
        invitation = self.found.find(id_, self.requester)
        if invitation is None:
            raise HTTPError(404, f"Requested the invitation {id_[:40]!r}, but there is none, or it has ended")
        return invitation

    async def tell(self, invitation: Invitation) -> None:
        """Answer one invitation. The folder is looked at off the loop."""
        self.answer(await asyncio.to_thread(invitation_report, self.found, invitation, self.requester))


class InvitationsHandler(_InvitationsHandler):
    """Answer the user's own invitations and those for the user; invite to a folder."""

    @authenticated
    @authorized
    async def get(self) -> None:
        self.answer(await asyncio.to_thread(invitations_report, self.found, self.requester, self.refusal()))

    @authenticated
    @authorized
    async def post(self) -> None:
        if (why := self.refusal()) is not None:
            raise HTTPError(409, why)
        found = self.found
        try:
            wish = read_wish(read_body(self.get_json_body), found.now)
            invitation = await asyncio.to_thread(found.invite, self.requester, wish)
        except AliquotError as error:
            raise http_error(error) from error
        await self.tell(invitation)


class InvitationHandler(_InvitationsHandler):
    """End an invitation. For its owner and administrators."""

    @authenticated
    @authorized
    async def delete(self, id: str) -> None:
        invitation, who = self.invitation(id), self.requester
        if not (who.is_admin or who.name == invitation.owner):
            raise HTTPError(403, f"{invitation.owner} ends this invitation, or an administrator. You may decline it")
        report = await asyncio.to_thread(invitation_report, self.found, invitation, who)
        try:
            await asyncio.to_thread(self.found.end, invitation, who)
        except AliquotError as error:
            raise http_error(error) from error
        self.answer(report)


class _AnswerHandler(_InvitationsHandler):
    """The base class of both answers. Each invited user answers for themselves."""

    async def answer_with(self, id_: str, *, is_accepted: bool) -> None:
        """Accept or decline. Raises HTTPError."""
        invitation = self.invitation(id_)
        if not invitation.invites(self.requester):
            raise HTTPError(403, f"{invitation.owner} invited the {invitation.kind} {invitation.invited}, and not you")
        try:
            made = await asyncio.to_thread(self.found.answer, invitation, self.requester, is_accepted=is_accepted)
        except AliquotError as error:
            raise http_error(error) from error
        await self.tell(made)


class AcceptHandler(_AnswerHandler):
    """Accept an invitation."""

    @authenticated
    @authorized
    async def post(self, id: str) -> None:
        await self.answer_with(id, is_accepted=True)


class DeclineHandler(_AnswerHandler):
    """Decline an invitation, also one that was accepted."""

    @authenticated
    @authorized
    async def post(self, id: str) -> None:
        await self.answer_with(id, is_accepted=False)


_ALL = r"/aliquot/api/v1/invitations"
_ONE = rf"{_ALL}/(?P<id>[^/]+)"

INVITATION_HANDLERS: tuple[tuple[str, type[RequestHandler]], ...] = (
    (_ALL, InvitationsHandler),
    (_ONE, InvitationHandler),
    (rf"{_ONE}/accept", AcceptHandler),
    (rf"{_ONE}/decline", DeclineHandler),
)
