"""REST of teams' quotas and of the queue. status/quota_report.py decides what a user may see."""

from __future__ import annotations

from jupyter_server.auth.decorator import authorized
from tornado.web import HTTPError, authenticated

from jupyter_aliquot.gateway.base.http_errors import http_error
from jupyter_aliquot.gateway.status.quota_report import queue_report, quota_report
from jupyter_aliquot.provisioner.errors import AliquotError

from .base import AliquotHandler, QuotaSources


class _QuotaHandlerBase(AliquotHandler):
    """The part that the three handlers share."""

    def quotas(self) -> QuotaSources:
        found = self.sources.quotas
        if found is None:
            raise HTTPError(503, "This server grants nothing itself, for its kernels are a gateway's: ask that one")
        return found


class QuotaHandler(_QuotaHandlerBase):
    """Answer the quotas of the teams that the user may see."""

    @authenticated
    @authorized
    async def get(self) -> None:
        found = self.quotas()
        self.answer(quota_report(found.admission(), found.file, found.past(), self.requester))


class QuotaReloadHandler(_QuotaHandlerBase):
    """Read the quota file again now. For administrators."""

    @authenticated
    @authorized
    async def post(self) -> None:
        if not self.requester.is_admin:
            raise HTTPError(403, "The quota file is read again by administrators")
        found = self.quotas()
        if found.file.path is None:
            raise HTTPError(409, "No quota file is set. Set c.Aliquot.quota_file to its path")
        try:
            await found.file.reload_soon(self.requester.name)
        except AliquotError as error:
            raise http_error(error) from error
        self.log.info("quota_file=%s reloaded_by=%s", found.file.path, self.requester.name)
        self.answer(quota_report(found.admission(), found.file, found.past(), self.requester))


class QueueHandler(_QuotaHandlerBase):
    """Answer the requests that wait and that the user may see."""

    @authenticated
    @authorized
    async def get(self) -> None:
        self.answer(queue_report(self.quotas().admission(), self.requester))


QUOTA_HANDLERS = (
    (r"/aliquot/api/v1/quota", QuotaHandler),
    (r"/aliquot/api/v1/quota/reload", QuotaReloadHandler),
    (r"/aliquot/api/v1/queue", QueueHandler),
)
