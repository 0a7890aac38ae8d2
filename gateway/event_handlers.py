"""The websocket /aliquot/api/events: events of the asker's kernels, as JSON, one a message."""

# mypy: disable-error-code="no-untyped-call, misc, override"
# Jupyter Server's handlers carry no types, and tornado's get is not as its base class says.
from __future__ import annotations

import asyncio
import json
from typing import Any

from aliquot.gateway.auth import user_of
from aliquot.gateway.handler_base import SETTING, Sources
from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.utils import url_path_join
from tornado.httpclient import HTTPRequest
from tornado.web import HTTPError
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, WebSocketHandler, websocket_connect

_TRY_AGAIN = 1013  # the code of RFC 6455's registry for a server that closes and may be asked anew


class EventsHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """One stream. Watching is no activity."""

    auth_resource = "aliquot"
    _track_activity = False

    @ws_authenticated
    @authorized
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Open it."""
        self._sender: asyncio.Task[None] | None = None
        await super().get(*args, **kwargs)

    def open(self, *args: Any, **kwargs: Any) -> None:
        """Called by tornado when the handshake is done."""
        super().open(*args, **kwargs)
        self._sender = asyncio.create_task(self._send(), name="aliquot-events")

    def on_message(self, message: str | bytes) -> None:
        """Called by tornado. Nobody is asked anything here."""

    def on_close(self) -> None:
        """Called by tornado."""
        super().on_close()
        if self._sender is not None:
            self._sender.cancel()

    async def _send(self) -> None:
        """What is told, until the stream is over."""
        sources: Sources = self.settings[SETTING]
        if sources.events is None:
            self.close(_TRY_AGAIN, "this server tells no events")
            return
        listener = sources.events.listen(user_of(self))
        try:
            while (event := await listener.events.get()) is not None:
                await self.write_message(json.dumps(event))
            self.close(_TRY_AGAIN, "read the status, and open it again")
        except WebSocketClosedError:
            return
        finally:
            sources.events.forget(listener)


class RemoteEventsHandler(EventsHandler):
    """On a server in gateway mode: the gateway's stream, passed on to its administrators."""

    async def _send(self) -> None:
        if not user_of(self).is_admin:
            return
        client = GatewayClient.instance()
        url = url_path_join(client.ws_url or "", "aliquot/api/events")
        upstream: WebSocketClientConnection | None = None
        try:
            upstream = await websocket_connect(HTTPRequest(url, **client.load_connection_args()))
            while (message := await upstream.read_message()) is not None:
                await self.write_message(message)
        except (OSError, HTTPError, WebSocketClosedError) as error:
            self.log.info("events=lost gateway=%s reason=%s", url, error)
        finally:
            if upstream is not None:
                upstream.close()
        self.close(_TRY_AGAIN, "the gateway closed the stream")
