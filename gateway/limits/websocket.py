"""Limits of clients' messages on websockets.

Fast messages are read later, and a large one ends its socket.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, cast

from jupyter_server.auth import IdentityProvider
from jupyter_server.base.handlers import JupyterHandler
from tornado.iostream import StreamClosedError
from tornado.web import RequestHandler

from jupyter_aliquot.gateway.base.jupyter_private import abort_of, replace_abort
from jupyter_aliquot.gpu_hook.base.pacing import TokenBucket
from jupyter_aliquot.gpu_hook.waiting import within

from .guard import MESSAGE, MESSAGES, OUTPUT, SETTING, LimitGuard

# The status of a websocket's end, and the most bytes of its reason.
_TOO_BIG, _LONGEST_REASON = 1009, 123
_DRAIN_SECONDS = 5.0
_DRAIN_BYTES = 1 << 16


class MessagePace:
    """The pace of one websocket: messages that come too fast are read later."""

    def __init__(self, guard: LimitGuard, who: str) -> None:
        self._guard = guard
        self._who = who
        self._rate = guard.limits.messages_per_second
        self._burst = max(1.0, self._rate)
        self._bucket = TokenBucket(self._rate, self._burst, guard.clock.now())

    def delay(self) -> float:
        """Return how long to wait before this message is handed on, in seconds."""
        return self._bucket.take(self._guard.clock.now())

    async def wait(self, seconds: float) -> None:
        """Wait for its turn. Nothing more is read from this socket meanwhile."""
        self._guard.note(MESSAGES, self._who)
        while seconds:
            await self._guard.clock.sleep(seconds)
            seconds = self.delay()


def message_pace(handler: RequestHandler, who: str) -> MessagePace | None:
    """Return the pace of the websocket that this handler opens; None without a limit."""
    guard: LimitGuard | None = handler.settings.get(SETTING)
    return MessagePace(guard, who) if guard is not None and guard.limits.messages_per_second else None


def may_be_sent(handler: RequestHandler, length: int, has_users: Callable[[IdentityProvider], bool]) -> bool:
    """Return whether a kernel's message of so many bytes may go to the client of this websocket.

    A user's own server has pages as clients, which take any size. Servers in gateway mode are
    clients of servers with several users, of whose identity provider *has_users* is true.
    """
    guard: LimitGuard | None = handler.settings.get(SETTING)
    if guard is None or not guard.limits.output_bytes or length <= guard.limits.output_bytes:
        return True
    return not has_users(cast(JupyterHandler, handler).identity_provider)


def left_out(handler: RequestHandler, length: int) -> str:
    """Count a message that is left out, and return the text that its cell shows instead."""
    guard: LimitGuard = handler.settings[SETTING]
    guard.note(OUTPUT, str(handler.path_kwargs.get("kernel_id", "")))
    most = guard.limits.output_bytes
    return f"Output of {length} bytes is not shown: at most {most} are sent at once (c.Limits.{OUTPUT})."


def explain_large_messages(protocol: Any, handler: RequestHandler, who: str) -> SocketEnding | None:
    """Let tornado's websocket protocol say why it closes a socket whose client sent too much.

    Count that, too. The caller must call ``closed`` of the returned object when the socket closed.
    """
    guard: LimitGuard | None = handler.settings.get(SETTING)
    if protocol is None or guard is None:
        return None
    ending = SocketEnding(protocol, guard, who)
    protocol.close = ending.close
    replace_abort(protocol, ending.abort)
    return ending


def fitting(reason: str) -> str:
    """Return as much of the reason as fits the last frame of a websocket."""
    if len(reason.encode()) <= _LONGEST_REASON:
        return reason
    return reason.encode()[: _LONGEST_REASON - 3].decode(errors="ignore") + "…"


class SocketEnding:
    """The end of one websocket.

    tornado resets the connection of a client that still sends, which then gets no reason.
    """

    def __init__(self, protocol: Any, guard: LimitGuard, who: str) -> None:
        self._protocol = protocol
        self._guard = guard
        self._who = who
        self._close, self._abort = protocol.close, abort_of(protocol)
        self._is_too_big = False
        self._draining: asyncio.Task[None] | None = None

    def close(self, code: int | None = None, reason: str | None = None) -> None:
        """Called by tornado, and by handlers."""
        if code == _TOO_BIG and not self._is_too_big:
            self._is_too_big = True
            self._guard.note(MESSAGE, self._who)
            most = self._guard.limits.message_bytes
            reason = f"message too big: at most {most} bytes (c.Limits.{MESSAGE}); send it in parts"[:_LONGEST_REASON]
        self._close(code, reason)

    def abort(self) -> None:
        """Called by tornado, at once after a message that is too large."""
        if not self._is_too_big or self._protocol.stream.closed():
            self._end()
        elif self._draining is None:
            # The rest of that message follows, and no frame.
            self._protocol.client_terminated = True
            self._draining = asyncio.create_task(self._drain(), name="aliquot-large-message")

    async def _drain(self) -> None:
        with contextlib.suppress(asyncio.TimeoutError, StreamClosedError):
            await within(self._read_all(), _DRAIN_SECONDS)
        self._end()

    def _end(self) -> None:
        self._abort()
        self._let_go()

    def closed(self) -> None:
        """Note that the socket is closed. Data that is still drained ends by itself. Idempotent."""
        if self._draining is None or self._draining.done():
            self._let_go()

    def _let_go(self) -> None:
        """Break the cycle of references with the protocol.

        It would last until the next garbage collection.
        """
        for name in ("close", "_abort"):
            self._protocol.__dict__.pop(name, None)

    async def _read_all(self) -> None:
        while True:
            await self._protocol.stream.read_bytes(_DRAIN_BYTES, partial=True)
