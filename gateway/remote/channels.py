"""A browser's websocket to a kernel on the gateway: open as long as the gateway's socket is.

Jupyter's own opens before the gateway answers, stays open while it reconnects, and silently drops
what the browser sends meanwhile, its first request included. This one opens once the gateway has
opened ours, so the page keeps its messages until then. A page takes each socket that opens for a
success, and reconnects at once: after a final refusal by the gateway, the page's next sockets are
refused before they open. A message that was lost with the gateway is not sent again: the page
learns from the gateway which of its cells the kernel has.
"""

# mypy: disable-error-code="no-untyped-call, override"
# Jupyter Server's websocket connection carries no types, and its methods are not as its base class says.
from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable
from functools import cached_property

from jupyter_server.gateway.connections import GatewayWebSocketConnection
from jupyter_server.gateway.gateway_client import GatewayClient
from jupyter_server.utils import url_path_join
from tornado.escape import url_escape
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.httputil import url_concat
from tornado.web import HTTPError
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, WebSocketError, websocket_connect

from jupyter_aliquot.gateway.base.http_errors import gateway_words
from jupyter_aliquot.gateway.channels.browser_socket import WriteBuffer
from jupyter_aliquot.gateway.limits.websocket import fitting
from jupyter_aliquot.gpu_hook.base.pacing import backoff_seconds
from jupyter_aliquot.provisioner.relay.wire.files import UNREAD_BYTES

from .client import PING_SECONDS
from .token_guard import UntrustedGatewayError

_REFUSED = 1008
_AWAY = 1013
_AWAY_WORDS = "the gateway does not answer: wait until it is back"
_UNAVAILABLE = 503
# A browser waits no longer than this for its socket to open.
_BROWSERS_SECONDS = 300.0
# The statuses that are final: a kernel that has ended, or is not shared any more, is not found.
_FINAL = (403, 404)


# The key of the refusals in the application's settings.
SETTING = "aliquot_refused_sockets"
_REFUSED_SECONDS = 10.0


class Refusals:
    """Kernels whose websockets the gateway refused a short while ago. ``now``: monotonic seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        # By kernel id: the time, the status and the message of the refusal.
        self._noted: dict[str, tuple[float, int, str]] = {}

    def note(self, kernel_id: str, code: int, reason: str) -> None:
        """Note that the gateway refused this kernel's websocket just now."""
        now = self._now()
        self._noted = {one: said for one, said in self._noted.items() if now - said[0] < _REFUSED_SECONDS}
        self._noted[kernel_id] = (now, code, reason)

    def check(self, kernel_id: str) -> None:
        """Raise the gateway's HTTPError for a kernel that it refused a short while ago."""
        since, code, reason = self._noted.get(kernel_id, (float("-inf"), 0, ""))
        if self._now() - since < _REFUSED_SECONDS:
            raise HTTPError(code, reason)


