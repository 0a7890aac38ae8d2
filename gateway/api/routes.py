"""REST under /aliquot/api/v1: parse, ask, serialise. openapi.yaml is the contract.

status/report.py decides what a user may see.
"""

from __future__ import annotations

from typing import Any, cast

from jupyter_client.kernelspec import NoSuchKernel
from jupyter_server.auth.decorator import authorized
from prometheus_client import CONTENT_TYPE_LATEST
from tornado.web import HTTPError, RequestHandler, authenticated

from jupyter_aliquot.gateway.base.http_errors import http_error
from jupyter_aliquot.gateway.containers.host_choice import CHOSEN, options_report, wanted_part
from jupyter_aliquot.gateway.containers.images import image_of
from jupyter_aliquot.gateway.kernels.manager import AliquotKernelManager
from jupyter_aliquot.gateway.kernelspecs.manager import SizedKernelSpecManager
from jupyter_aliquot.gateway.reports.status import Sizes
from jupyter_aliquot.gateway.sizes.grammar import PATTERN, STEP, describe_grammar, parse_size_name
from jupyter_aliquot.gateway.status.report import status_parts, status_text
from jupyter_aliquot.provisioner.errors import AliquotError, RequestError

from .administration import ADMINISTRATION_HANDLERS
from .agents import AgentsHandler
from .base import SETTING, AliquotHandler, Sources
from .contract import ContractHandler
from .dry_run import DryRunHandler, DryRunsHandler
from .events import EventsHandler
from .history import HistoryHandler
from .kernels import KERNEL_HANDLERS
from .nodes import NODE_HANDLERS
from .quota import QUOTA_HANDLERS
from .sharing.folders import FOLDER_HANDLERS
from .sharing.invitations import INVITATION_HANDLERS
from .sharing.kernel_shares import SHARE_HANDLERS
from .usage import UsageHandler

__all__ = ["HANDLERS", "SETTING", "AliquotHandler", "Sources"]


class StatusHandler(AliquotHandler):
    """Answer the node, its devices, and the kernels that the user may see."""

    @authenticated
    @authorized
    async def get(self) -> None:
        who = self.requester
        if who.is_admin:  # a thousand kernels, perhaps: the loop serves others meanwhile
            await self.answer_parts(await status_parts(await self.sources.gather(who), who))
        else:
            self.answer_text(status_text(self.sources.snapshot(who), who))


class SizesHandler(AliquotHandler):
    """Answer the sizes that this server lists, and the grammar of all others."""

    @authenticated
    @authorized
    async def get(self) -> None:
        manager = self.kernel_spec_manager
        accounting = self.sources.accounting
        offered, may_use_normal, largest = [], True, self.sources.largest_here()
        if isinstance(manager, SizedKernelSpecManager):
            await manager.refresh()
            offered = manager.offered_sizes()
            may_use_normal = manager.settings.class_policy().may_have_normal_priority(self.requester)
        report: Sizes = {
            "may_use_normal_priority": may_use_normal,
            "budgets": [] if accounting is None else accounting.budgets_of(self.requester),
            "sizes": [size.report() for size in offered],
            "grammar": describe_grammar(largest),
            "largest_gpus": float(largest),
            "step": float(STEP),
            "pattern": PATTERN,
            "device_memory_bytes": self._smallest_device(),
            "default_size": None,
        }
        self.answer(report)

    def _smallest_device(self) -> int | None:
        # Of the node alone: no need to gather all kernels.
        status = self.sources.snapshot(self.requester).node.status
        sizes = [device.memory_bytes for device in status.devices if not device.lost] if status else []
        return min(sizes, default=None)


class SessionOptionsHandler(AliquotHandler):
    """Answer the CPUs, memory and folders that a kernel of a size may have, and a choice's name.

    A kernelspec's name carries the choice, as it carries the size: every client can request it.
    """

    @authenticated
    @authorized
    async def get(self) -> None:
        asked = {name: self.get_query_argument(name) for name in CHOSEN if self.get_query_arguments(name)}
        name, manager = self.get_query_argument("kernelspec"), cast(AliquotKernelManager, self.kernel_manager)
        try:
            spec, sized = self.kernel_spec_manager.get_kernel_spec(name), parse_size_name(name)
            if sized is None:
                raise RequestError(f"Requested the options of {name!r}, which names no size. Choose one of its sizes")
            offer = manager.starts.host_offer(name, sized.request.gpus, self.requester)
            wanted = wanted_part(sized.host, asked)
            report = options_report(sized, wanted, offer, spec.display_name, image_of(spec.metadata))
        except NoSuchKernel as error:
            raise HTTPError(404, str(error)) from error
        except AliquotError as error:
            raise http_error(error) from error
        self.answer(report)


class MetricsHandler(AliquotHandler):
    """Answer the metrics as Prometheus text.

    For administrators: the metrics name every kernel and its owner.
    """

    @authenticated
    @authorized
    async def get(self) -> None:
        if not self.requester.is_admin:
            raise HTTPError(403, "The metrics name the kernels of all users, so only administrators may read them")
        self.finish(self.sources.metrics.text(), set_content_type=CONTENT_TYPE_LATEST)


class NothingHandler(AliquotHandler):
    """Answer any other path under our prefix with a 404 in JSON: Jupyter would answer with a page."""

    async def prepare(self, **how: Any) -> None:
        """Called by tornado, before any method."""
        await super().prepare(**how)
        if not self.current_user:
            raise HTTPError(403)
        raise HTTPError(
            404,
            f"Requested {self.request.path}, but this API has no such path. See "
            "docs/reference/rest-api.md for all paths",
        )


HANDLERS: tuple[tuple[str, type[RequestHandler]], ...] = (
    (r"/aliquot/api/v1/status", StatusHandler),
    (r"/aliquot/api/v1/sizes", SizesHandler),
    (r"/aliquot/api/v1/session-options", SessionOptionsHandler),
    (r"/aliquot/api/v1/dry-run", DryRunHandler),
    (r"/aliquot/api/v1/dry-runs", DryRunsHandler),
    *KERNEL_HANDLERS,
    *SHARE_HANDLERS,
    (r"/aliquot/api/v1/events", EventsHandler),
    *NODE_HANDLERS,
    (r"/aliquot/api/v1/agents", AgentsHandler),
    (r"/aliquot/api/v1/history", HistoryHandler),
    (r"/aliquot/api/v1/usage", UsageHandler),
    *FOLDER_HANDLERS,
    *INVITATION_HANDLERS,
    *QUOTA_HANDLERS,
    *ADMINISTRATION_HANDLERS,
    (r"/aliquot/api/v1/metrics", MetricsHandler),
    (r"/aliquot/api/v1/openapi.json", ContractHandler),
    # The last one: it takes each path that no other handler takes.
    (r"/aliquot/api(?:/.*)?", NothingHandler),
)
