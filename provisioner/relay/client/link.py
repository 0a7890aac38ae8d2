"""A gateway's end of one connection to a relay. The caller reconnects.

link = await RelayLink.connect(record, listener)
link.attach(session)            # from now on iopub, and the replies of this session, come to the listener
link.send("shell", session, frames)
link.ack(message.seq)           # once the browser's socket has it
link.close()
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from jupyter_aliquot.gpu_hook.base.unix_sockets import connect
from jupyter_aliquot.gpu_hook.waiting import forget_reading, within
from jupyter_aliquot.provisioner.errors import RelayProtocolError, RelayUnavailableError
from jupyter_aliquot.provisioner.relay.wire.files import RelayRecord
from jupyter_aliquot.provisioner.relay.wire.peer import peer_account
from jupyter_aliquot.provisioner.relay.wire.protocol import (
    LONGEST_HEADER_OF_ANOTHER,
    LONGEST_OF_ANOTHER,
    LONGEST_RECORD,
    VERSIONS,
    Frame,
    ProtocolError,
    Record,
    RecordReader,
    charge,
    encode,
    encode_text,
    encode_whole,
)

from .unacknowledged import Unacknowledged

_HELLO_SECONDS = 10.0
_MOST_FIELDS = 32


@dataclass(frozen=True)
class LinkMessage:
    """A message of the kernel.

    ``frames`` begin at the delimiter. ``session`` None: for all sessions (iopub). ``seq`` stays the
    same when the message is sent again, within one ``RelayLink.epoch``.
    """

    seq: int
    channel: str
    session: str | None
    frames: list[Frame] = field(repr=False)


@dataclass(frozen=True)
class Activity:
    """The kernel's activity.

    ``open``: unfinished requests. ``work``: cells and comm messages among them. ``since``: when the
    present work began, None without work. ``last``: when work last began or ended, or the kernel
    last sent an output. ``input``: since when all that runs waits for input(). Times are seconds
    since the epoch.
    """

    open: int
    work: int
    since: float | None
    last: float
    input: float | None = None


@dataclass(frozen=True)
class KernelState:
    """The kernel's ``state``.

    It is ``starting`` (not connected yet), ``started`` (takes requests) or ``ended``. ``ended``:
    the fields of Ended, as far as the relay knows them; empty otherwise.
    """

    state: str
    incarnation: int
    ended: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Dropped:
    """Output that the relay dropped since its start, because too much waited for a gateway."""

    messages: int
    bytes: int


@dataclass(frozen=True)
class Attached:
    """The notice that ``attach`` took effect: the relay sent earlier messages without it."""

    session: str


@dataclass(frozen=True)
class KnownCell:
    """A cell that shows its output.

    ``cell_id``: as its client named it; ``began``: seconds since the epoch; ``input``: the prompt
    and password of the question that waits for its user, None without one.
    """

    msg_id: str
    cell_id: str | None
    began: float
    is_open: bool
    input: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class KnownCells:
    """The cells that ended last, then those that are open.

    A link gets them when it begins, and when a cell asks for input.
    """

    cells: tuple[KnownCell, ...]


@dataclass(frozen=True)
class Unread:
    """The kernel's backlog, and the number of messages that the relay refused since its start.

    It refuses messages for want of room.
    """

    messages: int
    bytes: int
    refused: int


@dataclass(frozen=True)
class Seen:
    """The answer to `RelayLink.ask_seen`: which of the named requests reached the relay.

    Without ``saw_all`` others may have come: an earlier relay, which was killed, may have taken them, or
    this one has forgotten some.
    """

    number: int
    ids: frozenset[str]
    saw_all: bool


LinkEvent = LinkMessage | Activity | KernelState | Dropped | Attached | KnownCells | Unread | Seen


class LinkListener(Protocol):
    """A taker of events, called on the event loop in the relay's order.

    Its methods must not block; an exception ends the link.
    """

    def take(self, event: LinkEvent) -> None:
        """Take an event."""

    def lost(self, reason: str) -> None:
        """Note that the connection ended, and not by ``close``. Nothing comes after this."""


@dataclass(frozen=True)
class SentRequest:
    """A request that the relay has not taken yet.

    Sent again on another link, the relay takes it only once. ``size``: what it counts for in
    ``RelayLink.untaken_bytes``.
    """

    number: int
    channel: str
    session: str
    frames: tuple[Any, ...] = field(repr=False)
    size: int = 0


class RelayLink:
    """One link, made by ``connect``."""

    def __init__(self, listener: LinkListener) -> None:
        self._listener = listener
        self._stream = _Stream(self._take, self._end)
        self._greeted: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        self._sent: deque[SentRequest] = deque()
        self._number = 0
        self._is_closed = False
        self._unacknowledged: Unacknowledged | None = None
        self.epoch = ""
        self.untaken_bytes = 0
        self.taken: Callable[[], object] = lambda: None  # called when the relay took some

    @classmethod
    async def connect(cls, record: RelayRecord, listener: LinkListener) -> RelayLink:
        """Greet the relay. The kernel's state and activity come to the listener at once.

        Raises RelayError.
        """
        link = cls(listener)
        path = record.link_socket
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            await within(connect(connection, path), _HELLO_SECONDS)
            if check_listener(connection, record.folder) != os.geteuid():
                link._bound()
            await asyncio.get_running_loop().create_unix_connection(lambda: link._stream, sock=connection)
            hello = {"op": "hello", "versions": list(VERSIONS), "role": "link", "pid": os.getpid()}
            link._stream.write([encode_whole(hello)])
            greeting = await within(link._greeted, _HELLO_SECONDS)
        except asyncio.TimeoutError:
            link._abandon(connection)
            raise RelayUnavailableError(f"the relay at {path} did not answer within {_HELLO_SECONDS:g} s") from None
        except OSError as error:
            link._abandon(connection)
            raise RelayUnavailableError(f"the relay at {path} does not answer: {error.strerror or error}") from error
        except BaseException:
            link._abandon(connection)
            raise
        link.epoch = str(greeting.header.get("epoch"))
        return link

    def _bound(self) -> None:
        """Bound what is taken of a relay that is another account's: its owner can replace it."""
        self._stream.reader.longest = LONGEST_OF_ANOTHER
        self._stream.reader.longest_header = LONGEST_HEADER_OF_ANOTHER
        self._unacknowledged = Unacknowledged()

    @property
    def fault(self) -> str:
        """Return how the relay broke the protocol, which ended the link; empty if it did not."""
        return self._stream.fault

    @property
    def is_open(self) -> bool:
        """Tell whether the link was neither lost nor closed."""
        return self._stream.is_open

    @property
    def untaken(self) -> tuple[SentRequest, ...]:
        """The requests that the relay has not confirmed.

        After a loss, send them on the next link.
        """
        return tuple(self._sent)

    def attach(self, session: str, *, is_collaborator: bool = False) -> None:
        """Ask for a session's messages, waiting and new.

        The last link to attach the session has it. The first session that is no collaborator's begins the
        link anew: after `Attached`, it gets all that was not acknowledged, or acknowledged to keep.
        """
        self._write({"op": "attach", "session": session, **({"guest": True} if is_collaborator else {})})

    def detach(self, session: str) -> None:
        """Have a session's messages kept for the next link; without any session iopub is kept, too."""
        self._write({"op": "detach", "session": session})

    def send(self, channel: str, session: str, frames: Sequence[Any]) -> None:
        """Forward a request (shell, control) or an input_reply (stdin).

        ``frames`` begin at the delimiter and are signed.
        """
        self._number += 1
        sent = SentRequest(self._number, channel, session, tuple(frames), charge(frames))
        self._sent.append(sent)
        self.untaken_bytes += sent.size
        self._write({"op": "send", "channel": channel, "session": session, "n": self._number}, frames)

    def ask_seen(self, session: str, ids: Sequence[str]) -> int:
        """Ask which of a session's requests came, on this link and others.

        Returns the number of the `Seen` to come. The relay remembers its last 10,000 requests.
        """
        self._number += 1
        self._write({"op": "seen", "session": session, "ids": list(ids), "n": self._number})
        return self._number

    def ack(self, seq: int, *, keep: bool = False) -> None:
        """Acknowledge a message and all before it on this link.

        The relay need not keep them any more; with ``keep``, it keeps outputs for the owner.
        """
        if self._unacknowledged is not None:
            self._unacknowledged.acknowledged(seq)
        kept = ',"keep":true' if keep else ""
        self._stream.write(encode_text(f'{{"op":"ack","seq":{seq}{kept}}}'))

    async def drain(self) -> None:
        """Wait until what was sent is on its way, as StreamWriter.drain does."""
        await self._stream.drain()

    def close(self) -> None:
        """Close the connection; the listener gets nothing more. Idempotent."""
        self._is_closed = True
        self._stream.close()

    def _abandon(self, connection: socket.socket) -> None:
        self.close()
        if self._stream.is_new:
            connection.close()

    def _write(self, header: Mapping[str, Any], frames: Sequence[Any] = ()) -> None:
        self._stream.write(encode(dict(header), frames))

    def _take(self, record: Record) -> None:
        if self._is_closed:
            return
        if not self._greeted.done():
            self._take_greeting(record)
        elif record.op == "got":
            while self._sent and self._sent[0].number <= int(record.header["n"]):
                self.untaken_bytes -= self._sent.popleft().size
            self.taken()
        elif record.op == "refused":
            raise ProtocolError(f"it refused: {record.header.get('message')}")
        elif (event := read_event(record)) is not None:
            if isinstance(event, LinkMessage) and self._unacknowledged is not None:
                self._unacknowledged.came(event.seq, charge(event.frames))
            self._listener.take(event)

    def _take_greeting(self, record: Record) -> None:
        if record.op == "hello":
            self._greeted.set_result(record)
        else:
            self._greeted.set_exception(RelayProtocolError(f"the relay refused: {record.header.get('message')}"))

    def _end(self, reason: str) -> None:
        if not self._greeted.done():
            kind = RelayProtocolError if self.fault else RelayUnavailableError
            self._greeted.set_exception(kind(f"lost the relay: {reason}"))
        elif not self._is_closed:
            self._is_closed = True
            self._listener.lost(reason)


