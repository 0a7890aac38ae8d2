"""REST under /aliquot/api/v1 on a server in gateway mode: what the gateway says of its user's kernels, passed on.

Only to whom this server's kernels are: its administrators. Paths of notebooks are this server's own to add.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from jupyter_server.auth.decorator import authorized
from tornado.escape import url_escape
from tornado.web import HTTPError, RequestHandler, authenticated

from jupyter_aliquot.gateway.api.base import AliquotHandler
from jupyter_aliquot.gateway.api.dry_run import OutlookHandler, OutlooksHandler
from jupyter_aliquot.gateway.api.history import HistoryHandler
from jupyter_aliquot.gateway.api.jupyter import read_body, with_cause
from jupyter_aliquot.gateway.api.kernels import (
    CellsHandler,
    HintHandler,
    KeepHandler,
    KernelHandler,
    KernelsHandler,
    ResizeHandler,
    SwapOutHandler,
    WakeHandler,
)
from jupyter_aliquot.gateway.api.routes import SizesHandler, StatusHandler
from jupyter_aliquot.gateway.api.shares import ShareHandler, SharesHandler
from jupyter_aliquot.gateway.kernels.session_labels import SessionLabels
from jupyter_aliquot.gateway.sizes.environment import default_size
from jupyter_aliquot.provisioner.resources import GpuShare

from .client import ask_gateway, ask_gateway_for_text
from .events import RemoteEventsHandler

_Report = dict[str, Any]


def check_owner(handler: AliquotHandler) -> None:
    """The gateway takes this server for its user, whom nobody else may speak for. Raises HTTPError 403."""
    if not handler.asker.is_admin:
        raise HTTPError(
            403,
            f"asked by {handler.asker.name or 'nobody'}; the kernels of this server are on a gateway, which takes all "
            "that comes from here for this server's owner. Ask the gateway itself, with a token of your own",
        )


async def passed_on(handler: AliquotHandler, path: str) -> _Report | None:
    """The gateway's report; None for users who have no kernels by this server.

    Raises HTTPError: 404 for a kernel that is not there, and where the gateway is no Aliquot; 503 while it is away, for
    nobody knows then what became of kernels, and an empty list would say that they are no more.
    """
    if not handler.asker.is_admin:
        return None
    report: _Report = await ask_gateway(path)
    relabel(report.get("kernels", [report]), SessionLabels(handler.session_manager).labels())
    return report


def relabel(kernels: list[_Report], labels: Mapping[str, str]) -> None:
    """Own kernels are called by this server's notebooks; one that somebody shares is called as its owner calls it."""
    for kernel in kernels:
        if kernel.get("access", "own") == "own":
            kernel["label"] = labels.get(kernel["id"], kernel["label"])


class RemoteStatusHandler(StatusHandler):
    """The gateway's node."""

    @authenticated
    @authorized
    async def get(self) -> None:
        report = await passed_on(self, "status")
        if report is None:
            return await with_cause(super().get)
        self.answer(report)


class RemoteKernelsHandler(KernelsHandler):
    """The kernels that the gateway has for this server's user."""

    @authenticated
    @authorized
    async def get(self) -> None:
        report = await passed_on(self, "kernels")
        if report is None:
            return await with_cause(super().get)
        self.answer(report)


class RemoteKernelHandler(KernelHandler):
    """One of them."""

    @authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        report = await passed_on(self, _kernel(kernel_id))
        if report is None:
            return await with_cause(super().get, kernel_id)
        self.answer(report)

    @authenticated
    @authorized
    async def patch(self, kernel_id: str) -> None:
        check_owner(self)
        body = json.dumps(read_body(self.get_json_body))
        report = await ask_gateway(_kernel(kernel_id), method="PATCH", body=body)
        self.set_status(202 if report["resize"] else 200)
        self.answer(report)


class RemoteKeepHandler(KeepHandler):
    """One of them is to stay."""

    @authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        await _post(self, kernel_id, "keep")


class RemoteSharesHandler(SharesHandler):
    """With whom one of them is shared."""

    @authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        check_owner(self)
        self.answer(await ask_gateway(f"{_kernel(kernel_id)}/shares"))


class RemoteShareHandler(ShareHandler):
    """One user or team of the gateway's."""

    @authenticated
    @authorized
    async def put(self, kernel_id: str, kind: str, name: str) -> None:
        check_owner(self)
        body = json.dumps(read_body(self.get_json_body))
        self.answer(await ask_gateway(_share(kernel_id, kind, name), method="PUT", body=body))

    @authenticated
    @authorized
    async def delete(self, kernel_id: str, kind: str, name: str) -> None:
        check_owner(self)
        self.answer(await ask_gateway(_share(kernel_id, kind, name), method="DELETE"))


