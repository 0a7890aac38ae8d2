"""REST for administrators: the report of holders, and messages to kernels' owners."""

from __future__ import annotations

from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado.web import HTTPError, authenticated

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.base.clock import iso_moment
from jupyter_aliquot.gateway.base.fields import Entry
from jupyter_aliquot.gateway.holders.report import holders_report
from jupyter_aliquot.gateway.kernels.kernel import ManagedKernel
from jupyter_aliquot.gateway.reports.kernel import OwnerMessage
from jupyter_aliquot.provisioner.errors import RequestError

from .base import AliquotHandler
from .jupyter import read_body
from .kernels import KERNEL, OneKernelHandler, told_as_http

LONGEST_MESSAGE = 500


class HoldersHandler(AliquotHandler):
    """Answer which kernels and users hold GPUs, and what they use. For administrators."""

    @authenticated
    @authorized
    async def get(self) -> None:
        if not self.requester.is_admin:
            raise HTTPError(403, "The kernels of all users are shown to administrators")
        found = self.sources.holders
        if found is None:
            raise HTTPError(503, "This server grants nothing itself, for its kernels are a gateway's: ask that one")
        host = await found.processes.figures()
        snapshot = await self.sources.gather(self.requester)
        self.answer(holders_report(snapshot, self.requester, host, found.clock.wall()))


class MessageHandler(OneKernelHandler):
    """Take a message of an administrator to a kernel's owner."""

    @authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        if kernel_id in self.kernel_manager:
            self.need(kernel_id, Access.READ)
        else:
            self._refuse_others(kernel_id)
        if not self.requester.is_admin:
            raise HTTPError(403, "Messages to kernels' owners are sent by administrators")
        found = self.sources.holders
        kernel = self.kernel_manager.get_kernel(kernel_id)
        if found is None or not isinstance(kernel, ManagedKernel):
            raise HTTPError(409, "The kernel is a gateway's. Send the message to that gateway")
        with told_as_http():
            text = _read_text(read_body(self.get_json_body))
        message: OwnerMessage = {"text": text, "by": self.requester.name, "at": iso_moment(found.clock.wall())}
        kernel.owner_message = message
        self.log.info("kernel=%s owner=%s message_by=%s text=%r", kernel_id, kernel.owner, self.requester.name, text)
        if self.sources.events is not None:
            self.sources.events.tell()
        self.set_status(204)
        self.finish()

    def _refuse_others(self, kernel_id: str) -> None:
        """Raise HTTPError: 404 for a kernel that does not exist, 409 for one that is not this server's."""
        state = self.state(kernel_id)
        why = "it has ended" if state == "ended" else "another program started it, so no page shows its owner messages"
        raise HTTPError(409, f"Requested a message to the owner of kernel {kernel_id}, but {why}")


def _read_text(body: dict[str, Any] | None) -> str:
    """Return the message. Raises RequestError."""
    entry = Entry("the body", {} if body is None else body)
    text = entry.text("text").strip()
    if len(text) > LONGEST_MESSAGE:
        raise RequestError(f"Requested a message of {len(text)} characters. Use at most {LONGEST_MESSAGE}")
    entry.finish()
    return text


ADMINISTRATION_HANDLERS = (
    (r"/aliquot/api/v1/holders", HoldersHandler),
    (f"{KERNEL}/message", MessageHandler),
)
