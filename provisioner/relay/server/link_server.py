"""Serve gateways' links and control questions at link.sock. Owns the connections."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from jupyter_aliquot.provisioner.relay.store.delivery import Delivery
from jupyter_aliquot.provisioner.relay.store.output_store import Store
from jupyter_aliquot.provisioner.relay.wire.files import socket_mode
from jupyter_aliquot.provisioner.relay.wire.messages import HEADER, find_delimiter, read_object
from jupyter_aliquot.provisioner.relay.wire.peer import Peer, Record, Refusal, accept, listen
from jupyter_aliquot.provisioner.relay.wire.protocol import ProtocolError
from jupyter_aliquot.provisioner.relay.wire.rmtree import remove_folder

from .poll_loop import READ, WRITE, Watcher

_SEEN_REQUESTS = 10_000
_LONGEST_SEEN = 100
_LONGEST_SESSION = 200
_REQUEST_CHANNELS = ("shell", "control", "stdin")


class Owner(Protocol):
    """The relay, as `LinkServer` sees it."""

    def greeting(self) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
        """Return the answer to hello, and the reports that a new link gets at once."""

    def request(self, channel: str, session: str, message: Sequence[Any]) -> None:
        """Forward a request to the kernel.

        *message* starts at the delimiter and was not seen before.
        """

    def attached(self) -> None:
        """Note that a link attached a session."""

    def ask(self, peer: Peer, record: Record) -> None:
        """Answer a control question. Raises Refusal."""


class SeenRequests:
    """The requests that came, by session, as many as are remembered: cells, and others.

    A gateway that lost its link repeats requests that were not confirmed. Ids count by session: a
    collaborator could guess the ids of the owner's requests. Cells are remembered apart, for a page
    asks for them alone, and widgets or completions would soon push them out.
    """

    def __init__(self) -> None:
        self._cells: dict[str, None] = {}  # the oldest first
        self._others: dict[str, None] = {}
        # Whether each cell that came is still remembered. A forgotten one may wait in the kernel: it is not lost.
        self.has_all_cells = True

    def add(self, session: str, header: Mapping[str, Any]) -> bool:
        """Remember a request by its header; return whether it is new. One without id is."""
        msg_id, is_cell = header.get("msg_id"), header.get("msg_type") == "execute_request"
        if not isinstance(msg_id, str):
            return True
        requests, key = self._cells if is_cell else self._others, _request_key(session, msg_id)
        if key in requests:
            return False
        requests[key] = None
        if len(requests) > _SEEN_REQUESTS:
            del requests[next(iter(requests))]
            self.has_all_cells = self.has_all_cells and not is_cell
        return True

    def cells_of(self, session: str, ids: Sequence[Any]) -> list[str]:
        """Return those of the ids that a cell of this session has."""
        return [msg_id for msg_id in ids if isinstance(msg_id, str) and _request_key(session, msg_id) in self._cells]


class LinkServer:
    """All connections of one relay. ``count`` is the number of links, without control connections."""

    def __init__(
        self,
        loop: Watcher,
        listening: socket.socket,
        store: Store,
        delivery: Delivery,
        owner: Owner,
        admitted: Collection[int] = (),
    ) -> None:
        """``admitted``: the numbers of other accounts that may connect: the gateway's."""
        self._loop = loop
        self._listening = listening
        self._store = store
        self._delivery = delivery
        self._owner = owner
        self._admitted = frozenset(admitted)
        self._peers: dict[int, Peer] = {}
        self._links: set[int] = set()
        self._unsent: set[int] = set()  # to be flushed at the end of this turn
        self._blocked: set[int] = set()  # watched until they take more
        self._late: dict[int, dict[str, Mapping[str, Any]]] = {}
        self._next = 1
        self._seen = SeenRequests()
        # Whether an earlier relay may have taken requests that this one did not see.
        self.follows_another = False
        self._hears_out = False
        self._told_dropped = 0
        self._inode = os.lstat(listening.getsockname()).st_ino
        loop.watch(listening.fileno(), self._accept)

    @property
    def count(self) -> int:
        return len(self._links)

    def saw_before(self, session: str, header: Mapping[str, Any]) -> None:
        """Note a request that an earlier relay took."""
        self._seen.add(session, header)

    def tell(self, header: Mapping[str, Any]) -> None:
        """Tell every link a state.

        A link that does not read now gets the last of each kind when it does.
        """
        for number in tuple(self._links):
            if number in self._blocked:
                self._late.setdefault(number, {})[str(header["op"])] = header
                continue
            self._say(number, header)

    def pump(self) -> None:
        """Send waiting messages to links that have sessions, as far as their windows allow."""
        for number in self._delivery.listening:
            self._push(number)
        if self._store.dropped_messages != self._told_dropped:
            self._told_dropped = self._store.dropped_messages
            self.tell(self._dropped())

    def say(self, peer: Peer, header: Mapping[str, Any]) -> None:
        """Send a peer's last answer."""
        peer.say(header)
        peer.end_after_sending()
        for number, known in tuple(self._peers.items()):
            if known is peer:
                self._flush(number)

    def flush(self) -> None:
        """Send what was said in this turn of the loop, one write for each connection."""
        unsent, self._unsent = self._unsent, set()
        for number in unsent:
            self._flush(number)

    def close(self) -> None:
        """Close all connections."""
        self._loop.forget(self._listening.fileno())
        self._listening.close()
        for number in tuple(self._peers):
            self._drop(number)

    def listen_where_missing(self, path: Path) -> None:
        """Listen again if the socket's name was removed or is another's; connections stay.

        Raises OSError.
        """
        with contextlib.suppress(FileNotFoundError):
            if os.lstat(path).st_ino == self._inode:
                return
        remove_folder(path)  # if the name is a folder
        listening = listen(path, socket_mode(path.parent))
        self._loop.forget(self._listening.fileno())
        self._listening.close()
        self._listening, self._inode = listening, os.lstat(path).st_ino
        self._loop.watch(listening.fileno(), self._accept)

    def _accept(self, _events: int) -> None:
        while (peer := accept(self._listening, self._admitted)) is not None:
            number, self._next = self._next, self._next + 1
            self._peers[number] = peer
            self._loop.watch(peer.descriptor, self._handler(number))

    def _handler(self, number: int) -> Any:
        return lambda events: self._ready(number, events)

    def _ready(self, number: int, events: int) -> None:
        peer = self._peers[number]
        if events & ~WRITE and not peer.is_last_said:
            self._read(number, peer)
        elif events & ~(READ | WRITE):
            peer.is_ended = True
        self._unsent.add(number)

    def _read(self, number: int, peer: Peer) -> None:
        try:
            for record in peer.read():
                self._take(number, peer, record)
        except ProtocolError as error:
            peer.refuse("bad_request", str(error))
        except Refusal as refusal:
            peer.refuse(refusal.code, str(refusal))
        except Exception as error:  # no request of a peer may end the relay
            traceback.print_exc()
            peer.refuse("internal", f"the relay failed at this: {error!r}")

    def _take(self, number: int, peer: Peer, record: Record) -> None:
        if not peer.role:
            self._greet(number, peer, record)
        elif peer.role == "control":
            self._owner.ask(peer, record)
        else:
            operation = _OPERATIONS.get(record.op)
            if operation is None:
                raise Refusal("bad_request", f"Op {record.op[:40]!r} is not known. Use {', '.join(_OPERATIONS)}.")
            operation(self, number, peer, record)

    def _greet(self, number: int, peer: Peer, record: Record) -> None:
        peer.greeted(record)
        hello, told = self._owner.greeting()
        peer.say(hello)
        if peer.role == "link":
            self._links.add(number)
            self._delivery.link_came(number)
            for header in told:
                peer.say(header)

    def _hear_out_links(self, asking: int) -> None:
        """Take all that other links have sent.

        A killed gateway may have left requests in its socket that this relay has not read yet: one
        read takes all that a socket holds.
        """
        if self._hears_out:  # two links ask at once: the first has the rest in hand, in its order
            return
        self._hears_out = True
        try:
            for number in self._links - {asking}:
                if (peer := self._peers.get(number)) is not None and not peer.is_last_said:
                    self._read(number, peer)
                    self._unsent.add(number)
        finally:
            self._hears_out = False

    def _attach(self, number: int, peer: Peer, record: Record) -> None:
        if self._store.dropped_messages:
            peer.say(self._dropped())
        session = _session(record)
        self._delivery.attach(number, session, is_collaborator=record.header.get("guest") is True)
        peer.say({"op": "attached", "session": session})
        self._owner.attached()
        self._push(number)

    def _detach(self, number: int, peer: Peer, record: Record) -> None:
        self._delivery.detach(number, _session(record))

    def _acknowledge(self, number: int, peer: Peer, record: Record) -> None:
        keep = record.header.get("keep") is True
        if self._delivery.acknowledged(number, _number(record, "seq"), keep=keep):
            self._push(number)

    def _send(self, number: int, peer: Peer, record: Record) -> None:
        channel, count = record.header.get("channel"), _number(record, "n")
        if channel not in _REQUEST_CHANNELS:
            raise Refusal("bad_request", f"Channel {channel!r} takes no requests. Use {', '.join(_REQUEST_CHANNELS)}.")
        if find_delimiter(record.frames) != 0 or len(record.frames) <= HEADER:
            raise Refusal("bad_request", "a message begins with <IDS|MSG> and has a header")
        session = _session(record)
        if self._seen.add(session, read_object(record.frames[HEADER])):
            self._owner.request(str(channel), session, record.frames)
        peer.say_text(f'{{"op":"got","n":{count}}}')

    def _tell_seen(self, number: int, peer: Peer, record: Record) -> None:
        """Answer which of a session's cells came.

        So its page knows which were lost on their way.
        """
        session, ids = _session(record), record.header.get("ids")
        if not isinstance(ids, list):
            raise Refusal("bad_request", f"ids are a list of msg_ids, not {ids!r:.60}")
        self._hear_out_links(number)
        saw_all = self._seen.has_all_cells and not self.follows_another
        seen = self._seen.cells_of(session, ids)
        peer.say({"op": "seen", "n": _number(record, "n"), "ids": seen, "saw_all": saw_all})

    def _push(self, number: int) -> None:
        peer = self._peers[number]
        for header, frames in self._waiting(number):
            peer.say_text(header, frames)
            self._unsent.add(number)

    def _say(self, number: int, header: Mapping[str, Any]) -> None:
        self._peers[number].say(header)
        self._unsent.add(number)

    def _waiting(self, number: int) -> Iterator[tuple[str, Sequence[Any]]]:
        """Yield the messages that may be sent now, each with its header in JSON."""
        while (entry := self._delivery.next_for(number)) is not None:
            try:
                frames = self._store.load(entry)
            except OSError:
                self._delivery.lost(number, entry)
                continue
            session = "null" if entry.session is None else json.dumps(entry.session)
            yield f'{{"op":"message","seq":{entry.seq},"channel":"{entry.channel}","session":{session}}}', frames

    def _dropped(self) -> dict[str, Any]:
        return {"op": "dropped", "messages": self._store.dropped_messages, "bytes": self._store.dropped_bytes}

    def _flush(self, number: int) -> None:
        peer = self._peers.get(number)
        if peer is None:
            return
        peer.flush()
        if peer.is_ended:
            self._drop(number)
        elif peer.has_unsent != (number in self._blocked):
            self._blocked ^= {number}
            self._loop.watch(peer.descriptor, self._handler(number), READ | WRITE if peer.has_unsent else READ)
            if number not in self._blocked and (late := self._late.pop(number, None)):
                for header in late.values():
                    peer.say(header)
                self._flush(number)

    def _drop(self, number: int) -> None:
        peer = self._peers.pop(number)
        self._blocked.discard(number)
        self._late.pop(number, None)
        self._loop.forget(peer.descriptor)
        peer.close()
        if number in self._links:
            self._links.discard(number)
            self._delivery.link_went(number)


_OPERATIONS = {
    "attach": LinkServer._attach,
    "detach": LinkServer._detach,
    "send": LinkServer._send,
    "seen": LinkServer._tell_seen,
    "ack": LinkServer._acknowledge,
}


def _request_key(session: str, msg_id: str) -> str:
    """Return the key of a request among the seen ones."""
    key = f"{session}\0{msg_id}"
    return key if len(key) <= _LONGEST_SEEN else sha256(key.encode(errors="surrogatepass")).hexdigest()


def _session(record: Record) -> str:
    session = record.header.get("session")
    if not isinstance(session, str) or not 0 < len(session) <= _LONGEST_SESSION:
        raise Refusal("bad_request", f"a session is a text of 1 to {_LONGEST_SESSION} characters, not {session!r:.60}")
    return session


def _number(record: Record, field: str) -> int:
    value = record.header.get(field)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refusal("bad_request", f"{record.op} has a whole number as its {field}, not {value!r:.60}")
    return value
