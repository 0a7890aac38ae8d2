"""REST under /aliquot/api/v1 on a server in gateway mode, answered by the gateway for each path.

The gateway takes this server for its user, so only this server's administrators are passed on. This
server adds what the gateway lacks: paths of notebooks, and the size in this server's variables.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote_plus

from jupyter_server.auth.decorator import authorized
from tornado.httpclient import HTTPResponse
from tornado.web import HTTPError, RequestHandler, authenticated

from jupyter_aliquot.gateway.api.base import AliquotHandler
from jupyter_aliquot.gateway.api.events import EventsHandler
from jupyter_aliquot.gateway.api.jupyter import with_cause
from jupyter_aliquot.gateway.api.kernels import KernelHandler, KernelsHandler
from jupyter_aliquot.gateway.api.quota import QueueHandler
from jupyter_aliquot.gateway.api.routes import SizesHandler, StatusHandler
from jupyter_aliquot.gateway.kernels.sessions import SessionLabels
from jupyter_aliquot.gateway.sizes.environment import default_size
from jupyter_aliquot.provisioner.resources import GpuShare

from .client import read_json, send_to_gateway
from .events import RemoteEventsHandler

_Report = dict[str, Any]

# A token here is this server's, with which code runs on it; the gateway gets its own by a header.
_OWN_QUERY = frozenset({"token", "_xsrf", "no_track_activity"})
_REQUEST_HEADERS = ("Accept", "Content-Type")
_ANSWER_HEADERS = ("Content-Disposition", "Cache-Control", "Retry-After", "Deprecation", "Sunset")
# The types of the API's answers. A page, as from a proxy before the gateway, is no answer of it.
_ANSWER_TYPES = ("application/json", "text/csv", "text/plain")
_HAS_BODY = ("POST", "PUT", "PATCH")


class ProxyHandler(AliquotHandler):
    """Pass a request on to the gateway unchanged: method, path, query and body.

    Its answer comes back unchanged, too.
    """

    async def _pass_on(self, *_: str, **__: str) -> None:
        check_owner(self)
        answer = await self.ask_gateway()
        self.set_status(answer.code)
        for name in _ANSWER_HEADERS:
            if (value := answer.headers.get(name)) is not None:
                self.set_header(name, value)
        self.finish(answer.body or None, set_content_type=answer.headers.get("Content-Type", "application/json"))

    get = post = put = patch = delete = authenticated(authorized(_pass_on))

    async def ask_gateway(self) -> HTTPResponse:
        """Return the gateway's answer to this request.

        Raises:
            HTTPError: The gateway's own refusal; 404 if it has no Aliquot; 503 if nothing readable
                comes. An empty answer in their place would say that the kernels have ended.
        """
        request = self.request
        headers = {name: request.headers[name] for name in _REQUEST_HEADERS if name in request.headers}
        answer = await send_to_gateway(
            self._path(),
            method=request.method,
            headers={"Content-Type": "application/json"} | headers,
            body=request.body if request.method in _HAS_BODY else None,
        )
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip()
        if answer.body and kind not in _ANSWER_TYPES:
            raise self.unreadable(f"it is {kind!r}")
        return answer

    async def gateway_report(self) -> _Report:
        """Return the gateway's answer to this request as JSON.

        Raises HTTPError as `ask_gateway` does.
        """
        report = read_json(await self.ask_gateway(), self.request.path)
        if not isinstance(report, dict):
            raise self.unreadable(f"it is a {type(report).__name__}")
        return report

    def unreadable(self, reason: str) -> HTTPError:
        """Return the error for an answer that is none of the API's, as of a program in the gateway's place."""
        return HTTPError(
            503,
            f"Requested {self.request.path} of the gateway, but its answer cannot be read: {reason}. "
            "See the gateway's log, or a proxy's before it",
        )

    def _path(self) -> str:
        """Return path and query below the base URL, without this server's own secrets.

        Raises HTTPError 404 for a path that a proxy could read as another API's.
        """
        path = self.request.path.removeprefix(self.base_url)
        if {".", ".."} & set(path.lower().replace("%2e", ".").replace("%2f", "/").split("/")):
            raise HTTPError(404, f"Requested {self.request.path}, but this API has no such path. Write it without dots")
        parts = self.request.query.split("&")
        query = "&".join(part for part in parts if unquote_plus(part.partition("=")[0]) not in _OWN_QUERY)
        return f"{path}?{query}" if query else path


def check_owner(handler: AliquotHandler) -> None:
    """Check that the request is of this server's owner. Raises HTTPError 403.

    The gateway takes every request of this server for its owner's.
    """
    if not handler.requester.is_admin:
        raise HTTPError(
            403,
            f"Requested by {handler.requester.name or 'an unnamed user'}, but this server's kernels are "
            "on a gateway, which takes each request from this server as one of its owner's. "
            "Use the gateway itself, with a token of your own",
        )


def relabel(kernels: list[_Report], labels: Mapping[str, str], id_field: str = "id") -> None:
    """Label the user's own kernels with this server's notebooks.

    A kernel that another user shares keeps its owner's label.
    """
    for kernel in kernels:
        if kernel.get("access", "own") == "own":
            kernel["label"] = labels.get(kernel[id_field], kernel["label"])


async def _answer_labelled(handler: ProxyHandler, told_others: Callable[[], Awaitable[None] | None]) -> None:
    """Answer the gateway's report, with kernels labeled by this server's notebooks.

    Other users than this server's owner get this server's own answer: through it, they have no
    kernels on the gateway.
    """
    if not handler.requester.is_admin:
        return await with_cause(told_others)
    report = await handler.gateway_report()
    labels = SessionLabels(handler.session_manager).labels()
    try:
        relabel(report.get("kernels", [report]), labels)
    except (AttributeError, KeyError, TypeError) as error:
        raise handler.unreadable(f"its kernels are {type(report.get('kernels')).__name__}") from error
    handler.answer(report)


class RemoteStatusHandler(ProxyHandler, StatusHandler):
    """Answer the status of the gateway's node."""

    @authenticated
    @authorized
    async def get(self) -> None:
        await _answer_labelled(self, partial(StatusHandler.get, self))


