"""The WebSocket /aliquot/api/v1/agents, which node agents of other machines dial.

An agent proves itself by its own bearer token; no user's token opens this path. The handler passes
frames between the socket and the gateway's client of the agent, and reads the first one alone.
"""

# mypy: disable-error-code="no-untyped-call, misc, override"
# Jupyter Server's decorators carry no types, and tornado's get is not as its base class says.
from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
from typing import Any

from jupyter_server.auth.decorator import allow_unauthenticated
from tornado.web import HTTPError
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from jupyter_aliquot.gateway.limits.guard import SETTING as LIMITS, LimitGuard
from jupyter_aliquot.gateway.nodes.limits import LONGEST_FRAME, LONGEST_REGISTRATION, FrameRates, close_reason
from jupyter_aliquot.gateway.nodes.registry import Pipe, RemoteNodes, read_registration
from jupyter_aliquot.gateway.nodes.tokens import TokenChecker, TokenExpiredError, TokenRefusedError, TokenUnknownError
from jupyter_aliquot.gpu_hook.waiting import outlasting_task
from jupyter_aliquot.provisioner.errors import AliquotError, LimitError, RequestError

from .base import SETTING, Sources

# From RFC 6455's registry: a policy of the server refuses; the server goes, or closes for now.
_REFUSED, _TRY_AGAIN = 1008, 1013
_SCHEME = "bearer "
# An agent registers within this time.
_REGISTER_SECONDS = 10.0
# A token that is taken back ends its connections within this time.
_CHECK_SECONDS = 60.0

log = logging.getLogger(__name__)


