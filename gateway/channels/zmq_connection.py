"""A browser's websocket to a kernel without a relay: as Jupyter Server does it, save that what waits is bounded.

What is too much is answered as by a kernel that refuses, and to its asker alone.
"""

# mypy: disable-error-code="no-untyped-call, misc, override"
# Jupyter Server's websocket connection carries no types, and its methods are not as its base class says.
from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Sequence
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from jupyter_client.jsonutil import json_default
from jupyter_server.services.kernels.connection.base import serialize_msg_to_ws_v1
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from tornado.web import Finish
from tornado.websocket import WebSocketClosedError

from jupyter_aliquot.gateway.limits.guard import SETTING as GUARD, UNREAD, LimitGuard
from jupyter_aliquot.provisioner.relay.wire.error_replies import (
    Answer,
    CommWords,
    answers,
    content_of,
    parent_of,
    unread_words,
)
from jupyter_aliquot.provisioner.relay.wire.files import UNREAD_BYTES
from jupyter_aliquot.provisioner.relay.wire.messages import HEADER, read_object

from .backpressure import BoundedChannel, StockUnread
from .write_buffer import Unsent

V1 = "v1.kernel.websocket.jupyter.org"
# Where kernels' counts are, in the application's settings: by their managers.
_SETTING = "aliquot_stock_unread"
_REQUESTS = ("shell", "control", "stdin")
_ENAME = "KernelDoesNotRead"
# Of refusals that a browser has not read; then it is read no further.
_MOST_TOLD_BYTES = 1 << 20


class StockWebsocketConnection(ZMQChannelsWebsocketConnection):
    """What is sent goes through channels that count it. ``is_guest``: its user is not the kernel's owner."""

    is_guest = False
    _is_connected = False

    def create_stream(self) -> None:
        """Called by Jupyter's connect."""
        super().create_stream()
        for name in _REQUESTS:
            self.channels[name] = BoundedChannel(self.channels[name], name, self._stock_unread)

    def connect(self) -> asyncio.Future[None] | None:
        """Called by KernelWebsocketHandler.open. Channels may be those of a websocket that closed."""
        self._is_connected = True
        opened: asyncio.Future[None] | None = super().connect()
        for channel in self.channels.values():
            if isinstance(channel, BoundedChannel):
                channel.refuse, channel.hold, channel.is_guest = self.refuse, self.hold, self.is_guest
        return opened

    def hold(self, channel: str, frames: Sequence[Any]) -> bool:
        """True where a message waits elsewhere. Called by the channels."""
        return False

    @property
    def is_registered(self) -> bool:
        """True for the socket of its session."""
        return bool(self.session_key) and self._open_sessions.get(self.session_key) is self.websocket_handler

    async def _register_session(self) -> None:
        """Called by prepare. It closes a socket of the same session, which may be where its browser is by now."""
        self._still_there()
        await super()._register_session()

    def request_kernel_info(self) -> Any:
        """Called by prepare, when the kernel has been waited for."""
        self._still_there()
        return super().request_kernel_info()

    @property
    def has_left(self) -> bool:
        """Whether its browser is gone, perhaps before the socket was open."""
        return bool(getattr(self.websocket_handler, "is_gone", False))

    def _still_there(self) -> None:
        """Raises Finish for a browser that left meanwhile."""
        if self.has_left:
            raise Finish

    def disconnect(self) -> None:
        """Called when the socket closed, perhaps before it was open: Jupyter's own takes it for one that it counted.

        It would count one less than there are, and give up what is buffered for the next one. Idempotent.
        """
        if self._is_connected:
            self._is_connected = False
            ZMQChannelsWebsocketConnection._open_sockets.add(self)  # which it leaves: connect may have failed before
            super().disconnect()
            self.channels = {}  # where there is a buffer, it has them
            return
        counts: dict[str, int] = self.multi_kernel_manager._kernel_connections
        count = counts.pop(self.kernel_id, None)
        try:
            super().disconnect()
        finally:
            if count is not None:
                counts[self.kernel_id] = count

    def revoke(self) -> None:
        """Drop what waits in its user's name. Here nothing does."""

    def until_room(self) -> Awaitable[None] | None:
        """What is to be done before more is read of the socket; None: nothing."""
        return self._told.until_room()

    def tell(self, answer: Answer, parent: dict[str, Any]) -> asyncio.Future[None] | None:
        """A message of our own, as one of the kernel's. None: the socket is closed."""
        return self._write_encoded(self.encode(answer, parent))

    def encode(self, answer: Answer, parent: dict[str, Any]) -> str | bytes:
        """Make a message of our own as the websocket's protocol has it."""
        message = self.session.msg(answer.msg_type, content=answer.content, parent={"header": parent})
        if self.subprotocol == V1:
            return bytes(serialize_msg_to_ws_v1(message, answer.channel, self.session.pack))
        return json.dumps({**message, "channel": answer.channel}, default=json_default)

    def _write_encoded(self, message: str | bytes) -> asyncio.Future[None] | None:
        try:
            return self.write_message(message, binary=isinstance(message, bytes))  # type: ignore[no-any-return]
        except WebSocketClosedError:
            return None

    def refuse(self, channel: str, frames: Sequence[Any], size: int, why: str = "") -> None:
        """Answer a message that is one too many. Called by what counts them. ``why``: other words than for bytes."""
        guard: LimitGuard | None = self.websocket_handler.settings.get(GUARD)
        if guard is not None:
            guard.note(UNREAD, str(self.kernel_id))
        header = read_object(frames[HEADER])
        if not (parent := parent_of(header)):
            return
        unread = self._stock_unread
        kind = header.get("msg_type")
        words = why or unread_words(size, unread.bytes, unread.most(is_guest=self.is_guest), kind)
        tells_comm = self._comm_words.are_due(kind, time.monotonic())
        for answer in answers(channel, header, content_of(frames), _ENAME, words, tells_comm=tells_comm):
            told = self.tell(answer, json.loads(parent))
            if told is not None:
                self._told.add(len(words) + len(parent), told)

    @cached_property
    def _comm_words(self) -> CommWords:
        return CommWords()

    @cached_property
    def _told(self) -> Unsent:
        return Unsent(_MOST_TOLD_BYTES)

    @property
    def _stock_unread(self) -> StockUnread:
        """All websockets of a kernel have one."""
        settings = self.websocket_handler.settings
        counts: WeakKeyDictionary[Any, StockUnread] = settings.setdefault(_SETTING, WeakKeyDictionary())
        if self.kernel_manager not in counts:
            guard: LimitGuard | None = settings.get(GUARD)
            counts[self.kernel_manager] = StockUnread(UNREAD_BYTES if guard is None else guard.limits.unread_bytes)
        return counts[self.kernel_manager]
