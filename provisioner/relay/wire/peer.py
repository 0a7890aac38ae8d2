"""One connection on a relay's or relay host's socket: reads and writes records without blocking.

``accept`` rejects peers that are neither our user nor root, nor of an account that the caller names.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from .protocol import (
    LONGEST_GREETING,
    LONGEST_QUESTION,
    LONGEST_RECORD,
    ROLES,
    VERSIONS,
    ProtocolError,
    Record,
    RecordReader,
    encode,
    encode_text,
)

_PEER = struct.Struct("iII")
_MOST_PIECES = 512  # of one sendmsg; IOV_MAX is 1024
_MOST_AT_ONCE = 1 << 20  # bytes read in one turn, so that one peer does not starve the others
_MOST_DESCRIPTORS = 3
_BACKLOG = 1024


class Refusal(Exception):
    """A refusal of a peer's request; ``code`` is one of docs/reference/relay.md."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def listen(path: Path, mode: int = 0o600) -> socket.socket:
    """Return a listening socket at a path, in the place of what is there. Raises OSError."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        listening.bind(os.fspath(path))
        path.chmod(mode)
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def peer_account(connection: socket.socket) -> int:
    """Return the number of the account at the other end: of the process that connected, or that listens."""
    _, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(uid)


def accept(listening: socket.socket, admitted: Collection[int] = ()) -> Peer | None:
    """Return the next connection; None if there is none, or if it is another account's.

    ``admitted``: the numbers of accounts that may connect beside our own and root.
    """
    try:
        connection, _ = listening.accept()
    except OSError:
        return None
    if peer_account(connection) not in (0, os.geteuid(), *admitted):
        connection.close()
        return None
    connection.setblocking(False)
    return Peer(connection)


class Peer:
    """A connection. ``role`` is empty until the greeting.

    After ``is_last_said`` the relay does not read it; after ``is_ended`` it closes it.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = RecordReader(LONGEST_GREETING)
        self._out: deque[memoryview] = deque()
        self.is_last_said = False
        self.role = ""
        self.is_ended = False
        self.descriptors: list[int] = []

    @property
    def descriptor(self) -> int:
        return self._connection.fileno()

    @property
    def has_unsent(self) -> bool:
        return bool(self._out)

    def read(self) -> Iterator[Record]:
        """Yield the records that have come.

        Sets ``is_ended`` at the end of the stream, after the caller has taken all records before
        it: a caller that answers one of them would drop the connection, and with it the rest.
        Raises ProtocolError.
        """
        taken = 0
        while taken < _MOST_AT_ONCE and not self.is_ended:
            buffer = self._reader.buffer()
            try:
                count = self._receive(buffer)
            except BlockingIOError:
                self._reader.filled(0)  # it keeps no buffer meanwhile
                break
            except OSError:
                self.is_ended = True
                break
            if count == 0:
                self.is_ended = True
                break
            taken += count
            yield from self._reader.filled(count)
            if count < len(buffer) and self.role == "link":  # it had no more; descriptors cut a read short, too
                break

    def greeted(self, record: Record) -> None:
        """Check the first record and note the role. Raises Refusal."""
        if record.op != "hello":
            raise Refusal("bad_request", f"The first record has op {record.op[:40]!r}. Begin with hello.")
        versions, role = record.header.get("versions"), record.header.get("role")
        if not isinstance(versions, list) or not set(VERSIONS) & {v for v in versions if isinstance(v, int)}:
            raise Refusal("version", f"you speak versions {versions!r}, this relay speaks {list(VERSIONS)}")
        if role not in ROLES:
            raise Refusal("bad_request", f"Role {role!r} is not known. Use {', '.join(ROLES)}.")
        if role == "link":
            self.takes_links()
            return
        self.role = str(role)
        self._reader.longest = LONGEST_QUESTION

    def takes_links(self) -> None:
        """Take records of a link, which have messages in them."""
        self.role = "link"
        self._reader.keeps = True  # a relay has one or a few
        self._reader.longest = LONGEST_RECORD

    def say(self, header: Mapping[str, Any], frames: Sequence[Any] = ()) -> None:
        """Queue a record; ``flush`` sends."""
        if not self.is_last_said:
            self._queue(encode(dict(header), frames))

    def say_text(self, header: str, frames: Sequence[Any] = ()) -> None:
        """Queue a record whose header is a JSON text; ``flush`` sends."""
        if not self.is_last_said:
            self._queue(encode_text(header, frames))

    def _queue(self, pieces: Sequence[Any]) -> None:
        self._out.extend([memoryview(piece) for piece in pieces if len(piece)])  # an empty one is never seen as sent

    def refuse(self, code: str, message: str) -> None:
        """Refuse the request, and end the connection once the refusal was sent."""
        self.say({"op": "refused", "code": code, "message": message})
        self.end_after_sending()

    def end_after_sending(self) -> None:
        self.is_last_said = True

    def flush(self) -> None:
        """Send what the socket takes now; set ``is_ended`` once everything is sent.

        A peer that takes nothing any more may have sent something before it ended: `read` finds
        that, then its end.
        """
        while self._out and not self.is_ended:
            try:
                sent = self._connection.sendmsg(tuple(islice(self._out, _MOST_PIECES)))
            except BlockingIOError:
                return
            except OSError:
                self._out.clear()
                break
            self._advance(sent)
        if self.is_last_said:
            self.is_ended = True

    def take_descriptors(self) -> list[int]:
        """Return the descriptors that came; the caller closes them."""
        taken, self.descriptors = self.descriptors, []
        return taken

    def close(self) -> None:
        for descriptor in self.take_descriptors():
            os.close(descriptor)
        self._out.clear()
        self._connection.close()

    def _advance(self, sent: int) -> None:
        while sent:
            first = self._out[0]
            if sent < first.nbytes:
                self._out[0] = first[sent:]
                return
            sent -= first.nbytes
            self._out.popleft()

    def _receive(self, buffer: memoryview) -> int:
        if self.role != "control":
            return self._connection.recv_into(buffer)
        room = socket.CMSG_SPACE(_MOST_DESCRIPTORS * 4)
        count, ancillary, _, _ = self._connection.recvmsg_into([buffer], room, socket.MSG_CMSG_CLOEXEC)
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                whole = len(data) - len(data) % 4
                self.descriptors += struct.unpack(f"{whole // 4}i", data[:whole])
        if len(self.descriptors) > _MOST_DESCRIPTORS:
            raise ProtocolError(f"{len(self.descriptors)} descriptors came; at most {_MOST_DESCRIPTORS} are taken")
        return count


__all__ = ["Peer", "ProtocolError", "Record", "Refusal", "accept", "listen"]