class RemoteKernelsHandler(ProxyHandler, KernelsHandler):
    """Answer the kernels that the gateway has for this server's user."""

    @authenticated
    @authorized
    async def get(self) -> None:
        await _answer_labelled(self, partial(KernelsHandler.get, self))


class RemoteKernelHandler(ProxyHandler, KernelHandler):
    """Answer one of the gateway's kernels."""

    @authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        await _answer_labelled(self, partial(KernelHandler.get, self, kernel_id))


class RemoteQueueHandler(ProxyHandler):
    """Answer the gateway's queue."""

    @authenticated
    @authorized
    async def get(self) -> None:
        check_owner(self)
        report = await self.gateway_report()
        labels = SessionLabels(self.session_manager).labels()
        try:
            relabel(report.get("requests", []), labels, "kernel_id")
        except (AttributeError, KeyError, TypeError) as error:
            raise self.unreadable(f"its requests are {type(report.get('requests')).__name__}") from error
        self.answer(report)


class RemoteSizesHandler(ProxyHandler):
    """Answer the gateway's sizes, and the size that this server's variables set as default."""

    @authenticated
    @authorized
    async def get(self) -> None:
        check_owner(self)
        report = await self.gateway_report()
        try:
            largest = GpuShare.parse(str(report["largest_gpus"]))
        except (KeyError, ValueError) as error:
            raise self.unreadable(f"its largest size is {report.get('largest_gpus')!r}") from error
        report["default_size"] = default_size(os.environ, largest)
        self.answer(report)


_OVERRIDES: dict[type[RequestHandler], type[RequestHandler]] = {
    StatusHandler: RemoteStatusHandler,
    KernelsHandler: RemoteKernelsHandler,
    KernelHandler: RemoteKernelHandler,
    QueueHandler: RemoteQueueHandler,
    SizesHandler: RemoteSizesHandler,
    EventsHandler: RemoteEventsHandler,
}


def remote_handlers(routes: tuple[tuple[str, type[RequestHandler]], ...]) -> list[tuple[str, type[RequestHandler]]]:
    """Return the same routes for gateway mode: no handler of this server's own answers any of them."""
    return [(route, _OVERRIDES.get(handler, ProxyHandler)) for route, handler in routes]
