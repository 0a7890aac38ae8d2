"""One process of a kernel at its hook socket.

A session reads and checks the process's messages, owns its pages, and notices its end. The messages
are untrusted: one that the header does not allow is refused and ends the connection, nothing more.
"""

from __future__ import annotations

import array
import asyncio
import errno
import logging
import socket
import struct
import time
from typing import Protocol

from jupyter_aliquot.gpu_hook.agent.base.processes import Process, ProcessWatch
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import LedgerError
from jupyter_aliquot.gpu_hook.agent.pages.activity_page import ActivitySide
from jupyter_aliquot.gpu_hook.agent.pages.agent_page import AgentSide
from jupyter_aliquot.gpu_hook.agent.pages.hook_page import HookSide
from jupyter_aliquot.gpu_hook.base.pacing import TokenBucket
from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import (
    Credit,
    Hello,
    MalformedError,
    Message,
    MessageType,
    Moved,
    RefusalReason,
    Residency,
    Role,
    Segment,
    SelfCheckResult,
    Wake,
)

log = logging.getLogger(__name__)

_HELLO_SECONDS = 5.0
_MESSAGES_A_TURN = 16  # so that a process that floods us does not keep the loop from the others
_PEER = struct.Struct("iII")
_FULL_SOCKET = (errno.EAGAIN, errno.ENOBUFS, errno.ETOOMANYREFS)  # the last: too many descriptors are on their way
_FULL_SOCKET_SECONDS = 0.005


class InvisiblePeerError(Exception):
    """A process in a pid namespace that is neither ours nor below it.

    It has no pid here, so the agent could not see its end.
    """


FromHook = Credit | SelfCheckResult | Wake | Moved


class SessionOwner(Protocol):
    """The kernel that a session belongs to."""

    def join(self, session: HookSession, hello: Hello) -> None: ...

    def take(self, session: HookSession, message: FromHook) -> None: ...

    def leave(self, session: HookSession) -> None: ...


