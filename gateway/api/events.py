"""The WebSocket /aliquot/api/v1/events: events of the user's kernels as JSON, one per message."""

# mypy: disable-error-code="no-untyped-call, misc, override"
# Jupyter Server's handlers carry no types, and tornado's get is not as its base class says.
from __future__ import annotations

import asyncio
from typing import Any

from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from jupyter_aliquot.gateway.auth.identity import user_of
from jupyter_aliquot.gateway.base.startup_gate import WaitsForRecovery
from jupyter_aliquot.gateway.channels.browser_socket import begin_pings, end_pings, without_tornado_pings
from jupyter_aliquot.gateway.reports import to_json

from .base import SETTING, Sources

# From RFC 6455's registry: the server closes, and the client may connect again.
TRY_AGAIN = 1013


class EventsHandler(WaitsForRecovery, WebSocketMixin, WebSocketHandler, JupyterHandler):
    """One stream of events. A client that watches is no activity."""

    auth_resource = "aliquot"
    _track_activity = False
    _sender: asyncio.Task[None] | None = None
    _is_over = False

    @ws_authenticated
    @authorized
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Called by tornado for the handshake."""
        await super().get(*args, **kwargs)

    def open(self, *args: Any, **kwargs: Any) -> None:
        """Called by tornado after the handshake, even if the client has disconnected already."""
        if self._is_over:
            return
        super().open(*args, **kwargs)
        begin_pings(self)
        self._sender = asyncio.create_task(self._send(), name="aliquot-events")

    def get_websocket_protocol(self) -> Any:
        """Called by tornado."""
        return without_tornado_pings(super().get_websocket_protocol())

    def on_message(self, message: str | bytes) -> None:
        """Called by tornado. The stream ignores what a client sends."""

    def on_close(self) -> None:
        """Called by tornado, possibly while authentication is under way."""
        self._is_over = True
        super().on_close()
        end_pings(self)
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.cancel()

    async def _send(self) -> None:
        """Send the events to the client until the stream is over."""
        sources: Sources = self.settings[SETTING]
        if sources.events is None:
            self.close(TRY_AGAIN, "this server tells no events")
            return
        listener = sources.events.listen(user_of(self))
        try:
            while (event := await listener.events.get()) is not None:
                await self.write_message(to_json(event))
            self.close(TRY_AGAIN, "read the status, and open it again")
        except WebSocketClosedError:
            return
        finally:
            sources.events.forget(listener)
