"""REST for the kernels under /aliquot/api/v1: their reports, and the requests that change them.

Access is checked here: a kernel that the user may not see answers as one that does not exist.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager

from jupyter_server.auth.decorator import authorized
from tornado.web import HTTPError, RequestHandler, authenticated

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.base.http_errors import http_error
from jupyter_aliquot.gateway.channels.pending_kernels import PendingKernels
from jupyter_aliquot.gateway.channels.pending_messages import reports
from jupyter_aliquot.gateway.kernels.operations import KernelChanges, read_resize_request
from jupyter_aliquot.gateway.relays.pool import RelayLinks
from jupyter_aliquot.gateway.replay.cells import NOTHING
from jupyter_aliquot.gateway.reports.kernel import Kernel
from jupyter_aliquot.gateway.scheduling.queue import QueueEntry
from jupyter_aliquot.gateway.sharing.rights import access_of, require_access
from jupyter_aliquot.gateway.status.report import OneKernel, find_kernel, kernel_reports
from jupyter_aliquot.provisioner.errors import AliquotError

from .base import AliquotHandler
from .jupyter import read_body

# The time that websockets opened just now get to attach.
_ATTACH_SECONDS = 1.0
# The most ids that a page may ask about at once, and the length of the longest.
_MOST_SENT, _LONGEST_ID = 100, 256
_RUNNING = ("on_gpu", "swapped_out", "restoring", "checkpointed")


class OneKernelHandler(AliquotHandler):
    """The base class of handlers for one kernel."""

    def report(self, kernel_id: str) -> Kernel:
        """Return the kernel's report. Raises HTTPError 404 for one that the user may not see."""
        return self._find(kernel_id).report()

    def state(self, kernel_id: str) -> str:
        """Return the kernel's state without making a report. Raises HTTPError 404 as `report` does."""
        return self._find(kernel_id).state

    def _find(self, kernel_id: str) -> OneKernel:
        found = find_kernel(self.sources.snapshot(self.requester, kernel_id), self.requester, kernel_id)
        if found is None:
            raise HTTPError(404, f"Kernel does not exist: {kernel_id}")
        return found

    def changes_of(self, kernel_id: str, needed: Access = Access.OWN) -> KernelChanges:
        """Return the object that changes this kernel.

        Raises:
            HTTPError: 404 as `report` does; 403 if the user may not change it; 409 unless it runs.
        """
        if kernel_id in self.kernel_manager:
            require_access(self.requester, self.kernel_manager, kernel_id, needed)
        try:
            state = self.state(kernel_id)
        except HTTPError:
            # A kernel without a GPU may have no report, but it has an owner, who gets the error
            # that it has no GPU.
            if kernel_id not in self.kernel_manager:
                raise
            state = "on_gpu"
        if state not in _RUNNING:
            told = "End it, and start one of another size" if state == "queued" else "Wait until it runs"
            told = "Start another one" if state == "ended" else told
            raise HTTPError(409, f"Requested a change of kernel {kernel_id}, but it is {state}. {told}")
        if self.sources.changes is None:
            raise HTTPError(
                409,
                "Requested a change of a kernel, but another gateway runs this server's kernels. Send "
                "the request to that gateway",
            )
        return self.sources.changes

    def need(self, kernel_id: str, access: Access) -> None:
        """Check the user's access to a kernel of this server.

        Raises HTTPError 404, or 403 for a user who may see the kernel but lacks this access.
        """
        if kernel_id not in self.kernel_manager:
            raise HTTPError(404, f"Kernel does not exist: {kernel_id}")
        require_access(self.requester, self.kernel_manager, kernel_id, access)

    def asking(self, kernel_id: str) -> AbstractContextManager[None]:
        """Return a context in which events name this user as the one who changed the kernel."""
        events = self.sources.events
        return contextlib.nullcontext() if events is None else events.asked(kernel_id, self.requester.name)


@contextlib.contextmanager
def told_as_http() -> Iterator[None]:
    """Re-raise an `AliquotError` as the `HTTPError` that `http_errors` maps it to."""
    try:
        yield
    except AliquotError as error:
        raise http_error(error) from error


class KernelsHandler(AliquotHandler):
    """Answer the kernels that the user may see."""

    @authenticated
    @authorized
    async def get(self) -> None:
        self.answer({"kernels": kernel_reports(self.sources.snapshot(self.requester), self.requester)})


class KernelHandler(OneKernelHandler):
    """Answer one kernel's report, and change its size or priority."""

    @authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        self.answer(self.report(kernel_id))

    @authenticated
    @authorized
    async def patch(self, kernel_id: str) -> None:
        changes = self.changes_of(kernel_id)
        with told_as_http(), self.asking(kernel_id):
            resize = read_resize_request(
                read_body(self.get_json_body), self.sources.largest, here=self.sources.largest_here()
            )
            outcome = await changes.resize(self.requester, kernel_id, resize)
        self.set_status(202 if isinstance(outcome, QueueEntry) else 200)
        self.answer(self.report(kernel_id))