class HookSession:
    """One process's session.

    ``number`` names it within the agent; the ledger has its loans under it. ``bucket`` limits how
    fast it is read.
    """

    def __init__(self, number: int, connection: socket.socket, owner: SessionOwner, bucket: TokenBucket) -> None:
        """Take a connection.

        Raises OSError (ProcessLookupError too) when the peer is gone already, and
        InvisiblePeerError.
        """
        self.number = number
        self.role = Role.OBSERVER
        self.own_pid = 0  # as the process sees itself
        self.told_residency = Residency.RESIDENT  # from its HELLO
        self.agent_side: AgentSide | None = None
        self.hook_side: HookSide | None = None
        self.activity_page: ActivitySide | None = None  # None for a process whose hook has none
        self._connection = connection
        self._owner = owner
        self._bucket = bucket
        self._pause: asyncio.TimerHandle | None = None  # set while the agent does not read it
        self._loop = asyncio.get_running_loop()
        self._is_joined = False
        self._has_checked = False
        self._is_closed = False
        self._closing: asyncio.Handle | None = None
        connection.setblocking(False)
        self.pid: int = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[0]
        if self.pid == 0:
            raise InvisiblePeerError("the agent cannot see this process: run the agent in the host's pid namespace")
        # A child that inherited the socket would keep it open after its parent's end.
        self._process = ProcessWatch(self.pid, self._process_ended)
        self._timer = self._loop.call_later(_HELLO_SECONDS, self._hello_is_late)
        self._loop.add_reader(connection.fileno(), self._read)

    @property
    def start_time_ticks(self) -> int:
        return self._process.start_time_ticks

    @property
    def process(self) -> Process:
        return Process(self.pid, self.start_time_ticks)

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive

    @property
    def is_ending(self) -> bool:
        """Return whether no message can reach it any more: it is closed, or will be in a moment."""
        return self._is_closed or self._closing is not None

    def open_pages(self) -> None:
        """Make the pages that this process itself writes, to hand over with the agent's page.

        Raises OSError.
        """
        self.hook_side = HookSide()
        if self.role is Role.PROCESS:
            self.activity_page = ActivitySide()

    def welcome(self) -> None:
        """Welcome the process, and hand it its pages. A kernel's self-check does not wait for them."""
        agent_side, hook_side = self.agent_side, self.hook_side
        assert agent_side is not None  # opened before
        assert hook_side is not None
        welcome = protocol.Welcome(agent_side.device_count)
        try:
            self._hand_over(welcome, agent_side.descriptor, hook_side.descriptor)
            if self.activity_page is not None:
                self._hand_over(
                    protocol.ActivityPageNotice(protocol.ActivityPageKind.OWN), self.activity_page.descriptor
                )
        except OSError as error:
            if self.role is not Role.CHECK or error.errno != errno.EPIPE:
                self._close_soon(f"cannot be welcomed: {error}")
        finally:
            agent_side.close_descriptor()
            hook_side.close_descriptor()
            if self.activity_page is not None:
                self.activity_page.close_descriptor()

    def notify(self, notice: protocol.ActivityPageNotice, descriptor: int | None = None) -> bool:
        """Send a notice of a peer's activity page with its descriptor.

        Return False if the socket is full: send it again later.
        """
        if self._is_closed:
            return True
        try:
            self._hand_over(notice, *(() if descriptor is None else (descriptor,)))
        except OSError as error:
            if error.errno in _FULL_SOCKET:
                return False
            self._close_soon(f"cannot be written to: {error}")
        return True

    def send(self, message: Message) -> None:
        """Send one message.

        A process that does not read is dropped, but later: the caller may be iterating.
        """
        if self._is_closed:
            return
        try:
            self._connection.send(protocol.pack(message))
        except OSError as error:
            self._close_soon(f"cannot be written to: {error}")

    async def send_segment(self, segment: Segment, descriptor: int, patience_seconds: float) -> bool:
        """Hand a descriptor over; return whether it went.

        There are many at once, so this waits for a full socket.
        """
        deadline = self._loop.time() + patience_seconds
        while not self._is_closed:
            try:
                self._hand_over(segment, descriptor)
                return True
            except OSError as error:
                if error.errno not in _FULL_SOCKET:
                    self._close_soon(f"cannot be written to: {error}")
                    return False
            if self._loop.time() > deadline:
                return False
            await asyncio.sleep(_FULL_SOCKET_SECONDS)
        return False

    def refuse(self, reason: RefusalReason, text: str) -> None:
        """Tell the process the reason, and close."""
        log.info("event=hook_refused pid=%d reason=%s text=%r", self.pid, reason.name, text)
        self.send(protocol.Refuse(reason, text))
        self.close()

    def close(self) -> None:
        """End the session; the owner takes back what the process was lent. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._timer.cancel()
        if self._closing is not None:
            self._closing.cancel()
        if self._pause is not None:
            self._pause.cancel()
        self._process.close()
        self._loop.remove_reader(self._connection.fileno())
        self._connection.close()
        try:
            self._owner.leave(self)
        finally:
            for page in (self.agent_side, self.hook_side, self.activity_page):
                if page is not None:
                    page.close()

    def _hand_over(self, message: Message, *descriptors: int) -> None:
        """Send a message with descriptors. Raises OSError."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors).tobytes())]
        self._connection.sendmsg([protocol.pack(message)], rights if descriptors else [])

    def _close_soon(self, why: str) -> None:
        if self._closing is None:
            log.info("event=hook_dropped pid=%d reason=%r", self.pid, why)
            self._closing = self._loop.call_soon(self.close)

    def _process_ended(self) -> None:
        self.close()

    def _hello_is_late(self) -> None:
        self.refuse(RefusalReason.MESSAGE, f"no HELLO within {_HELLO_SECONDS:g} s")

    def _read(self) -> None:
        for _ in range(_MESSAGES_A_TURN):
            if self._is_closed:
                return
            if self._bucket.seconds_until(time.monotonic()) > 0:
                return self._pause_reading()
            try:
                datagram, ancillary, _, _ = self._connection.recvmsg(
                    protocol.LARGEST_MESSAGE + 1, socket.CMSG_SPACE(64)
                )
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                return self.close()
            _drop_descriptors(ancillary)
            if not datagram:
                return self.close()
            self._bucket.charge(1, time.monotonic())
            self._take(datagram)

    def _pause_reading(self) -> None:
        """Stop reading for a while, since the kernel sends more than its share.

        The rest waits in its sockets.
        """
        self._loop.remove_reader(self._connection.fileno())
        self._pause = self._loop.call_later(
            self._bucket.seconds_until(time.monotonic(), _MESSAGES_A_TURN), self._go_on_reading
        )

    def _go_on_reading(self) -> None:
        self._pause = None
        self._loop.add_reader(self._connection.fileno(), self._read)

    def _take(self, datagram: bytes) -> None:
        try:
            self._dispatch(protocol.unpack(datagram))
        except MalformedError as error:
            self.refuse(error.reason, str(error))
        except LedgerError as error:
            self.refuse(RefusalReason.MESSAGE, str(error))

    def _dispatch(self, message: Message) -> None:
        if isinstance(message, Hello):
            if self._is_joined:
                raise MalformedError("got a second HELLO")
            self._is_joined = True
            self._timer.cancel()
            self.role, self.own_pid = message.role, message.pid
            self.told_residency = message.residency
            self._owner.join(self, message)
            return
        if not self._is_joined:
            raise MalformedError("got another message before HELLO")
        self._owner.take(self, self._check(message))

    def _check(self, message: Message) -> FromHook:
        """Return the message if a process of this role may send it now. Raises MalformedError."""
        if isinstance(message, Credit):
            if message.type not in (MessageType.CREDIT_REQUEST, MessageType.CREDIT_RETURN):
                raise MalformedError(f"got {message.type.name}, which only the agent sends")
            if self.role is Role.OBSERVER:
                raise MalformedError("an observer has no credit")
            return message
        if isinstance(message, Wake | Moved):
            if self.role is not Role.PROCESS:
                raise MalformedError("got a word about residency from who has no memory")
            return message
        if not isinstance(message, SelfCheckResult):
            raise MalformedError("got a message that only the agent sends")
        if self.role is not Role.CHECK or self._has_checked:
            raise MalformedError("got a self-check from another than the kernel's start, or a second one")
        # each check is written to the journal, so a process may not repeat it at will
        self._has_checked = True
        return message


def _drop_descriptors(ancillary: list[tuple[int, int, bytes]]) -> None:
    """Close descriptors that a peer passed unasked.

    A hostile peer would otherwise fill the agent's table.
    """
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            for descriptor in array.array("i", data[: len(data) - len(data) % 4]):
                socket.close(descriptor)