class RemoteWebsocketConnection(GatewayWebSocketConnection):
    """A browser's websocket on a server in gateway mode.

    KernelWebsocketHandler makes one for each socket.
    """

    _reader: asyncio.Future[None] | None = None
    _refusal = ""

    async def prepare(self) -> None:
        """Called before the browser's socket opens. Raises HTTPError 503 while the gateway is away.

        It retries for as long as Jupyter's own would. Then the browser gets the error, and
        reconnects by itself.
        """
        client = GatewayClient.instance()
        deadline = time.monotonic() + patience_seconds(client)
        while not self.disconnected:
            try:
                self.ws = await self._dial()
                if not self.disconnected:
                    return
            except (UntrustedGatewayError, HTTPClientError, WebSocketError, OSError, ValueError) as error:
                if isinstance(error, HTTPClientError) and error.code in _FINAL:
                    self._note(error)
                    return
                if time.monotonic() >= deadline:
                    self.log.warning("kernel=%s socket=refused reason=%s", self.kernel_id, error)
                    raise HTTPError(_UNAVAILABLE, _words(error)) from error
                self.log.info("kernel=%s gateway=unavailable tries=again reason=%s", self.kernel_id, error)
            # Sockets that lost the same gateway do not all return to it at one moment.
            await asyncio.sleep(client.gateway_retry_interval * random.uniform(0.75, 1.25))
        raise HTTPError(_UNAVAILABLE, "the browser has left")

    async def connect(self) -> None:
        """Called once the browser's socket is open."""
        if self.ws is None:
            self._end(_REFUSED, self._refusal)
        else:
            self._reader = asyncio.ensure_future(self._read_until_its_end(self.ws))

    def disconnect(self) -> None:
        """Called when the browser's socket is closed, which may be before it was open."""
        self.disconnected = True
        if self.ws is not None:
            self.ws.close()

    def handle_incoming_message(self, message: str | bytes) -> None:
        """Called with each message of the browser: bytes for one with buffers, as widgets send them."""
        if self.ws is not None and not self.disconnected:
            self._write(self.ws, message)

    def _write(self, opened: WebSocketClientConnection, message: str | bytes) -> None:
        try:
            written = opened.write_message(message, binary=isinstance(message, bytes))
        except WebSocketClosedError:
            self._lose(opened)
        else:
            self._unsent.add(len(message), written)

    def until_room(self) -> Awaitable[None] | None:
        """Called before tornado reads on from the browser's socket.

        Return what to await while the gateway has much to receive; None otherwise.
        """
        return self._unsent.until_room()

    @cached_property
    def _unsent(self) -> WriteBuffer:
        return WriteBuffer(UNREAD_BYTES)

    async def _dial(self) -> WebSocketClientConnection:
        """Open the gateway's websocket, which opens once the kernel has started.

        A kernel that waits for its GPU may take long, and that is no failure.
        """
        client = GatewayClient.instance()
        url = url_path_join(client.ws_url or "", client.kernels_endpoint, url_escape(str(self.kernel_id)), "channels")
        query = {"session_id": self.session_id} if self.session_id else {}
        told = {**client.load_connection_args(), "request_timeout": _BROWSERS_SECONDS}
        request = HTTPRequest(url_concat(url, query), **told)
        opened = await websocket_connect(request, ping_interval=PING_SECONDS)
        if self.disconnected:
            opened.close()
        return opened

    async def _read_until_its_end(self, opened: WebSocketClientConnection) -> None:
        while not self.disconnected and (message := await opened.read_message()) is not None:
            self.handle_outgoing_message(message)
        self._lose(opened)

    def handle_outgoing_message(self, message: str | bytes) -> None:
        """Write a message of the gateway to the browser, in a frame of its kind."""
        # A browser that has left is noticed when its socket closes.
        with contextlib.suppress(WebSocketClosedError):
            self.websocket_handler.write_message(message, binary=isinstance(message, bytes))

    def _lose(self, opened: WebSocketClientConnection) -> None:
        """Close the browser's socket after the gateway's closed, with its reason if it gave one."""
        if not self.disconnected:
            code = opened.close_code if opened.close_code in (_REFUSED, _AWAY) else _AWAY
            self._end(code, opened.close_reason or _AWAY_WORDS)

    def _note(self, error: HTTPClientError) -> None:
        self._refusal = gateway_words(error) or "the gateway refuses this kernel"
        refusals = self.websocket_handler.settings.setdefault(SETTING, Refusals(time.monotonic))
        refusals.note(str(self.kernel_id), error.code, self._refusal)

    def _end(self, code: int, reason: str) -> None:
        self.disconnected = True
        self.log.warning("kernel=%s socket=closed reason=%s", self.kernel_id, reason)
        self.websocket_handler.close(code, fitting(reason))


def _words(error: Exception) -> str:
    if isinstance(error, UntrustedGatewayError):
        return error.words
    return gateway_words(error) or _AWAY_WORDS


def patience_seconds(client: GatewayClient) -> float:
    """Return for how long Jupyter's own connection retries a gateway, by its settings."""
    first, longest = client.gateway_retry_interval, client.gateway_retry_interval_max
    return float(sum(backoff_seconds(first, longest, tries + 1) for tries in range(client.gateway_retry_max)))
