"""A websocket to a kernel that is not there yet: it opens at once, and its channels are connected when the kernel is.

A browser opens one websocket of a server after the other: one that waited for its kernel's GPU kept all others waiting.
"""

# mypy: disable-error-code="no-untyped-call, misc, override"
# Jupyter Server's websocket connection carries no types, and its methods are not as its base class says.
from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from tornado.web import Finish

from jupyter_aliquot.gateway.auth.identity import user_of
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.limits.websocket import fitting
from jupyter_aliquot.gateway.relays.link_channel import CHANNELS, LinkChannel

from .pending_kernels import PendingKernels, relay_session
from .pending_messages import PendingMessages
from .zmq_connection import StockWebsocketConnection

_REFUSED = 1008
# Of answers that a browser has not read. All that one interrupt answers is less, so a browser that reads stays open.
MOST_ANSWER_BYTES = 8 << 20
_READS_NOTHING = "does not read what it is answered: open it again"


class PendingWebsocketConnection(StockWebsocketConnection):
    """A port of the kernel's pending messages from its opening until they are handed on."""

    # Whether the kernel's channels are yet to be connected.
    waits = False
    # What takes its messages meanwhile. None: they go to the kernel.
    _pending: PendingMessages | None = None

    @property
    def port_session(self) -> str:
        """The name of its session for the relay, whatever the browser calls it."""
        return relay_session(str(self.session_id))

    @property
    def user(self) -> User:
        """The user who opened it, as the identity provider knew them then."""
        return user_of(self.websocket_handler)

    @property
    def _kernels(self) -> PendingKernels | None:
        """None for a manager whose kernels are never pending."""
        found: PendingKernels | None = getattr(self.multi_kernel_manager, "pending", None)
        return found

    async def prepare(self) -> None:
        """Called before the browser's socket opens. It opens whether or not the kernel is there."""
        if self._kernels is not None and self._kernels.is_pending(self.kernel_id):
            self.waits = True
            await self._register_session()
        else:
            await super().prepare()

    def wait(self) -> asyncio.Future[None]:
        """Take messages for the kernel until it is there. Called in the place of connect; done at once."""
        assert self._kernels is not None  # waits says so
        self.channels = {name: LinkChannel(self.send, name, self.port_session, self.log) for name in CHANNELS}
        ZMQChannelsWebsocketConnection._open_sockets.add(self)
        self.websocket_handler.set_nodelay(True)
        self._send_status_message("starting")
        self._pending = self._kernels.open(self.kernel_id, lambda: self._stock_unread)
        self._pending.join(self)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def begin(self) -> bool:
        """Called when the kernel is there: do what prepare and connect do for others. Tells whether it is connected."""
        self.waits = False
        try:
            await StockWebsocketConnection.prepare(self)
            opened = self.connect()
            if opened is not None:
                await opened
        except Finish:
            return False  # its browser has left
        except Exception as error:
            self.log.warning("kernel=%s websocket=failed reason=%r", self.kernel_id, error)
            self.end(str(error) or "the kernel cannot be connected")
            return False
        return True

    def go_on(self) -> None:
        """Called when what was kept is handed on: what comes from now on goes to the kernel."""
        self._pending = None

    def end(self, reason: str) -> None:
        """Called when the kernel does not come. The page asks for the kernel, and hears that it is no more."""
        self.leave_pending()
        self.websocket_handler.close(_REFUSED, fitting(reason))

    def send(self, channel: str, session: str, frames: Sequence[bytes]) -> None:
        """Called by its channels with what its browser sent."""
        self.hold(channel, frames)

    def hold(self, channel: str, frames: Sequence[Any]) -> bool:
        """Keep a message where others before it are kept; tells whether it was."""
        if self._pending is None:
            return False
        self._pending.keep(self, channel, frames)
        return True

    def send_now(self, channel: str, frames: Sequence[Any]) -> None:
        """Called with a message that was kept, where the kernel has no relay."""
        self.channels[channel].send_multipart(frames)

    @property
    def protocol(self) -> str:
        """What `encode` goes by."""
        return str(self.subprotocol or "")

    def tell_encoded(self, message: str | bytes) -> None:
        """Send what the gateway says in the kernel's place. One that reads nothing of it is closed."""
        written = self._write_encoded(message)
        if written is None:
            return
        self._told.add(len(message), written)
        if self._told.bytes > MOST_ANSWER_BYTES:
            self.log.warning("kernel=%s websocket=closed bytes=%d %s", self.kernel_id, self._told.bytes, _READS_NOTHING)
            self.end(_READS_NOTHING)

    def revoke(self) -> None:
        """Called when its user's token is accepted no more. An owner's cells stay: the kernel is the owner's."""
        if self.is_guest and self._kernels is not None:
            self._kernels.drop_guest(self.kernel_id, self.user.name)

    def disconnect(self) -> None:
        """Called when the socket closed. What it brought stays the kernel's."""
        self.leave_pending()
        super().disconnect()

    def leave_pending(self) -> None:
        """Take nothing more for the kernel's pending messages. Idempotent."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.leave(self)
