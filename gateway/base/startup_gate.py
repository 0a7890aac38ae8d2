"""Delay of requests until the kernels of the gateway's last run are recovered.

A session whose kernel is unknown is deleted when it is looked up, so no request may look too early,
nor while the server stops and leaves its kernels: what waits then is closed with its connection.
The event for "recovered" is among the application's settings; without the extension there is none,
and nothing waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from jupyter_server import CallContext
from jupyter_server.serverapp import ServerApp
from tornado.web import RequestHandler

SETTING = "aliquot_recovered"

P = ParamSpec("P")
T = TypeVar("T")


def recovered_event(server: ServerApp) -> asyncio.Event:
    """Return an event that is cleared when the server starts its loop.

    Recovery sets it, however that ends. A request may be served before any hook of an extension
    runs. A server that runs in another program's loop has no such moment: its event stays set.
    """
    recovered, start_ioloop = asyncio.Event(), server.start_ioloop
    recovered.set()

    def start() -> None:
        recovered.clear()
        start_ioloop()

    server.start_ioloop = start  # type: ignore[method-assign]
    return recovered


async def until_recovered(handler: RequestHandler | None) -> None:
    """Return when this request may look at kernels and sessions; at once outside of any request."""
    recovered: asyncio.Event | None = None if handler is None else handler.settings.get(SETTING)
    if recovered is not None:
        await recovered.wait()


def after_recovery(serve: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorate a coroutine that looks at sessions: called in a request, it waits first.

    The identity provider makes requests wait before. This is for servers whose provider is not ours.
    """

    @wraps(serve)
    async def served(*args: P.args, **kwargs: P.kwargs) -> T:
        await until_recovered(CallContext.get(CallContext.JUPYTER_HANDLER))
        return await serve(*args, **kwargs)

    return served


class WaitsForRecovery(RequestHandler):
    """A handler that waits for recovery. It precedes Jupyter's class among the bases.

    Websockets wait as all other requests do.
    """

    async def prepare(self, **options: Any) -> None:
        """Called by tornado, before any method."""
        await until_recovered(self)
        waits = super().prepare(**options)
        if waits is not None:
            await waits
