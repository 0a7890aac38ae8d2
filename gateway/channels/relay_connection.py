"""A browser's websocket to a kernel: over the kernel's relay where it has one, else as Jupyter Server does it.

What is said to whom is Jupyter's own: both subprotocols, allowed types, tracebacks, rate limits. Only the way to the
kernel differs, and that what the socket took is told to the relay.
"""

# mypy: disable-error-code="no-untyped-call, misc, override"
# Jupyter Server's websocket connection carries no types, and its methods are not as its base class says.
from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Sequence
from typing import Any

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from tornado.websocket import WebSocketClosedError

from jupyter_aliquot.gateway.auth.identity import tells_people_apart
from jupyter_aliquot.gateway.limits.websocket import left_out, may_be_sent
from jupyter_aliquot.gateway.relays.link import KernelLink
from jupyter_aliquot.gateway.relays.link_channel import CHANNELS, LinkChannel
from jupyter_aliquot.gateway.relays.pool import RelayLinks
from jupyter_aliquot.provisioner.relay.wire.messages import read_date

from .pending_connection import PendingWebsocketConnection


class KernelWebsocketConnection(PendingWebsocketConnection):
    """Made by KernelWebsocketHandler for each socket."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._link: KernelLink | None = None
        self._control_ask: Any = None
        self._asking: asyncio.Future[None] | None = None
        self._written: asyncio.Future[None] | None = None
        # How large the message was that was not written just now; 0 for none.
        self._too_large = 0
        # Jupyter's own looks for this text there, where nobody has put it, and fails.
        self.kernel_manager.traceback_replacement_message = self.multi_kernel_manager.traceback_replacement_message

    # ---- opening

    async def _register_session(self) -> None:
        """Called by prepare. A stale socket of the same session gives back at once what it has not taken."""
        if self.is_registered:
            return
        stale = self._open_sessions.get(f"{self.kernel_id}:{self.session.session}")
        await super()._register_session()
        connection = None if stale is None else stale.connection
        if isinstance(connection, KernelWebsocketConnection):
            connection.give_back()

    def request_kernel_info(self) -> Any:
        """Called by prepare, which waits for the answer."""
        self._still_there()
        self._link = self._find_link()
        if self._link is None:
            return super().request_kernel_info()
        asking = asyncio.ensure_future(self._ask_whether_it_lives(self._link))
        asking.add_done_callback(_retrieve)
        self._asking = asking
        return asyncio.wrap_future(self._kernel_info_future)

    async def _ask_whether_it_lives(self, link: KernelLink) -> None:
        """A kernel that works has shown it, and would not answer. Of a link just begun that is known in a moment."""
        await link.wait_until_told(self.kernel_info_timeout)
        if link.is_at_work or self.has_left:
            self._finish_kernel_info({})
        else:
            super().request_kernel_info()

    def connect(self) -> asyncio.Future[None] | None:
        """Called by KernelWebsocketHandler.open, which awaits the answer."""
        if self.waits:
            return self.wait()
        if self._link is None:
            opened: asyncio.Future[None] | None = super().connect()
            return opened
        manager = self.multi_kernel_manager
        manager.notify_connect(self.kernel_id)
        self._is_connected = True
        self.channels = {name: LinkChannel(self.send, name, self.port_session, self.log) for name in CHANNELS}
        manager.add_restart_callback(self.kernel_id, self.on_kernel_restarted)
        manager.add_restart_callback(self.kernel_id, self.on_restart_failed, "dead")
        ZMQChannelsWebsocketConnection._open_sockets.add(self)
        # Small messages follow each other; else each waits up to 40 ms until the browser's machine confirms the last.
        self.websocket_handler.set_nodelay(True)
        return asyncio.ensure_future(self._open(self._link))

    async def _open(self, link: KernelLink) -> None:
        """Whoever comes in the middle of a cell was not told that it began, and would show the kernel as unknown."""
        await link.open(self, self.kernel_info_timeout)
        if link.is_at_work:
            with contextlib.suppress(WebSocketClosedError):
                self._send_status_message("busy")

    def _find_link(self) -> KernelLink | None:
        links: RelayLinks | None = getattr(self.multi_kernel_manager, "links", None)
        return None if links is None else links.get(self.kernel_id)

    def send(self, channel: str, session: str, frames: Sequence[bytes]) -> None:
        """Called by its channels with what its browser sent."""
        if not self.hold(channel, frames) and self._link is not None:
            self._link.send(channel, session, frames)

    # ---- closing

    def disconnect(self) -> None:
        """Called when the socket closed; the relay keeps from now on what comes for it."""
        if self._link is not None:
            self.give_back()
            self.channels = {}
        super().disconnect()

    def give_back(self) -> None:
        """The socket takes nothing any more; what it has not taken is the relay's again."""
        if self._pending is not None:
            self.leave_pending()
        elif self._link is None:
            return
        for channel in self.channels.values():
            channel.close()
        if self._link is None:
            return  # its kernel had not come
        self._link.shut(self)
        stream = getattr(self.websocket_handler.ws_connection, "stream", None)
        if stream is not None and not stream.closed() and stream.writing():
            # What is given again elsewhere must not arrive here as well.
            stream.close()

    def until_room(self) -> Awaitable[None] | None:
        """What is to be done before more is read of the socket; None: nothing."""
        link = self._link
        if link is None:
            return super().until_room()
        return link.until_room(self) if link.is_full else None

    # ---- what the link gives

    def give(self, channel: str, frames: list[Any]) -> asyncio.Future[None] | None:
        """Write one message. None: the socket has taken it, or it was left out. Raises WebSocketClosedError."""
        stream, connection = self.channels.get(channel), self.websocket_handler.ws_connection
        if stream is None or connection is None or connection.is_closing():
            raise WebSocketClosedError
        self._written = None
        try:
            self.handle_outgoing_message(stream, self._readable(frames))
            if self._too_large:
                self._tell_left_out(json.loads(bytes(frames[3])))
        except WebSocketClosedError:
            raise
        except Exception:
            # One message must not end the link, which would bring it again.
            self.log.exception("kernel=%s message=dropped channel=%s", self.kernel_id, channel)
            self._count("unreadable")
        written, self._written = self._written, None
        if written is None:
            return None
        written.add_done_callback(_retrieve)
        if connection.stream.closed():
            raise WebSocketClosedError
        # A stream that has nothing left to write has handed all of it to the operating system.
        return written if connection.stream.writing() else None

    def _readable(self, frames: list[Any]) -> list[Any]:
        """Large messages come as views of one buffer; what is looked into must be bytes."""
        if not any(isinstance(frame, memoryview) for frame in frames[:6]):
            return frames
        looked_into = 4 if self.subprotocol and self.multi_kernel_manager.allow_tracebacks else 6
        return [bytes(frame) for frame in frames[:looked_into]] + frames[looked_into:]

    def write_message(self, message: Any, binary: bool = False) -> asyncio.Future[None]:
        """Called by Jupyter's connection with what goes to the browser. One that is too large would come for ever:

        a server in gateway mode closes its socket to the gateway over it, comes back, and is given it again.
        """
        if not may_be_sent(self.websocket_handler, len(message), tells_people_apart):
            self._too_large, done = len(message), asyncio.get_running_loop().create_future()
            done.set_result(None)
            return done
        self._written = self.websocket_handler.write_message(message, binary=binary)
        return self._written

    def _tell_left_out(self, parent_header: Any) -> None:
        length, self._too_large = self._too_large, 0
        self._count("too_large")
        self.write_stderr(left_out(self.websocket_handler, length), parent_header)

    def _limit_rate(self, channel: Any, msg: Any, msg_list: Any) -> bool:
        """Called by handle_outgoing_message: whether this message is left out."""
        if self._has_waited(channel, msg, msg_list):
            return False
        is_left_out = bool(super()._limit_rate(channel, msg, msg_list))
        if is_left_out:
            self._count("rate_limit")
        return is_left_out

    def _has_waited(self, channel: Any, msg: Any, msg_list: Any) -> bool:
        """Limits are for what a kernel prints now. What the relay kept comes whole, as fast as the browser takes it."""
        if not self.limit_rate or channel != "iopub":
            return False
        header = msg["header"] = self.get_part("header", msg["header"], msg_list)
        if header.get("msg_type") == "status":
            return False  # Jupyter's own counts begin anew with it
        printed_at = read_date(header.get("date"))
        return printed_at is not None and time.time() - printed_at > self.rate_limit_window

    def _count(self, why: str) -> None:
        if self._link is not None:
            self._link.count(why)


def _retrieve(done: asyncio.Future[None]) -> None:
    """A socket that closes meanwhile is no error of ours."""
    if not done.cancelled():
        done.exception()