class RemoteCellsHandler(CellsHandler):
    """What the cells of one of them showed."""

    @authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        check_owner(self)
        query = "?messages=no" if self.is_brief() else ""
        self.answer_text(await ask_gateway_for_text(f"{_kernel(kernel_id)}/cells{query}"))


class RemoteResizeHandler(ResizeHandler):
    """The size that one of them waits for."""

    @authenticated
    @authorized
    async def delete(self, kernel_id: str) -> None:
        check_owner(self)
        await ask_gateway(f"{_kernel(kernel_id)}/resize", method="DELETE")
        self.set_status(204)
        self.finish()


class RemoteSwapOutHandler(SwapOutHandler):
    """The memory of one of them is to leave its devices."""

    @authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        await _post(self, kernel_id, "swap-out")


class RemoteWakeHandler(WakeHandler):
    """It is to come back."""

    @authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        await _post(self, kernel_id, "wake")


class RemoteHintHandler(HintHandler):
    """One of them will be used soon."""

    @authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        await _post(self, kernel_id, "hint")


class RemoteSizesHandler(SizesHandler):
    """The sizes that the gateway offers, and the one that this server's variables ask for where a name has none."""

    @authenticated
    @authorized
    async def get(self) -> None:
        check_owner(self)
        report: _Report = await ask_gateway("sizes")
        report["default_size"] = default_size(os.environ, GpuShare.parse(str(report["largest_gpus"])))
        self.answer(report)


class RemoteOutlookHandler(OutlookHandler):
    """What the gateway would do."""

    @authenticated
    @authorized
    async def get(self) -> None:
        check_owner(self)
        query = urlencode(self.asked())
        self.answer(await ask_gateway(f"outlook?{query}"))


class RemoteOutlooksHandler(OutlooksHandler):
    """The gateway's dry runs of several sizes."""

    @authenticated
    @authorized
    async def get(self) -> None:
        check_owner(self)
        asked, sizes = self.asked_of_sizes()
        query = urlencode([*asked.items(), *(("size", size) for size in sizes)])
        self.answer(await ask_gateway(f"outlooks?{query}"))


class RemoteHistoryHandler(HistoryHandler):
    """What the gateway kept; labels of kernels are its own."""

    @authenticated
    @authorized
    async def get(self) -> None:
        check_owner(self)
        question, is_csv = self.question(), self.wants_csv()
        wish = [("kernel", name) for name in question.kernels] + [("device", name) for name in question.devices]
        query = urlencode([("range", question.range.name), ("format", "csv" if is_csv else "json"), *wish])
        self.send(await ask_gateway_for_text(f"history?{query}"), is_csv, question.range.name)


def remote_handlers(routes: tuple[tuple[str, type[RequestHandler]], ...]) -> list[tuple[str, type[RequestHandler]]]:
    """The same routes, with ours where the gateway is asked."""
    ours = (
        RemoteStatusHandler,
        RemoteKernelsHandler,
        RemoteKernelHandler,
        RemoteKeepHandler,
        RemoteSharesHandler,
        RemoteShareHandler,
        RemoteCellsHandler,
        RemoteResizeHandler,
        RemoteSwapOutHandler,
        RemoteWakeHandler,
        RemoteHintHandler,
        RemoteSizesHandler,
        RemoteOutlookHandler,
        RemoteOutlooksHandler,
        RemoteEventsHandler,
        RemoteHistoryHandler,
    )
    stands_for: dict[type, type[RequestHandler]] = {handler.__bases__[0]: handler for handler in ours}
    return [(route, stands_for.get(handler, handler)) for route, handler in routes]


def _kernel(kernel_id: str) -> str:
    return f"kernels/{url_escape(kernel_id)}"


def _share(kernel_id: str, kind: str, name: str) -> str:
    return f"{_kernel(kernel_id)}/shares/{kind}/{quote(name, safe='')}"


async def _post(handler: AliquotHandler, kernel_id: str, verb: str) -> None:
    """An order to one kernel: the gateway's answer, or none where it has none to give."""
    check_owner(handler)
    report = await ask_gateway(f"{_kernel(kernel_id)}/{verb}", method="POST", body="{}")
    if report is None:
        handler.set_status(204)
        handler.finish()
        return
    handler.set_status(202)
    handler.answer(report)
