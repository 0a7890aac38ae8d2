"""A page's websocket to a kernel: over the kernel's relay if it has one, else over ZMQ sockets.

It opens whether or not the kernel has started; until then `PendingMessages` keeps what the page
sends. The page gets what Jupyter would send: both subprotocols, allowed types, tracebacks, rate
limits. An `AccessFilter` decides which of its messages reach the kernel.
"""

# mypy: disable-error-code="no-untyped-call, misc, override"
# Jupyter Server's websocket connection carries no types, and its methods are not as its base class
# says.
from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Sequence
from typing import Any

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from tornado.web import Finish
from tornado.websocket import WebSocketClosedError

from jupyter_aliquot.gateway.auth.access import Access
from jupyter_aliquot.gateway.auth.identity import tells_people_apart
from jupyter_aliquot.gateway.auth.principals import User
from jupyter_aliquot.gateway.base.jupyter_private import connection_counts, open_sockets
from jupyter_aliquot.gateway.limits.guard import SETTING as GUARD
from jupyter_aliquot.gateway.limits.websocket import fitting, left_out, may_be_sent
from jupyter_aliquot.gateway.relays.link import KernelLink
from jupyter_aliquot.gateway.relays.pool import RelayLinks
from jupyter_aliquot.gateway.sharing.access_filter import NO_MORE, AccessFilter
from jupyter_aliquot.gateway.sharing.collaborator_sessions import relay_session
from jupyter_aliquot.provisioner.relay.wire.error_replies import Answer
from jupyter_aliquot.provisioner.relay.wire.messages import read_date

from .json_messages import json_message
from .own_messages import OwnMessages
from .pending_kernels import PendingKernels
from .pending_messages import PendingMessages
from .transports import CHANNELS, LinkChannel, RelayTransport, Transport, ZmqChannel, ZmqTransport

_REFUSED = 1008
_REQUESTS = ("shell", "control", "stdin")
# The most bytes of answers that a browser has not read. All answers to one interrupt are fewer, so
# a browser that reads stays open.
MOST_ANSWER_BYTES = 8 << 20
_READS_NOTHING = "does not read what it is answered: open it again"


