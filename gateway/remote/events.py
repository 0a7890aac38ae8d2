"""Pass the gateway's stream of events on, at /aliquot/api/v1/events of a server in gateway mode."""

# mypy: disable-error-code="no-untyped-call, misc, override"
# Jupyter Server's handlers carry no types, and tornado's get is not as its base class says.
from __future__ import annotations

import json
from typing import Any

from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.gateway.gateway_client import GatewayClient
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError

from jupyter_aliquot.gateway.api.events import TRY_AGAIN, EventsHandler
from jupyter_aliquot.gateway.auth.identity import user_of

from .client import open_events

# From RFC 6455's registry: the server refuses this user.
_REFUSED = 1008


class RemoteEventsHandler(EventsHandler):
    """Pass the gateway's stream on to the administrators of a server in gateway mode.

    Other users get no events. If the gateway is away or has no stream, the handshake fails; if it
    is lost later, the stream closes.
    """

    _upstream: WebSocketClientConnection | None = None
    _why = (TRY_AGAIN, "the gateway closed the stream")

    @ws_authenticated
    @authorized
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Open both streams, the gateway's first."""
        self._upstream = await open_events() if user_of(self).is_admin else None
        if self._is_over:  # the page left meanwhile, and tornado will not call on_close again
            self._leave()
            return
        try:
            await super().get(*args, **kwargs)
        finally:
            self._leave()

    def on_close(self) -> None:
        """Called by tornado, possibly while the gateway's stream is being opened."""
        super().on_close()
        self._leave()

    async def _send(self) -> None:
        if self._upstream is None:
            return
        try:
            while (message := await self._upstream.read_message()) is not None:
                if (event := _readable(message)) is None:
                    self.log.warning("events=unreadable gateway=%s", GatewayClient.instance().url)
                    break
                await self.write_message(event)
        except WebSocketClosedError:
            pass
        finally:
            self._leave()
        self.close(*self._why)

    def _leave(self) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            if upstream.close_code == _REFUSED and upstream.close_reason:
                self._why = (_REFUSED, upstream.close_reason)
            upstream.close()


def _readable(message: str | bytes) -> str | None:
    """Return a message that is an event as it came; None for anything else.

    A browser must not get anything else.
    """
    try:
        text = message if isinstance(message, str) else str(message, "utf-8")
        return text if _is_event(json.loads(text)) else None
    except (ValueError, RecursionError):
        return None


def _is_event(event: Any) -> bool:
    return (
        isinstance(event, dict) and isinstance(event.get("schema_id"), str) and isinstance(event.get("kernel_id"), str)
    )
