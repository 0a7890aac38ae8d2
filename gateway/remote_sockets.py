"""A browser's websocket to a kernel on the gateway, as Jupyter Server has it, and its end when the gateway refuses it.

Jupyter's own tries five times and then drops in silence what the browser sends, which would wait for ever; here the
browser's ends then, so that the page knows, and comes again by itself. A page takes each socket that opens for a
success, and comes again at once: after a refusal that is final its next ones are refused before they open.
"""

# mypy: disable-error-code="no-untyped-call"
# Jupyter Server's websocket connection carries no types.
from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from aliquot.gateway.gateway_questions import gateway_words
from jupyter_server.gateway.connections import GatewayWebSocketConnection
from jupyter_server.gateway.gateway_client import GatewayClient
from tornado.httpclient import HTTPClientError
from tornado.web import HTTPError

_REFUSED = 1008
_AWAY = 1013
_LONGEST_REASON_BYTES = 123
# Not any more, or not at all: a kernel that ended, or is shared no more, is not found.
_FINAL = (403, 404)


# Where the refusals are, in the application's settings.
SETTING = "aliquot_refused_sockets"
_REFUSED_SECONDS = 10.0


class Refusals:
    """Kernels whose websockets the gateway refused a short while ago. ``now``: seconds that only go forward."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        # By kernel id: since when, the status and the words.
        self._noted: dict[str, tuple[float, int, str]] = {}

    def note(self, kernel_id: str, code: int, reason: str) -> None:
        """The gateway refused it just now."""
        now = self._now()
        self._noted = {one: said for one, said in self._noted.items() if now - said[0] < _REFUSED_SECONDS}
        self._noted[kernel_id] = (now, code, reason)

    def check(self, kernel_id: str) -> None:
        """Raises HTTPError, the gateway's, for one that it need not be asked about again yet."""
        since, code, reason = self._noted.get(kernel_id, (float("-inf"), 0, ""))
        if self._now() - since < _REFUSED_SECONDS:
            raise HTTPError(code, reason)


class RemoteWebsocketConnection(GatewayWebSocketConnection):
    """Made by KernelWebsocketHandler for each socket of a server in gateway mode."""

    def _connection_done(self, fut: asyncio.Future[Any]) -> None:
        """Called when the gateway answered the handshake, the first one or that after a loss."""
        super()._connection_done(fut)
        error = None if self.disconnected or fut.cancelled() else fut.exception()
        if isinstance(error, HTTPClientError) and error.code in _FINAL:
            reason = gateway_words(error) or "the gateway refuses this kernel"
            refusals = self.websocket_handler.settings.setdefault(SETTING, Refusals(time.monotonic))
            refusals.note(str(self.kernel_id), error.code, reason)
            self._end(_REFUSED, reason)
        elif error is not None and self.retry >= GatewayClient.instance().gateway_retry_max:
            self._end(_AWAY, gateway_words(error) or "the gateway does not answer: open it again when it is back")

    def _end(self, code: int, reason: str) -> None:
        self.disconnected = True
        self.log.warning("kernel=%s socket=closed reason=%s", self.kernel_id, reason)
        self.websocket_handler.close(code, fitting(reason))


def fitting(reason: str) -> str:
    """As much of it as fits the last frame of a websocket."""
    if len(reason.encode()) <= _LONGEST_REASON_BYTES:
        return reason
    return reason.encode()[: _LONGEST_REASON_BYTES - 3].decode(errors="ignore") + "…"