class ResizeHandler(OneKernelHandler):
    """Withdraw a queued resize."""

    @authenticated
    @authorized
    async def delete(self, kernel_id: str) -> None:
        with told_as_http():
            withdrawn = await self.changes_of(kernel_id).withdraw_resize(kernel_id)
        if not withdrawn:
            raise HTTPError(404, f"Requested to withdraw a change of kernel {kernel_id}'s size, but none is queued")
        self.set_status(204)
        self.finish()


class SwapOutHandler(OneKernelHandler):
    """Swap a kernel's memory out of its devices."""

    @authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        with told_as_http(), self.asking(kernel_id):
            await self.changes_of(kernel_id).swap_out(kernel_id)
        self.set_status(202)
        self.answer(self.report(kernel_id))


class RestoreHandler(OneKernelHandler):
    """Restore a kernel's memory to its devices."""

    @authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        with told_as_http():
            await self.changes_of(kernel_id, Access.WRITE).wake(kernel_id)
        self.set_status(202)
        self.answer(self.report(kernel_id))


class PrefetchHandler(OneKernelHandler):
    """Prefetch a kernel's memory: its user expects to run a cell soon."""

    @authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        with told_as_http():
            await self.changes_of(kernel_id, Access.WRITE).hint(kernel_id)
        self.set_status(204)
        self.finish()


class PostponeCullingHandler(OneKernelHandler):
    """Postpone the culling of an idle kernel. Answers 404 for another user's kernel."""

    @authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        self.need(kernel_id, Access.OWN)
        refusal = None if self.sources.keep is None else self.sources.keep(kernel_id)
        if refusal is not None:
            raise HTTPError(409, refusal)
        self.set_status(204)
        self.finish()


class OutputsHandler(OneKernelHandler):
    """Answer the output of cells that run or ended a short while ago.

    Another user's kernel, if it is not shared, is answered with 404.
    """

    @authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        self.need(kernel_id, Access.READ)
        links: RelayLinks | None = getattr(self.kernel_manager, "links", None)
        pending: PendingKernels | None = getattr(self.kernel_manager, "pending", None)
        waiting = [] if pending is None else pending.cells(kernel_id)
        link = None if links is None else links.get(kernel_id)
        report = NOTHING if link is None else await link.cells(_ATTACH_SECONDS)
        owner_of = getattr(self.kernel_manager, "owner_of", None)
        is_own = owner_of is None or owner_of(kernel_id) == self.requester.name
        may_answer = access_of(self.requester, self.kernel_manager, kernel_id) >= Access.WRITE
        is_brief, lost = self.is_brief(), await self._not_received(pending, kernel_id)

        def written() -> str:
            whole = report.with_cells(reports(waiting))
            return whole.text(is_brief=is_brief, is_own=is_own, may_answer=may_answer, not_received=lost)

        self.answer_text(await asyncio.to_thread(written))  # off the loop: it may be large

    async def _not_received(self, pending: PendingKernels | None, kernel_id: str) -> list[str] | None:
        """Return the ids of lost requests among those that the page says it sent. Raises HTTPError."""
        session, sent = self.sent()
        if not sent or pending is None:
            return None if sent else []
        return await pending.not_received(kernel_id, self.requester, session, sent, _ATTACH_SECONDS)

    def sent(self) -> tuple[str, list[str]]:
        """Return the page's session and the ids of the requests that it asks about. Raises HTTPError."""
        session, sent = self.get_query_argument("session", ""), self.get_query_arguments("sent")
        if len(sent) > _MOST_SENT or any(len(name) > _LONGEST_ID for name in (session, *sent)):
            bound = f"Name at most {_MOST_SENT}, each of at most {_LONGEST_ID} characters."
            raise HTTPError(400, f"Requested {len(sent)} ids in 'sent'. {bound}")
        return session, sent

    def is_brief(self) -> bool:
        """Return whether the client wants the answer without messages. Raises HTTPError."""
        messages = self.get_query_argument("messages", "yes")
        if messages not in ("yes", "no"):
            raise HTTPError(400, f"Requested messages={messages!r}, which is not valid. Use yes or no")
        return messages == "no"


KERNEL = r"/aliquot/api/v1/kernels/(?P<kernel_id>[A-Za-z0-9][A-Za-z0-9_.-]*)"

KERNEL_HANDLERS: tuple[tuple[str, type[RequestHandler]], ...] = (
    (r"/aliquot/api/v1/kernels", KernelsHandler),
    (KERNEL, KernelHandler),
    (f"{KERNEL}/outputs", OutputsHandler),
    (f"{KERNEL}/postpone-culling", PostponeCullingHandler),
    (f"{KERNEL}/resize", ResizeHandler),
    (f"{KERNEL}/swap-out", SwapOutHandler),
    (f"{KERNEL}/restore", RestoreHandler),
    (f"{KERNEL}/prefetch", PrefetchHandler),
)
