"""REST under /aliquot/api: parse, ask, serialise. status.py decides what may be seen; api.yaml is the contract."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aliquot.gateway.auth import User, owns, user_of
from aliquot.gateway.folder_reports import folder_report, folder_reports
from aliquot.gateway.folders import Folders
from aliquot.gateway.http_errors import http_error
from aliquot.gateway.metrics import ServerMetrics
from aliquot.gateway.shared_folder import read_folder
from aliquot.gateway.size_names import STEP, describe_grammar
from aliquot.gateway.sizes import OfferedSize, SizedKernelSpecManager
from aliquot.gateway.status import Scene, kernel_reports, status_report
from aliquot.gateway.stock_handlers import read_body
from aliquot.provisioner.errors import AliquotError
from aliquot.provisioner.resources import GpuShare
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from prometheus_client import CONTENT_TYPE_LATEST
from tornado.web import HTTPError, RequestHandler, authenticated

SETTING = "aliquot_sources"


@dataclass(frozen=True)
class Sources:
    """What the handlers ask. Made by the extension, found in the application's settings."""

    scene: Callable[[], Scene]
    metrics: ServerMetrics
    largest: GpuShare
    folders: Folders
    # What the owner of a kernel asks who wants it to stay; None where nothing ends kernels by themselves.
    keep: Callable[[str], str | None] | None = None


class AliquotHandler(APIHandler):
    """What all of ours share. Watching is no activity: a panel left open does not keep an idle server alive."""

    auth_resource = "aliquot"
    _track_activity = False

    @property
    def sources(self) -> Sources:
        found: Sources = self.settings[SETTING]
        return found

    @property
    def asker(self) -> User:
        return user_of(self)

    def answer(self, report: dict[str, Any]) -> None:
        """Send JSON, never kept by a cache: it is another one for each user and each second."""
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps(report))


class StatusHandler(AliquotHandler):
    """The node, its devices, and the kernels that the asker may see."""

    @authenticated
    @authorized
    async def get(self) -> None:
        self.answer(status_report(self.sources.scene(), self.asker))


class KernelsHandler(AliquotHandler):
    """The kernels that the asker may see."""

    @authenticated
    @authorized
    async def get(self) -> None:
        self.answer({"kernels": kernel_reports(self.sources.scene(), self.asker)})


class KernelHandler(AliquotHandler):
    """One kernel. Somebody else's is not there."""

    @authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        for report in kernel_reports(self.sources.scene(), self.asker):
            if report["id"] == kernel_id:
                return self.answer(report)
        raise HTTPError(404, f"Kernel does not exist: {kernel_id}")


class KeepHandler(AliquotHandler):
    """A kernel that would be ended for want of use is to stay. Somebody else's is not there."""

    @authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        if kernel_id not in self.kernel_manager or not owns(self.asker, self.kernel_manager, kernel_id):
            raise HTTPError(404, f"Kernel does not exist: {kernel_id}")
        refusal = None if self.sources.keep is None else self.sources.keep(kernel_id)
        if refusal is not None:
            raise HTTPError(409, refusal)
        self.set_status(204)
        self.finish()


class SizesHandler(AliquotHandler):
    """The sizes that are listed, and the grammar of all others."""

    @authenticated
    @authorized
    async def get(self) -> None:
        manager = self.kernel_spec_manager
        offered = manager.offered_sizes() if isinstance(manager, SizedKernelSpecManager) else []
        self.answer(
            {
                "sizes": [_size(size) for size in offered],
                "grammar": describe_grammar(self.sources.largest),
                "largest_gpus": float(self.sources.largest),
                "step": float(STEP),
            }
        )


class FoldersHandler(AliquotHandler):
    """The folders that the asker's kernels get; for an administrator, all that are shared."""

    @authenticated
    @authorized
    async def get(self) -> None:
        self.answer({"folders": folder_reports(self.sources.folders, self.asker)})


class FolderHandler(AliquotHandler):
    """One shared folder, for administrators to add, change and take back."""

    @authenticated
    @authorized
    async def put(self, name: str) -> None:
        self._refuse_users()
        try:
            folder = read_folder(read_body(self.get_json_body), "the body", name)
            # Off the loop: a folder may lie on a network's disk.
            listed = await asyncio.to_thread(self.sources.folders.put, folder)
        except AliquotError as error:
            raise http_error(error) from error
        self.answer(folder_report(listed, self.asker))

    @authenticated
    @authorized
    async def delete(self, name: str) -> None:
        self._refuse_users()
        try:
            listed = await asyncio.to_thread(self.sources.folders.remove, name)
        except AliquotError as error:
            raise http_error(error) from error
        if listed is None:
            raise HTTPError(404, f"asked to stop sharing {name!r}; found no folder of that name")
        self.answer(folder_report(listed, self.asker))

    def _refuse_users(self) -> None:
        if not self.asker.is_admin:
            raise HTTPError(403, "Folders are shared, and taken back, by administrators")


class MetricsHandler(AliquotHandler):
    """Prometheus text. For administrators: it names every kernel and its owner."""

    @authenticated
    @authorized
    async def get(self) -> None:
        if not self.asker.is_admin:
            raise HTTPError(403, "The metrics name everybody's kernels: they are for administrators")
        self.finish(self.sources.metrics.text(), set_content_type=CONTENT_TYPE_LATEST)


HANDLERS: tuple[tuple[str, type[RequestHandler]], ...] = (
    (r"/aliquot/api/status", StatusHandler),
    (r"/aliquot/api/sizes", SizesHandler),
    (r"/aliquot/api/kernels", KernelsHandler),
    (r"/aliquot/api/kernels/(?P<kernel_id>[A-Za-z0-9][A-Za-z0-9_.-]*)", KernelHandler),
    (r"/aliquot/api/kernels/(?P<kernel_id>[A-Za-z0-9][A-Za-z0-9_.-]*)/keep", KeepHandler),
    (r"/aliquot/api/folders", FoldersHandler),
    (r"/aliquot/api/folders/(?P<name>[^/]+)", FolderHandler),
    (r"/aliquot/api/metrics", MetricsHandler),
)


def _size(size: OfferedSize) -> dict[str, Any]:
    limit = size.request.memory_limit
    return {
        "name": size.name,
        "base": size.base,
        "display_name": size.display_name,
        "gpus": float(size.request.gpus),
        "memory_limit_bytes": None if limit is None else int(limit),
        "workload_class": size.request.workload_class.value,
        "image": size.image.container.image if size.image else None,
        "description": size.image.description if size.image else "",
        "is_default": size.is_default,
    }
