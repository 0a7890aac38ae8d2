"""The agent's connection to a gateway on another machine, dialled by the agent and made again when it is lost.

After the first frame, which registers the node, the gateway is a client of the agent's control
socket: each frame is one line of it, in both directions. This module passes lines on, and reads
none of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import ssl
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, websocket_connect

from jupyter_aliquot.gpu_hook.base.pacing import Backoff
from jupyter_aliquot.gpu_hook.waiting import end_task, within

from .settings import GatewayAddress

log = logging.getLogger(__name__)

REGISTER_VERSION = 1
LONGEST_FRAME = 64 << 20
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.5, 15.0
_CONNECT_SECONDS = 10.0
# A gateway that vanished without a word is noticed after two of these.
_PING_SECONDS = 15.0
# A connection that held so long was a success: the next waits begin anew.
_SETTLED_SECONDS = 60.0
_LONGEST_REASON = 1000
_LONGEST_TOKEN = 64 << 10


class DialError(Exception):
    """The reason why there is no connection to the gateway."""


class GatewayDialer:
    """Keeps one connection to a gateway.

    *node* is the name to register, *control_socket* the agent's own. *chance* returns a number from
    0 to 1, so that the agents of a cluster do not all dial in the same moment.
    """

    def __init__(
        self, gateway: GatewayAddress, node: str, control_socket: Path, chance: Callable[[], float] = random.random
    ) -> None:
        self._gateway = gateway
        self._node = node
        self._control_socket = control_socket
        self._chance = chance
        self._waits = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS)
        # Tells this agent from another one that was given the same name.
        self._instance = uuid4().hex
        self._told = ""

    async def run(self) -> None:
        """Dial for as long as the agent runs."""
        while True:
            try:
                reason = await self._dial()
            except DialError as error:
                reason = str(error)
            except Exception:
                log.exception("event=dial_failed")
                reason = "see the line above"
            if reason != self._told:
                log.warning("event=gateway_lost url=%s reason=%r", self._gateway.url, reason)
                self._told = reason
            await asyncio.sleep(self._waits.next_seconds() * (0.5 + self._chance() / 2))

    async def _dial(self) -> str:
        """Connect and pass lines on until the connection ends; return why it did. Raises DialError."""
        connection = await self._connect()
        try:
            await self._register(connection)
            self._told = ""
            log.info("event=registered url=%s node=%s", self._gateway.url, self._node)
            registered_at = asyncio.get_running_loop().time()
            try:
                await self._pass_on(connection)
            finally:
                if asyncio.get_running_loop().time() - registered_at >= _SETTLED_SECONDS:
                    self._waits.reset()
            return connection.close_reason or "the gateway closed the connection"
        finally:
            connection.close()

    async def _connect(self) -> WebSocketClientConnection:
        try:
            token = await asyncio.to_thread(_read_token, self._gateway.token_file)
        except (OSError, ValueError) as error:
            raise DialError(f"the token file cannot be used: {error}") from error
        request = HTTPRequest(
            self._gateway.url,
            headers={"Authorization": f"Bearer {token}"},
            connect_timeout=_CONNECT_SECONDS,
            request_timeout=_CONNECT_SECONDS,
        )
        opening = websocket_connect(
            request, ping_interval=_PING_SECONDS, ping_timeout=_PING_SECONDS, max_message_size=LONGEST_FRAME
        )
        try:
            return await within(opening, 2 * _CONNECT_SECONDS)
        except HTTPClientError as error:
            raise DialError(f"the gateway answered {error.code} {error.message}{_told(error)}") from error
        except asyncio.TimeoutError:
            raise DialError(f"it did not answer within {2 * _CONNECT_SECONDS:g} s") from None
        except (OSError, ssl.SSLError, WebSocketClosedError, ValueError) as error:
            raise DialError(str(error) or type(error).__name__) from error

    async def _register(self, connection: WebSocketClientConnection) -> None:
        asked = {"op": "register", "version": REGISTER_VERSION, "node": self._node, "instance": self._instance}
        try:
            await connection.write_message(json.dumps({"id": 0, **asked}))
            frame = await within(connection.read_message(), _CONNECT_SECONDS)
            answer = json.loads(frame) if frame is not None else None
        except (WebSocketClosedError, ValueError, asyncio.TimeoutError) as error:
            raise DialError(f"it does not register agents: {str(error) or type(error).__name__}") from error
        if not isinstance(answer, dict) or answer.get("ok") is not True:
            told = answer.get("message") if isinstance(answer, dict) else connection.close_reason
            raise DialError(f"it refused the node {self._node!r}: {told or 'no reason given'}")

    async def _pass_on(self, connection: WebSocketClientConnection) -> None:
        """Join the gateway to the control socket until one of them ends."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._control_socket, limit=LONGEST_FRAME)
        except OSError as error:
            raise DialError(f"the agent's own control socket cannot be reached: {error}") from error
        ways = [
            asyncio.create_task(_requests(connection, writer), name="aliquot-gateway-requests"),
            asyncio.create_task(_answers(reader, connection), name="aliquot-gateway-answers"),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                await end_task(way)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _requests(connection: WebSocketClientConnection, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while (frame := await connection.read_message()) is not None:
            writer.write((frame.encode() if isinstance(frame, str) else frame) + b"\n")
            await writer.drain()


async def _answers(reader: asyncio.StreamReader, connection: WebSocketClientConnection) -> None:
    with contextlib.suppress(ConnectionError, WebSocketClosedError):
        while line := await reader.readline():
            await connection.write_message(line.rstrip(b"\n").decode())


def _told(error: HTTPClientError) -> str:
    """Return the reason in the body of a refusal; empty where a proxy or another server answered."""
    try:
        body = json.loads(error.response.body) if error.response is not None else None
    except (ValueError, RecursionError):
        return ""
    message = body.get("message") if isinstance(body, dict) else None
    return f": {message[:_LONGEST_REASON]}" if isinstance(message, str) and message else ""


def _read_token(file: Path) -> str:
    """Return the token. Raises OSError, and ValueError for a file without one. Blocks."""
    with file.open("rb") as opened:
        token = opened.read(_LONGEST_TOKEN).decode("ascii").strip()
    if not token or any(letter.isspace() for letter in token):
        raise ValueError(f"{file} holds no single token. Write one line into it")
    return token
