"""The WebSocket /aliquot/api/v1/agents, which node agents of other machines dial, and GET nodes.

An agent proves itself by its own bearer token; no user's token opens this path. The handler passes
frames between the socket and the gateway's client of the agent, and reads the first one alone.
"""

# mypy: disable-error-code="no-untyped-call, misc, override"
# Jupyter Server's decorators carry no types, and tornado's get is not as its base class says.
from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from jupyter_server.auth.decorator import allow_unauthenticated, authorized
from tornado.web import HTTPError, authenticated
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from jupyter_aliquot.gateway.nodes.registry import LONGEST_FRAME, Pipe, RemoteNodes, read_registration
from jupyter_aliquot.gateway.nodes.tokens import TokenChecker, TokenRefusedError, TokenUnknownError
from jupyter_aliquot.gateway.status.nodes import nodes_report
from jupyter_aliquot.gpu_hook.waiting import outlasting_task
from jupyter_aliquot.provisioner.errors import AliquotError

from .base import SETTING, AliquotHandler, Sources

# From RFC 6455's registry: a policy of the server refuses; the server goes, or closes for now.
_REFUSED, _TRY_AGAIN = 1008, 1013
_SCHEME = "bearer "


class NodesHandler(AliquotHandler):
    """Answer the nodes on other machines."""

    @authenticated
    @authorized
    async def get(self) -> None:
        self.answer({"nodes": nodes_report(self.sources.snapshot(self.requester).nodes, self.requester.name)})


class AgentsHandler(WebSocketHandler):
    """The connection of one agent."""

    _allowed: frozenset[str] | None = frozenset()
    _pipe: Pipe | None = None
    _sender: asyncio.Task[None] | None = None
    _nodes: RemoteNodes

    @allow_unauthenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Called by tornado for the handshake."""
        checker, nodes = self._sources().agent_tokens, self._sources().nodes
        if nodes is None:
            raise HTTPError(403, "This server has no nodes: its kernels run on a gateway. Dial the gateway")
        self._allowed = await self._checked(checker)
        self._nodes = nodes
        await super().get(*args, **kwargs)

    @property
    def max_message_size(self) -> int:
        """Called by tornado. A status of a thousand kernels is longer than a page's messages."""
        return LONGEST_FRAME

    async def on_message(self, message: str | bytes) -> None:
        """Called by tornado, which reads the next message when this returns."""
        if self._pipe is None:
            await self._register(message)
            return
        with contextlib.suppress(ConnectionError):
            self._pipe.writer.write((message.encode() if isinstance(message, str) else message) + b"\n")
            await self._pipe.writer.drain()

    def on_close(self) -> None:
        """Called by tornado."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.cancel()
        if self._pipe is not None:
            self._pipe.writer.close()

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer a refused handshake in JSON, with the reason."""
        error = (kwargs.get("exc_info") or (None, None))[1]
        told = error.log_message if isinstance(error, HTTPError) and error.log_message else self._reason
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps({"message": told, "reason": None}))

    def _sources(self) -> Sources:
        found: Sources = self.settings[SETTING]
        return found

    async def _checked(self, checker: TokenChecker) -> frozenset[str] | None:
        """Return the nodes that the request's token may register. Raises HTTPError."""
        header = self.request.headers.get("Authorization", "")
        token = header[len(_SCHEME) :].strip() if header.lower().startswith(_SCHEME) else ""
        try:
            return await checker.allowed_nodes(token)
        except TokenRefusedError as error:
            raise HTTPError(403, str(error).replace("%", "%%")) from error
        except TokenUnknownError as error:
            raise HTTPError(503, str(error).replace("%", "%%")) from error

    async def _register(self, frame: str | bytes) -> None:
        try:
            message = json.loads(frame)
        except (ValueError, RecursionError):
            message = None
        try:
            pipe = await self._nodes.register(read_registration(message), self._allowed)
        except AliquotError as error:
            await self._say({"id": 0, "ok": False, "code": "refused", "message": str(error)})
            self.close(_REFUSED)
            return
        self._pipe = pipe
        if self.ws_connection is None or self.ws_connection.is_closing():
            self.on_close()
            return
        await self._say({"id": 0, "ok": True})
        self._sender = outlasting_task(self._send(pipe), "aliquot-agent-frames")

    async def _say(self, answer: dict[str, Any]) -> None:
        with contextlib.suppress(WebSocketClosedError):
            await self.write_message(json.dumps(answer))

    async def _send(self, pipe: Pipe) -> None:
        """Pass the gateway's lines on to the agent until the gateway gives the connection up."""
        with contextlib.suppress(WebSocketClosedError, ConnectionError, ValueError):
            while line := await pipe.reader.readline():
                await self.write_message(line.rstrip(b"\n").decode())
        self.close(_TRY_AGAIN, "the gateway gave this connection up")