class KernelWebsocketConnection(ZMQChannelsWebsocketConnection):
    """A page's websocket. KernelWebsocketHandler makes one for each socket.

    It is a `Subscriber` of the kernel's link and of its pending messages.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        manager, settings = self.multi_kernel_manager, self.websocket_handler.settings
        self._links: RelayLinks | None = getattr(manager, "links", None)
        # None with a manager whose kernels are never pending.
        self._kernels: PendingKernels | None = getattr(manager, "pending", None)
        self._filter = AccessFilter(self.websocket_handler, manager, self.kernel_id)
        self._own = OwnMessages(settings.get(GUARD))
        self._transport: Transport = ZmqTransport()
        # The messages that the page sent before the kernel started; None once they go to the
        # kernel.
        self._pending: PendingMessages | None = None
        # True while the kernel's channels are not connected yet.
        self.waits = False
        self._is_connected = False
        self._tasks: set[asyncio.Future[None]] = set()
        # The future of the message that was written last, until `give` has read it.
        self._written: asyncio.Future[None] | None = None
        # The size of a message that was too large to be written; 0 for none.
        self._too_large = 0
        # Jupyter looks for this text on the kernel's manager, and fails without it.
        self.kernel_manager.traceback_replacement_message = manager.traceback_replacement_message

    # ---- its user and session

    @property
    def user(self) -> User:
        """The user who opened it, as the identity provider returned the user then."""
        return self._filter.user

    @property
    def is_collaborator(self) -> bool:
        """True if its user is not the kernel's owner."""
        return self._filter.is_collaborator

    @property
    def session_name(self) -> str:
        """The name of its session for the relay."""
        return relay_session(str(self.session_id))

    @property
    def is_registered(self) -> bool:
        """True for the socket of its session."""
        return bool(self.session_key) and self._open_sessions.get(self.session_key) is self.websocket_handler

    @property
    def has_left(self) -> bool:
        """True if its browser has disconnected, perhaps before the socket was open."""
        return bool(getattr(self.websocket_handler, "is_gone", False))

    @property
    def has_relay(self) -> bool:
        """True if its messages go over the kernel's relay."""
        return isinstance(self._transport, RelayTransport)

    @property
    def is_pending(self) -> bool:
        """True while its messages wait for the kernel to start."""
        return self._pending is not None

    # ---- opening

    async def prepare(self) -> None:
        """Called before the browser's socket opens. It opens whether or not the kernel is there."""
        if self._kernels is not None and self._kernels.is_pending(self.kernel_id):
            self.waits = True
            await self._register_session()
        else:
            await super().prepare()

    async def _register_session(self) -> None:
        """Called by prepare. Closes another socket of the same session.

        That one gives back what it has not taken. The browser may be at that other socket by now.
        """
        self._require_browser()
        if self.is_registered:
            return
        self.session.session = self._filter.session_name(self.session.session)
        stale = self._open_sessions.get(f"{self.kernel_id}:{self.session.session}")
        await super()._register_session()
        connection = None if stale is None else stale.connection
        if isinstance(connection, KernelWebsocketConnection):
            connection.give_back()

    def request_kernel_info(self) -> Any:
        """Called by prepare, which waits for the answer."""
        self._require_browser()
        link = self._find_link()
        if link is None:
            return super().request_kernel_info()
        self._transport = RelayTransport(link)
        asking = asyncio.ensure_future(self._ask_whether_it_lives(link))
        asking.add_done_callback(_retrieve)
        self._tasks.add(asking)
        asking.add_done_callback(self._tasks.discard)
        return asyncio.wrap_future(self._kernel_info_future)

    def _find_link(self) -> KernelLink | None:
        return None if self._links is None else self._links.get(self.kernel_id)

    async def _ask_whether_it_lives(self, link: KernelLink) -> None:
        """Ask the kernel whether it lives, unless the relay reports that it works.

        A kernel that works has shown that it lives, and would not answer.
        """
        await link.wait_until_told(self.kernel_info_timeout)
        if link.is_at_work or self.has_left:
            self._finish_kernel_info({})
        else:
            super().request_kernel_info()

    def _require_browser(self) -> None:
        """Raise Finish if the browser has disconnected meanwhile."""
        if self.has_left:
            raise Finish

    def connect(self) -> asyncio.Future[None] | None:
        """Called by KernelWebsocketHandler.open, which awaits the answer."""
        if self._filter.access is Access.NONE:  # its share was taken back while the kernel started
            self.websocket_handler.close(_REFUSED, NO_MORE)
            return _done()
        if self.waits:
            return self._wait()
        self._filter.connected()
        self._is_connected = True
        if isinstance(self._transport, RelayTransport):
            return self._connect_to(self._transport.link)
        opened: asyncio.Future[None] | None = super().connect()
        for channel in self.channels.values():
            if isinstance(channel, ZmqChannel):  # perhaps of another websocket, which has closed
                channel.hold = self.hold
        return opened

    def create_stream(self) -> None:
        """Called by Jupyter's connect."""
        super().create_stream()
        for name in _REQUESTS:
            self.channels[name] = ZmqChannel(self.channels[name], name)

    def _connect_to(self, link: KernelLink) -> asyncio.Future[None]:
        manager = self.multi_kernel_manager
        manager.notify_connect(self.kernel_id)
        self._open_channels()
        manager.add_restart_callback(self.kernel_id, self.on_kernel_restarted)
        manager.add_restart_callback(self.kernel_id, self.on_restart_failed, "dead")
        return asyncio.ensure_future(self._open(link))

    def _open_channels(self) -> None:
        """Make channels without ZMQ sockets."""
        self.channels = {name: LinkChannel(self.send, name, self.session_name, self.log) for name in CHANNELS}
        open_sockets(ZMQChannelsWebsocketConnection).add(self)
        # Small messages follow each other. With Nagle's algorithm, each would wait up to 40 ms
        # until the browser's machine confirms the last.
        self.websocket_handler.set_nodelay(True)

    async def _open(self, link: KernelLink) -> None:
        """Subscribe to the link.

        A page that connects in the middle of a cell has to get the status that the kernel is busy.
        """
        await link.open(self, self.kernel_info_timeout)
        if link.is_at_work:
            with contextlib.suppress(WebSocketClosedError):
                self._send_status_message("busy")

    # ---- while the kernel has not started

    def _wait(self) -> asyncio.Future[None]:
        """Take messages for the kernel until it has started.

        Called in place of connect; done at once.
        """
        assert self._kernels is not None  # ``waits`` implies it
        self._open_channels()
        self._send_status_message("starting")
        self._pending = self._kernels.open(self.kernel_id, self._own.most_kept_bytes)
        self._pending.join(self)
        return _done()

    async def begin(self) -> bool:
        """Called when the kernel has started: do what prepare and connect do otherwise.

        Return whether it is connected.
        """
        self.waits = False
        try:
            await super().prepare()
            opened = self.connect()
            if opened is not None:
                await opened
        except Finish:
            return False  # its browser has disconnected
        except Exception as error:
            self.log.warning("kernel=%s websocket=failed reason=%r", self.kernel_id, error)
            self.end(str(error) or "the kernel cannot be connected")
            return False
        return True

    def go_on(self) -> None:
        """Called when the kept messages are handed on: later ones go to the kernel."""
        self._pending = None
        self._filter.began(self)

    def end(self, reason: str) -> None:
        """Called when the kernel does not start.

        The page then asks for the kernel, and learns that it has ended.
        """
        self._leave_pending()
        self.websocket_handler.close(_REFUSED, fitting(reason))

    def send_now(self, channel: str, frames: Sequence[Any]) -> None:
        """Called with a message that was kept, if the kernel has no relay."""
        self.channels[channel].send_multipart(frames)

    def _leave_pending(self) -> None:
        """Take nothing more for the kernel's pending messages. Idempotent."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.leave(self)

    # ---- closing

    def disconnect(self) -> None:
        """Called when the socket closed, perhaps before it was open.

        From now on the relay keeps the messages for it.
        """
        self._filter.disconnected()
        if self.has_relay:
            self.give_back()
            self.channels = {}
        self._leave_pending()  # its messages stay the kernel's
        self._disconnect_from_jupyter()

    def _disconnect_from_jupyter(self) -> None:
        """Disconnect the socket from Jupyter's handler. Idempotent.

        Jupyter takes each socket for one that it counted, and gives up what is buffered for the
        next.
        """
        if self._is_connected:
            self._is_connected = False
            # Jupyter's disconnect removes it, and connect may have failed before it was added.
            open_sockets(ZMQChannelsWebsocketConnection).add(self)
            super().disconnect()
            self.channels = {}  # a buffer, if there is one, has them
            return
        counts: dict[str, int] = connection_counts(self.multi_kernel_manager)
        count = counts.pop(self.kernel_id, None)
        try:
            super().disconnect()
        finally:
            if count is not None:
                counts[self.kernel_id] = count

    def give_back(self) -> None:
        """Take nothing more; the relay gets back what the socket has not taken."""
        if self._pending is None and not self.has_relay:
            return
        self._leave_pending()
        for channel in self.channels.values():
            channel.close()
        if not self.has_relay:
            return  # its kernel had not started
        self._transport.leave(self)
        stream = getattr(self.websocket_handler.ws_connection, "stream", None)
        if stream is not None and not stream.closed() and stream.writing():
            stream.close()  # a message that is given again elsewhere must not arrive here, too

    def refuse_socket(self, reason: str) -> None:
        """Close the socket because of what its user did, or may not do any more."""
        self.give_back()
        self.websocket_handler.close(_REFUSED, reason)

    def look_again(self) -> None:
        """Called after a change of the kernel's shares.

        Closes the socket of a user who lost access. A user who may only read from now on sends
        nothing that no relay has yet.
        """
        if self._filter.access < Access.WRITE:
            self._transport.drop_requests(self, self._filter.may_still_send)
        if self._filter.access is Access.NONE:
            self.refuse_socket(NO_MORE)

    def revoke(self) -> None:
        """Called when its user's token is no longer accepted.

        An owner's cells stay: the kernel is the owner's.
        """
        if self._kernels is not None:
            self._kernels.drop_collaborator(self.kernel_id, self.user.name)

    # ---- from the page to the kernel

    def handle_incoming_message(self, incoming_msg: Any) -> None:
        """Called for each message of the browser."""
        if self.channels and self._filter.passes(self, incoming_msg):
            super().handle_incoming_message(incoming_msg)

    def ask_kernel(self, channel: str, message: dict[str, Any]) -> None:
        """Send a request that the filter made."""
        self.session.send(self.channels[channel], message)

    def send(self, channel: str, session: str, frames: Sequence[bytes]) -> None:
        """Called by its channels with each message of its browser."""
        if not self.hold(channel, frames):
            self._transport.send(channel, session, frames)

    def hold(self, channel: str, frames: Sequence[Any]) -> bool:
        """Keep a message if earlier ones are kept; return whether it was."""
        if self._pending is None:
            return False
        self._pending.keep(self, channel, frames)
        return True

    def until_room(self) -> Awaitable[None] | None:
        """Return what to await before tornado reads on from the socket; None: nothing."""
        return self._transport.until_room(self) if self.has_relay else self._own.until_room()

    # ---- from the kernel to the page

    def give(self, channel: str, frames: list[Any]) -> asyncio.Future[None] | None:
        """Write one message of the link.

        Return None if the socket has taken it, or it was left out. Raises WebSocketClosedError.
        """
        if self._filter.takes_reply(self, channel, frames):
            return None
        stream, connection = self.channels.get(channel), self.websocket_handler.ws_connection
        if stream is None or connection is None or connection.is_closing():
            raise WebSocketClosedError
        self._written = None
        try:
            self._hand_out(stream, frames)
            if self._too_large:
                self._tell_left_out(json.loads(bytes(frames[3])))
        except WebSocketClosedError:
            raise
        except Exception:
            # One message must not end the link, which would deliver it again.
            self.log.exception("kernel=%s message=dropped channel=%s", self.kernel_id, channel)
            self._transport.count(self, "unreadable")
        written, self._written = self._written, None
        if written is None:
            return None
        written.add_done_callback(_retrieve)
        if connection.stream.closed():
            raise WebSocketClosedError
        # A stream that has nothing left to write has handed all of it to the operating system.
        return written if connection.stream.writing() else None

    def _hand_out(self, stream: Any, frames: list[Any]) -> None:
        """Write a message as handle_outgoing_message does, with parts that are not read and written again."""
        page_reads_json = not self.subprotocol and self.multi_kernel_manager.allow_tracebacks
        made = json_message(self.session, stream.channel, frames) if page_reads_json else None
        if made is None:
            self.handle_outgoing_message(stream, self._readable(frames))
        elif not self._limit_rate(
            stream.channel, {"header": made.header, "parent_header": None, "content": None}, made.parts
        ):
            self.write_message(made.text)

    def _readable(self, frames: list[Any]) -> list[Any]:
        """Return the frames with those that are read as bytes.

        Large messages come as views of one buffer.
        """
        if not any(isinstance(frame, memoryview) for frame in frames[:6]):
            return frames
        looked_into = 4 if self.subprotocol and self.multi_kernel_manager.allow_tracebacks else 6
        return [bytes(frame) for frame in frames[:looked_into]] + frames[looked_into:]

    def write_message(self, message: Any, binary: bool = False) -> asyncio.Future[None]:
        """Called by Jupyter's connection with each message for the browser.

        A message that is too large would come back forever: a server in gateway mode closes its
        socket to the gateway over it, reconnects, and gets it again.
        """
        length = _wire_bytes(message)
        if not may_be_sent(self.websocket_handler, length, tells_people_apart):
            self._too_large = length
            return _done()
        self._written = self.websocket_handler.write_message(message, binary=binary)
        return self._written

    def _tell_left_out(self, parent_header: Any) -> None:
        length, self._too_large = self._too_large, 0
        self._transport.count(self, "too_large")
        self.write_stderr(left_out(self.websocket_handler, length), parent_header)

    def _limit_rate(self, channel: Any, msg: Any, msg_list: Any) -> bool:
        """Called by handle_outgoing_message. Return whether this message is left out."""
        if self._has_waited(channel, msg, msg_list):
            return False
        is_left_out = bool(super()._limit_rate(channel, msg, msg_list))
        if is_left_out:
            self._transport.count(self, "rate_limit")
        return is_left_out

    def _has_waited(self, channel: Any, msg: Any, msg_list: Any) -> bool:
        """Return whether the relay kept the message, so that no rate limit applies to it.

        Limits are for what a kernel prints now. Kept messages come whole, as fast as the browser
        takes them.
        """
        if not self.limit_rate or channel != "iopub":
            return False
        header = msg["header"] = self.get_part("header", msg["header"], msg_list)
        if header.get("msg_type") == "status":
            return False  # Jupyter's own counts begin anew with it
        printed_at = read_date(header.get("date"))
        return printed_at is not None and time.time() - printed_at > self.rate_limit_window

    # ---- from the gateway to the page

    @property
    def protocol(self) -> str:
        """The protocol of what `encode` makes.

        Messages are the same for all websockets of one protocol.
        """
        return str(self.subprotocol or "")

    def encode(self, answer: Answer, parent: dict[str, Any]) -> str | bytes:
        """Make a message of the gateway's own, as one of the kernel's, in the websocket's protocol."""
        return self._own.encode(self, answer, parent)

    def tell(self, answer: Answer, parent: dict[str, Any]) -> asyncio.Future[None] | None:
        """Send a message of the gateway's own. Return None if the socket is closed."""
        return self._own.write(self, self._own.encode(self, answer, parent))

    def tell_encoded(self, message: str | bytes) -> None:
        """Send an encoded message. Closes the socket of a page that reads none of them."""
        self._own.write_bounded(self, message)
        unread = self._own.unread_bytes
        if unread > MOST_ANSWER_BYTES:
            self.log.warning("kernel=%s websocket=closed bytes=%d %s", self.kernel_id, unread, _READS_NOTHING)
            self.end(_READS_NOTHING)

    def refuse(self, channel: str, frames: Sequence[Any], words: str) -> None:
        """Answer a message for which there is no room. Called by the pending messages."""
        self._own.refuse(self, channel, frames, words)


def look_at_sockets(kernel_id: str) -> None:
    """Close the sockets whose users lost a kernel. Called after a change of its shares."""
    for connection in list(open_sockets(ZMQChannelsWebsocketConnection)):
        if isinstance(connection, KernelWebsocketConnection) and connection.kernel_id == kernel_id:
            connection.look_again()


def _wire_bytes(message: str | bytes) -> int:
    """Return the bytes of a message on the wire, where text is UTF-8."""
    return len(message) if isinstance(message, bytes) or message.isascii() else len(message.encode())


def _done() -> asyncio.Future[None]:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done


def _retrieve(done: asyncio.Future[None]) -> None:
    """Retrieve the exception of a socket that closed meanwhile, which is no error of ours."""
    if not done.cancelled():
        done.exception()