def read_event(record: Record) -> LinkEvent | None:
    """Return the event in a record; None for one that this version does not know.

    Raises ProtocolError.
    """
    header = record.header
    try:
        if record.op == "message":
            session = header["session"]
            return LinkMessage(int(header["seq"]), str(header["channel"]), session, record.frames)
        if record.op == "activity":
            since, last = header["since"], float(header["last"])
            asked = header.get("input")
            return Activity(
                int(header["open"]),
                int(header["work"]),
                None if since is None else float(since),
                last,
                None if asked is None else float(asked),
            )
        if record.op == "kernel":
            return KernelState(str(header["state"]), int(header["incarnation"]), _scalars(header.get("ended") or {}))
        if record.op == "attached":
            return Attached(str(header["session"]))
        if record.op == "cells":
            return KnownCells(tuple(_read_cell(told) for told in header["cells"]))
        if record.op == "unread":
            return Unread(int(header["messages"]), int(header["bytes"]), int(header["refused"]))
        if record.op == "seen":
            ids = frozenset(str(msg_id) for msg_id in header["ids"])
            return Seen(int(header["n"]), ids, header["saw_all"] is True)
        if record.op == "dropped":
            return Dropped(int(header["messages"]), int(header["bytes"]))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ProtocolError(f"its {record.op} record lacks a field: {error!r}") from error
    return None


