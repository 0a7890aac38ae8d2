"""REST of the folders that kernels in containers get: all list them, administrators share their own."""

from __future__ import annotations

import asyncio

from jupyter_server.auth.decorator import authorized
from tornado.web import HTTPError, RequestHandler, authenticated

from jupyter_aliquot.gateway.api.base import AliquotHandler
from jupyter_aliquot.gateway.api.jupyter import read_body
from jupyter_aliquot.gateway.base.http_errors import http_error
from jupyter_aliquot.gateway.folders.invitation_report import invited_folders
from jupyter_aliquot.gateway.folders.report import folder_report, folder_reports
from jupyter_aliquot.gateway.folders.shared_folder import read_folder
from jupyter_aliquot.provisioner.errors import AliquotError


class FoldersHandler(AliquotHandler):
    """Answer the folders that the user's kernels get; for an administrator, all shared folders."""

    @authenticated
    @authorized
    async def get(self) -> None:
        own = folder_reports(self.sources.folders, self.requester)
        found = self.sources.invitations
        # Off the loop: each folder is looked at on the disk.
        invited = [] if found is None else await asyncio.to_thread(invited_folders, found, self.requester)
        self.answer({"folders": [*own, *invited]})


class FolderHandler(AliquotHandler):
    """Add, change or remove one shared folder. For administrators."""

    @authenticated
    @authorized
    async def put(self, name: str) -> None:
        self._refuse_users()
        try:
            folder = read_folder(read_body(self.get_json_body), "the body", name)
            # Off the loop: a folder may lie on a network disk.
            listed = await asyncio.to_thread(self.sources.folders.put, folder)
        except AliquotError as error:
            raise http_error(error) from error
        self.answer(folder_report(listed, self.requester))

    @authenticated
    @authorized
    async def delete(self, name: str) -> None:
        self._refuse_users()
        try:
            listed = await asyncio.to_thread(self.sources.folders.remove, name)
        except AliquotError as error:
            raise http_error(error) from error
        if listed is None:
            raise HTTPError(404, f"Requested to stop sharing {name!r}, but no folder has that name")
        self.answer(folder_report(listed, self.requester))

    def _refuse_users(self) -> None:
        if not self.requester.is_admin:
            raise HTTPError(403, "Folders are shared, and taken back, by administrators")


FOLDER_HANDLERS: tuple[tuple[str, type[RequestHandler]], ...] = (
    (r"/aliquot/api/v1/folders", FoldersHandler),
    (r"/aliquot/api/v1/folders/(?P<name>[^/]+)", FolderHandler),
)