class AgentsHandler(WebSocketHandler):
    """The connection of one agent."""

    _allowed: frozenset[str] | None = frozenset()
    _pipe: Pipe | None = None
    _tasks: tuple[asyncio.Task[None], ...] = ()
    _timer: asyncio.TimerHandle | None = None
    _rates: FrameRates | None = None
    _nodes: RemoteNodes
    _checker: TokenChecker

    @allow_unauthenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Called by tornado for the handshake."""
        self._count_visit()
        self._checker, nodes = self._sources().agent_tokens, self._sources().nodes
        if nodes is None:
            raise HTTPError(403, "This server has no nodes: its kernels run on a gateway. Dial the gateway")
        token = self._token()
        self._allowed = await self._checked(token)
        if not nodes.is_started:
            raise HTTPError(503, "The gateway is starting. Try again in some seconds")
        self._nodes = nodes
        try:
            with nodes.sockets.admit(token, self._allowed):
                await super().get(*args, **kwargs)  # which lasts as long as the connection
        except LimitError as error:
            raise HTTPError(503, str(error)) from error

    def open(self, *args: Any, **kwargs: Any) -> None:
        """Called by tornado after the handshake."""
        loop = asyncio.get_running_loop()
        self._rates = FrameRates(loop.time())
        self._timer = loop.call_later(
            _REGISTER_SECONDS, self.close, _REFUSED, f"no node was registered within {_REGISTER_SECONDS:g} s"
        )

    @property
    def max_message_size(self) -> int:
        """Called by tornado. A status of a thousand kernels is longer than a page's messages."""
        return LONGEST_FRAME

    async def on_message(self, message: str | bytes) -> None:
        """Called by tornado, which reads the next message when this returns."""
        if self._pipe is None:
            await self._register(message)
            return
        now = asyncio.get_running_loop().time()
        if self._rates is not None and (wait := self._rates.take(len(message), now)):
            await asyncio.sleep(wait)
        with contextlib.suppress(ConnectionError):
            self._pipe.writer.write((message.encode() if isinstance(message, str) else message) + b"\n")
            await self._pipe.writer.drain()

    def on_close(self) -> None:
        """Called by tornado."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._pipe is not None:
            self._pipe.writer.close()

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer a refused handshake in JSON, with the reason."""
        error = (kwargs.get("exc_info") or (None, None))[1]
        told = self._reason
        if isinstance(error, HTTPError) and error.log_message:
            told = error.log_message % error.args
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps({"message": told, "reason": None}))

    def _sources(self) -> Sources:
        found: Sources = self.settings[SETTING]
        return found

    def _count_visit(self) -> None:
        """Count the request for its address, as those without a user. Raises HTTPError."""
        guard: LimitGuard | None = self.settings.get(LIMITS)
        seconds = 0.0 if guard is None else guard.visit("", str(self.request.remote_ip))
        if seconds:
            raise HTTPError(429, f"Too many requests from this address. Try again in {math.ceil(seconds)} s")

    def _token(self) -> str:
        header = self.request.headers.get("Authorization", "")
        return header[len(_SCHEME) :].strip() if header.lower().startswith(_SCHEME) else ""

    async def _checked(self, token: str) -> frozenset[str] | None:
        """Return the nodes that this token may register. Raises HTTPError."""
        try:
            return await self._checker.allowed_nodes(token)
        except TokenRefusedError as error:
            raise HTTPError(403, str(error)) from error
        except TokenUnknownError as error:  # its text names files of this machine
            log.error("agent_tokens=unknown reason=%s", error)
            told = "The gateway cannot check tokens of agents now; its log says why. Try again later"
            raise HTTPError(503, told) from error

    async def _register(self, frame: str | bytes) -> None:
        if self._timer is not None:
            self._timer.cancel()
        try:
            asked = read_registration(_first_frame(frame))
            pipe = await self._nodes.register(asked, self._allowed)
        except AliquotError as error:
            await self._say({"id": 0, "ok": False, "code": "refused", "message": str(error)})
            self.close(_REFUSED, close_reason(str(error)))
            return
        self._pipe = pipe
        if self.ws_connection is None or self.ws_connection.is_closing():
            self.on_close()
            return
        await self._say({"id": 0, "ok": True})
        self._tasks = (
            outlasting_task(self._send(pipe, asked.node), "aliquot-agent-frames"),
            outlasting_task(self._check(pipe, asked.node), "aliquot-agent-token"),
        )

    async def _say(self, answer: dict[str, Any]) -> None:
        with contextlib.suppress(WebSocketClosedError):
            await self.write_message(json.dumps(answer))

    async def _check(self, pipe: Pipe, node: str) -> None:
        """End the connection when its token, or the node's name, is no longer right."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            try:
                self._nodes.check_again(node, await self._still_allowed())
            except TokenUnknownError as error:
                log.error("agent_tokens=unknown reason=%s", error)
            except AliquotError as error:
                log.info("node=refused name=%s reason=%s", node, error)
                self.close(_REFUSED, close_reason(str(error)))
                pipe.writer.close()
                return

    async def _still_allowed(self) -> frozenset[str] | None:
        """Return the nodes of the handshake's token. Raises AliquotError.

        The token was right then, so that one whose time is over ends no connection.
        """
        try:
            return await self._checker.allowed_nodes(self._token())
        except TokenExpiredError:
            return self._allowed

    async def _send(self, pipe: Pipe, node: str) -> None:
        """Pass the gateway's lines on to the agent until the gateway gives the connection up."""
        with contextlib.suppress(WebSocketClosedError, ConnectionError, ValueError):
            while line := await pipe.reader.readline():
                await self.write_message(line.rstrip(b"\n").decode())
        problem = self._nodes.problem(node) or "the gateway gave this connection up"
        self.close(_TRY_AGAIN, close_reason(problem))


def _first_frame(frame: str | bytes) -> Any:
    """Return the frame's JSON; None where it is none. Raises RequestError."""
    if len(frame) > LONGEST_REGISTRATION:
        raise RequestError(f"The first frame has {len(frame)} bytes, and may have {LONGEST_REGISTRATION}")
    try:
        return json.loads(frame)
    except (ValueError, RecursionError):
        return None