def _read_cell(told: Mapping[str, Any]) -> KnownCell:
    cell_id = told["cell_id"]
    name = None if cell_id is None else str(cell_id)
    question = None if told.get("input") is None else _scalars(told["input"])
    return KnownCell(str(told["msg_id"]), name, float(told["began"]), bool(told["is_open"]), question)


def _scalars(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are texts, numbers or None. A replaced relay can send any others, to be kept here."""
    if len(told) > _MOST_FIELDS:
        raise ValueError(f"{len(told)} fields; at most {_MOST_FIELDS} are known")
    return {str(name): value for name, value in told.items() if value is None or isinstance(value, (str, int, float))}


def check_listener(connection: socket.socket, folder: Path) -> int:
    """Refuse a connection that leads out of a relay's folder, to a process of another account.

    Return the folder's account, which may put a link in the place of its relay's socket. Raises
    OSError without the folder, and RelayUnavailableError.
    """
    owner, listener = os.stat(folder).st_uid, peer_account(connection)
    if listener != owner:
        raise RelayUnavailableError(
            f"the socket in {folder}, of account {owner}, leads to a process of account {listener}: remove the link"
        )
    return owner


def _nothing(_: Any) -> None:
    """Do nothing: called by a stream that is over."""


class _Stream(asyncio.BufferedProtocol):
    """A stream that turns bytes into records and back.

    It calls ``take`` for each record, ``end`` once.
    """

    def __init__(self, take: Any, end: Any) -> None:
        self._take = take
        self._end = end
        self.reader = RecordReader(LONGEST_RECORD)
        self.fault = ""
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._reason = "it closed the connection"

    @property
    def is_new(self) -> bool:
        """Tell whether there is no connection yet."""
        return self._transport is None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def write(self, buffers: Sequence[Any]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(buffers)

    async def drain(self) -> None:
        await self._writable.wait()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.reader.buffer()

    def buffer_updated(self, count: int) -> None:
        """Read what came. Called by the transport. Errors end the connection, with the reason."""
        try:
            for record in self.reader.filled(count):
                self._take(record)
        except ProtocolError as error:
            self._reason = self.fault = f"it cannot be understood: {error}"
            with contextlib.suppress(Exception):
                self._transport.abort()  # type: ignore[union-attr]  # set before the first byte

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._writable.set()
        end, self._take, self._end = self._end, _nothing, _nothing  # the link holds this stream: no reference back
        forget_reading(self._transport)
        end(self._reason if error is None else str(error) or type(error).__name__)
