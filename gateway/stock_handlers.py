"""Jupyter's own handlers where they would hide our errors: they turn every failure of a start into a bare 500.

Each does exactly what its parent does, and then lets the cause speak. They take the place of their parents' routes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aliquot.gateway.http_errors import http_error
from aliquot.provisioner.errors import AliquotError
from jupyter_client.kernelspec import NoSuchKernel
from jupyter_server.services.kernels import handlers as kernels
from jupyter_server.services.kernelspecs import handlers as kernelspecs
from jupyter_server.services.sessions import handlers as sessions
from tornado.web import HTTPError, RequestHandler, authenticated


async def with_cause(serve: Callable[..., Awaitable[None] | None], *args: Any) -> None:
    """Serve the request; an error of ours, or one that was wrapped as a defect, is answered as what it is."""
    try:
        if (answer := serve(*args)) is not None:
            await answer
    except (AliquotError, NoSuchKernel) as error:
        raise told(error) from error
    except HTTPError as error:
        cause = error.__cause__
        if isinstance(cause, (AliquotError, NoSuchKernel)):
            raise told(cause) from error
        if error.status_code == 500 and isinstance(cause, HTTPError):
            raise cause from None
        if error.log_message and error.args:
            # Filled in here: Jupyter would answer with the template, and so hide what a gateway said.
            raise HTTPError(error.status_code, error.log_message % error.args) from error
        raise


def told(error: BaseException) -> HTTPError:
    """The HTTPError whose message is this error's own."""
    if isinstance(error, AliquotError):
        return http_error(error)
    return HTTPError(404, str(error))


class KernelsHandler(kernels.MainKernelHandler):
    """GET and POST /api/kernels."""

    @authenticated
    async def post(self) -> None:
        await with_cause(super().post)


class KernelActionHandler(kernels.KernelActionHandler):
    """POST /api/kernels/{id}/restart and /interrupt."""

    @authenticated
    async def post(self, kernel_id: str, action: str) -> None:
        await with_cause(super().post, kernel_id, action)


class KernelSpecHandler(kernelspecs.KernelSpecHandler):
    """GET /api/kernelspecs/{name}."""

    @authenticated
    async def get(self, kernel_name: str) -> None:
        await with_cause(super().get, kernel_name)


class SessionsHandler(sessions.SessionRootHandler):
    """GET and POST /api/sessions."""

    @authenticated
    async def post(self) -> None:
        await with_cause(super().post)


def replacements() -> list[tuple[str, type[RequestHandler]]]:
    """Route and handler, the routes as Jupyter wrote them."""
    ours = (KernelsHandler, KernelActionHandler, KernelSpecHandler, SessionsHandler)
    routes = [*kernels.default_handlers, *kernelspecs.default_handlers, *sessions.default_handlers]
    return [(route, handler) for route, stock in routes for handler in ours if handler.__base__ is stock]
