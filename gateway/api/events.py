"""The websocket /aliquot/api/events: events of the asker's kernels, as JSON, one a message."""

# mypy: disable-error-code="no-untyped-call, misc, override"
# Jupyter Server's handlers carry no types, and tornado's get is not as its base class says.
from __future__ import annotations

import asyncio
import json
from typing import Any

from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from jupyter_server.gateway.gateway_client import GatewayClient
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, WebSocketHandler

from jupyter_aliquot.gateway.auth.identity import user_of
from jupyter_aliquot.gateway.channels.keepalive import begin_pings, end_pings, only_jupyters
from jupyter_aliquot.gateway.remote.client import open_events

from .base import SETTING, Sources

# Codes of RFC 6455's registry: a server that closes and may be asked anew, and one that will not have the asker.
_TRY_AGAIN, _REFUSED = 1013, 1008


class EventsHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """One stream. Watching is no activity."""

    auth_resource = "aliquot"
    _track_activity = False
    _sender: asyncio.Task[None] | None = None
    _is_over = False

    @ws_authenticated
    @authorized
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Open it."""
        await super().get(*args, **kwargs)

    def open(self, *args: Any, **kwargs: Any) -> None:
        """Called by tornado when the handshake is done, whether or not anybody is still there."""
        if self._is_over:
            return
        super().open(*args, **kwargs)
        begin_pings(self)
        self._sender = asyncio.create_task(self._send(), name="aliquot-events")

    def get_websocket_protocol(self) -> Any:
        """Called by tornado."""
        return only_jupyters(super().get_websocket_protocol())

    def on_message(self, message: str | bytes) -> None:
        """Called by tornado. Nobody is asked anything here."""

    def on_close(self) -> None:
        """Called by tornado, also while it is asked who comes."""
        self._is_over = True
        super().on_close()
        end_pings(self)
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.cancel()

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
    """On a server in gateway mode: the gateway's stream, passed on to its administrators. Others hear nothing.

    A gateway that is away, or has no stream, is told at the handshake; one that is lost later closes the stream.
    """

    _upstream: WebSocketClientConnection | None = None
    _why = (_TRY_AGAIN, "the gateway closed the stream")

    @ws_authenticated
    @authorized
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Open both, the gateway's first."""
        self._upstream = await open_events() if user_of(self).is_admin else None
        if self._is_over:  # its page went meanwhile, and nobody will say so again
            self._leave()
            return
        try:
            await super().get(*args, **kwargs)
        finally:
            self._leave()

    def on_close(self) -> None:
        """Called by tornado, also while the gateway is asked."""
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
    """An event as it came; None for what is none, which a browser must not be handed."""
    try:
        text = message if isinstance(message, str) else str(message, "utf-8")
        return text if _is_event(json.loads(text)) else None
    except (ValueError, RecursionError):
        return None


def _is_event(event: Any) -> bool:
    return (
        isinstance(event, dict) and isinstance(event.get("schema_id"), str) and isinstance(event.get("kernel_id"), str)
    )
