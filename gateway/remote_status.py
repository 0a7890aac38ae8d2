"""REST under /aliquot/api on a server in gateway mode: what the gateway says of its user's kernels, passed on.

Only to whom this server's kernels are: its administrators. Paths of notebooks are this server's own to add.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlencode

from aliquot.gateway.event_handlers import RemoteEventsHandler
from aliquot.gateway.handler_base import AliquotHandler
from aliquot.gateway.handlers import SizesHandler, StatusHandler
from aliquot.gateway.history_handlers import HistoryHandler
from aliquot.gateway.kernel_handlers import (
    CellsHandler,
    HintHandler,
    KeepHandler,
    KernelHandler,
    KernelsHandler,
    ResizeHandler,
    SwapOutHandler,
    WakeHandler,
)
from aliquot.gateway.local_kernels import session_labels
from aliquot.gateway.stock_handlers import read_body, with_cause
from aliquot.gpu_hook.waiting import within
from jupyter_server.auth.decorator import authorized
from jupyter_server.gateway.gateway_client import GatewayClient, gateway_request
from jupyter_server.utils import url_path_join
from tornado.escape import json_decode, url_escape
from tornado.web import HTTPError, RequestHandler, authenticated

# Below the patience of a browser that asks us; the client alone would try for half a minute.
_ANSWER_SECONDS = 5.0
_Report = dict[str, Any]


async def ask_gateway(path: str, **request: Any) -> Any:
    """The gateway's answer. Raises HTTPError, 503 where there is none."""
    text = await ask_gateway_for_text(path, **request)
    try:
        return json_decode(text) if text else None
    except ValueError as error:
        raise HTTPError(503, f"asked the gateway for {path}; its answer cannot be read: {error!r}") from error


async def ask_gateway_for_text(path: str, **request: Any) -> str:
    """Its answer as it is. Raises likewise."""
    url = url_path_join(GatewayClient.instance().url or "", "aliquot/api", path)
    try:
        response = await within(gateway_request(url, **{"method": "GET", **request}), _ANSWER_SECONDS)
        return str(response.body or b"", "utf-8")
    except (asyncio.TimeoutError, OSError, ValueError) as error:
        raise HTTPError(503, f"asked the gateway at {url}; it gave no answer: {error!r}") from error
    except HTTPError as error:
        # Filled in here, for what the gateway said is no template of ours.
        message = (error.log_message or "") % error.args if error.args else error.log_message
        raise HTTPError(error.status_code, (message or "").replace("%", "%%")) from error


async def passed_on(handler: AliquotHandler, path: str) -> _Report | None:
    """The gateway's report; None where it has none to give, and for users who have no kernels by this server."""
    if not handler.asker.is_admin:
        return None
    try:
        report: _Report = await ask_gateway(path)
    except HTTPError as error:
        handler.log.info("gateway=no_report path=%s reason=%s", path, error)
        return None
    labels = session_labels(handler.session_manager)
    for kernel in report.get("kernels", [report]):
        kernel["label"] = labels.get(kernel["id"], kernel["label"])
    return report


class RemoteStatusHandler(StatusHandler):
    """The gateway's node; while the gateway is away, that kernels are there."""

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
        report = await passed_on(self, f"kernels/{url_escape(kernel_id)}")
        if report is None:
            return await with_cause(super().get, kernel_id)
        self.answer(report)

    @authenticated
    @authorized
    async def patch(self, kernel_id: str) -> None:
        if not self.asker.is_admin:
            return await with_cause(super().patch, kernel_id)
        body = json.dumps(read_body(self.get_json_body))
        report = await ask_gateway(f"kernels/{url_escape(kernel_id)}", method="PATCH", body=body)
        self.set_status(202 if report["resize"] else 200)
        self.answer(report)


class RemoteKeepHandler(KeepHandler):
    """One of them is to stay."""

    @authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        if not self.asker.is_admin:
            return await with_cause(super().post, kernel_id)
        await ask_gateway(f"kernels/{url_escape(kernel_id)}/keep", method="POST", body="{}")
        self.set_status(204)
        self.finish()


class RemoteCellsHandler(CellsHandler):
    """What the cells of one of them showed."""

    @authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        if not self.asker.is_admin:
            return await with_cause(super().get, kernel_id)
        self.answer_text(await ask_gateway_for_text(f"kernels/{url_escape(kernel_id)}/cells"))


class RemoteResizeHandler(ResizeHandler):
    """The size that one of them waits for."""

    @authenticated
    @authorized
    async def delete(self, kernel_id: str) -> None:
        if not self.asker.is_admin:
            return await with_cause(super().delete, kernel_id)
        await ask_gateway(f"kernels/{url_escape(kernel_id)}/resize", method="DELETE")
        self.set_status(204)
        self.finish()


class RemoteSwapOutHandler(SwapOutHandler):
    """The memory of one of them is to leave its devices."""

    @authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        if not self.asker.is_admin:
            return await with_cause(super().post, kernel_id)
        self.set_status(202)
        self.answer(await ask_gateway(f"kernels/{url_escape(kernel_id)}/swap-out", method="POST", body="{}"))


class RemoteWakeHandler(WakeHandler):
    """It is to come back."""

    @authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        if not self.asker.is_admin:
            return await with_cause(super().post, kernel_id)
        self.set_status(202)
        self.answer(await ask_gateway(f"kernels/{url_escape(kernel_id)}/wake", method="POST", body="{}"))


class RemoteHintHandler(HintHandler):
    """One of them will be used soon."""

    @authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        if not self.asker.is_admin:
            return await with_cause(super().post, kernel_id)
        await ask_gateway(f"kernels/{url_escape(kernel_id)}/hint", method="POST", body="{}")
        self.set_status(204)
        self.finish()


class RemoteSizesHandler(SizesHandler):
    """The sizes that the gateway offers."""

    @authenticated
    @authorized
    async def get(self) -> None:
        report = None
        if self.asker.is_admin:
            try:
                report = await ask_gateway("sizes")
            except HTTPError as error:
                self.log.info("gateway=no_report path=sizes reason=%s", error)
        if report is None:
            return await with_cause(super().get)
        self.answer(report)


class RemoteHistoryHandler(HistoryHandler):
    """What the gateway kept; labels of kernels are its own."""

    @authenticated
    @authorized
    async def get(self) -> None:
        if not self.asker.is_admin:
            return await with_cause(super().get)
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
        RemoteCellsHandler,
        RemoteResizeHandler,
        RemoteSwapOutHandler,
        RemoteWakeHandler,
        RemoteHintHandler,
        RemoteSizesHandler,
        RemoteEventsHandler,
        RemoteHistoryHandler,
    )
    stands_for: dict[type, type[RequestHandler]] = {handler.__bases__[0]: handler for handler in ours}
    return [(route, stands_for.get(handler, handler)) for route, handler in routes]
