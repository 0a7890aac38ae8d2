"""Forward frames between clients, links and the kernel, and note the kernel's work in them.

`relay` owns the kernel's life, `links` the links, `store` the waiting messages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from jupyter_aliquot.provisioner.relay.store.delivery import Delivery
from jupyter_aliquot.provisioner.relay.store.notices import left_out
from jupyter_aliquot.provisioner.relay.store.output_store import Entry, Store
from jupyter_aliquot.provisioner.relay.wire.error_replies import CommWords, answers, content_of, parent_of, unread_words
from jupyter_aliquot.provisioner.relay.wire.log import log
from jupyter_aliquot.provisioner.relay.wire.messages import (
    CONTENT,
    HEADER,
    PARENT,
    Request,
    Signer,
    StateReads,
    find_delimiter,
    is_silent,
    named_cell,
    read_object,
    read_question,
    read_request,
)
from jupyter_aliquot.provisioner.relay.wire.protocol import charge
from jupyter_aliquot.provisioner.relay.wire.ranges import Range
from jupyter_aliquot.provisioner.relay.wire.zmq_io import receive, send

from .activity_tracker import ActivityTracker
from .agent_notifier import AgentNotifier
from .backlog import Backlog
from .client_sockets import ClientSockets
from .internal_requests import InternalRequests
from .link_server import LinkServer
from .poll_loop import READ, WRITE, Loop
from .sidecar_link import KernelSide, SidecarLink

_BATCH = 256  # messages of one socket in one turn
_BATCH_BYTES = 1 << 20
_REQUEST_CHANNELS = ("shell", "control", "stdin")
_YOUNG_SECONDS = 10.0
_SMALL = 1 << 16  # a smaller message is copied: its frames would hold larger buffers of ZMQ's
_OWN_TOPIC = b"stream"
_MOST_NOTE_BYTES = 1 << 16  # a later relay takes over no request with a larger header
_UNREAD = "KernelNotResponding"
# Outputs that a notebook can do without, if too much waits; a page would miss a comm that was not
# opened.
_NO_OUTPUT = (b'"comm_open"', b'"comm_close"')


class Forwarder:
    """The forwarder of one relay.

    ``is_kept``: it keeps output for a gateway; ``unread``: the kernel's backlog.
    """

    def __init__(
        self,
        loop: Loop,
        clients: ClientSockets,
        sockets: KernelSide,
        store: Store,
        delivery: Delivery,
        signer: Signer,
        tracker: ActivityTracker,
        prefix: bytes,
        unread_bytes: int,
    ) -> None:
        self._loop = loop
        self._clients = clients
        self._kernel_sockets = sockets
        self._sidecar = sockets if isinstance(sockets, SidecarLink) else None
        self._origins: tuple[Range, ...] = ()  # of the message that is being taken
        self._store = store
        self._delivery = delivery
        self._signer = signer
        self._prefix = prefix
        self.unread = Backlog(sockets, unread_bytes, self._watch_kernel)
        self._fresh: list[Entry] = []  # entries of this turn
        self._fresh_bytes = 0
        self._told_refused = 0
        self._comm_words = CommWords()
        self._reads = StateReads()
        self._topics: set[bytes] = set()
        self.tracker = tracker
        self.notifier: AgentNotifier | None = None
        self.own: InternalRequests | None = None
        self.before_iopub: Callable[[bytes, Sequence[Any]], None] | None = None  # gets each header and message
        self.links: LinkServer | None = None
        self.is_kept = False
        self.longest_message = 0  # bytes of one for a link; 0: no bound
        self.has_news = False  # the activity changed
        self.started_at = 0.0  # the start of this run of the kernel: seconds since the epoch
        self._begin()

    def _begin(self) -> None:
        """Listen to clients, and to a pod's sidecar."""
        if self._sidecar is not None:
            self._sidecar.taker = self
            self._store.forgotten = self._sidecar.forget
        for channel in _REQUEST_CHANNELS:
            self._loop.watch(self._clients.sockets[channel], partial(self._from_client, channel))
        self._loop.watch(self._clients.sockets["hb"], self._from_heart)
        self._loop.watch(self._clients.sockets["iopub"], self._subscribed)

    @property
    def held(self) -> int:
        """The number of requests that wait for a kernel."""
        return self.unread.held

    @property
    def is_quiet(self) -> bool:
        """Tell whether there is a kernel that has answered everything."""
        return self._kernel_sockets.is_ready and not self.tracker.open and not self.unread.messages

    def settle(self) -> None:
        """Send what came in this turn, and bring the rest within its bounds.

        Called at a turn's end.
        """
        if self._fresh:
            fresh, self._fresh, self._fresh_bytes = self._fresh, [], 0
            if self.links is not None:
                self.links.pump()
            for entry in fresh:
                self._store.settle(entry)
        if self._sidecar is not None:
            self._sidecar.settle()
        if self.unread.refused != self._told_refused and self.links is not None:
            self._told_refused = self.unread.refused
            self.links.tell({"op": "unread", **self.unread.snapshot()})

    # ---- the kernel comes and goes

    def began(self, now: float) -> None:
        """Note the start of this run of the kernel."""
        self.started_at, self.has_news = now, True
        self.tracker.kernel_began(now)

    def join(self) -> None:
        """Listen to the kernel's sockets, which are connected."""
        if self._sidecar is not None:
            return
        self._loop.watch(self._kernel_sockets.sockets["iopub"], self._from_iopub)
        self._loop.watch(self._kernel_sockets.sockets["hb"], self._to_heart)
        for channel in _REQUEST_CHANNELS:
            self._watch_kernel(channel, False)

    def _watch_kernel(self, channel: str, is_full: bool) -> None:
        if self._sidecar is not None:
            return  # it tells of room
        events = READ | WRITE if is_full else READ
        self._loop.watch(self._kernel_sockets.sockets[channel], partial(self._from_kernel, channel), events)

    def release(self) -> None:
        """Send messages that waited for the kernel, which is ready."""
        if self.unread.held:
            for channel, frames, request in self.unread.release():
                self._to_kernel(channel, frames, request)

    def drain(self) -> None:
        """Take all that the kernel has sent."""
        if self._sidecar is not None:
            return  # it tells of the end after all else
        for channel in _REQUEST_CHANNELS:
            while self._from_kernel(channel, 0):
                pass
        while self._from_iopub(0):
            self.settle()

    def leave(self) -> None:
        """Forget the kernel, which ended. Called before its sockets are closed."""
        for socket in self._kernel_sockets.sockets.values():
            self._loop.forget(socket)
        self.unread.kernel_ended()
        if self.own is not None:
            self.own.kernel_ended()
        if self.tracker.clear(time.time()):
            self.has_news = True

    def ask_to_end(self) -> None:
        """Send a shutdown_request of the relay's own."""
        if self._kernel_sockets.is_ready:
            message = self._signer.message("shutdown_request", {"restart": False})
            self.send_own("control", message)

    def send_own(self, channel: str, message: Sequence[bytes]) -> None:
        """Send a request of the relay's own. Its reply is not forwarded."""
        self.unread.send(channel, [self._prefix, *message])

    # ---- towards the kernel

    def request(self, channel: str, session: str, message: Sequence[Any]) -> None:
        """Take a request from a link. Called by the relay."""
        self._accept(channel, [self._prefix + session.encode(), *message], 1, session)

    def _from_client(self, channel: str, _events: int) -> None:
        socket = self._clients.sockets[channel]
        for _ in range(_BATCH):
            if (frames := receive(socket)) is None:
                return
            self._accept(channel, frames, find_delimiter(frames))

    def _accept(self, channel: str, frames: Sequence[Any], delimiter: int, session: str = "") -> None:
        """Take a request from a client. ``session`` is empty for a client of the ZMQ sockets."""
        request = None
        if delimiter >= 0 and channel != "stdin" and self._signer.is_signed(frames[delimiter:]):
            request = self._reads.request(frames[delimiter:], channel)
        elif delimiter >= 0 and self.tracker.is_asking and self._signer.is_signed(frames[delimiter:]):
            self._answers_input()
        if request is not None and request.is_for_one_kernel and self._is_late(request):
            return
        is_urgent, is_collaborator = (
            request is not None and request.is_for_one_kernel,
            self._delivery.is_collaborator(session),
        )
        if not self.unread.has_room(channel, frames, is_urgent=is_urgent, is_collaborator=is_collaborator):
            self._refuse(channel, frames, delimiter, session, is_answered=request is not None)
        elif self._kernel_sockets.is_ready:
            self._to_kernel(channel, frames, request)
        else:
            self.unread.hold(channel, frames, request)

    def _answers_input(self) -> None:
        if self.tracker.answered():
            self.has_news = True
            if self.notifier is not None:
                self.notifier.tell_work(time.monotonic())  # as for work that begins

    def _is_late(self, request: Request) -> bool:
        """Tell whether the kernel that the request was meant for has ended."""
        is_young = time.time() < self.started_at + _YOUNG_SECONDS  # later on, a client's clock may be wrong
        return self.started_at == 0.0 or (is_young and request.sent is not None and request.sent < self.started_at)

    def _to_kernel(self, channel: str, frames: Sequence[Any], request: Request | None) -> None:
        if request is not None and self._is_news(frames, request):
            self.has_news = True
            if request.is_work and self.notifier is not None:
                self.notifier.tell_work(time.monotonic())  # before the kernel can know of it
        if request is not None and self.own is not None:
            self.own.saw_request(channel, frames[find_delimiter(frames) :])
        self.unread.send(channel, frames, request)

    def _refuse(self, channel: str, frames: Sequence[Any], delimiter: int, session: str, *, is_answered: bool) -> None:
        """Refuse a message, because too much waits, and answer a request."""
        unread = self.unread
        if not unread.refused:
            log("request_refused", waiting=unread.bytes, most=unread.most_bytes)  # once: the status has the count
        unread.refused += 1
        if is_answered:
            most = unread.most(is_collaborator=self._delivery.is_collaborator(session))
            kind = read_object(frames[delimiter + HEADER]).get("msg_type")
            words = unread_words(charge(frames), unread.bytes, most, kind)
            self._answer(channel, frames, delimiter, session, words)

    def _answer(self, channel: str, frames: Sequence[Any], delimiter: int, session: str, words: str) -> None:
        """Answer in the place of the kernel, which does not see the request."""
        header = read_object(frames[delimiter + HEADER])
        if not (parent := parent_of(header)):
            return
        tells_comm = self._comm_words.are_due(header.get("msg_type"), time.monotonic())
        for answer in answers(channel, header, content_of(frames[delimiter:]), _UNREAD, words, tells_comm=tells_comm):
            made = self._signer.message(answer.msg_type, answer.content, parent)
            if answer.channel == "iopub":
                self.publish(made)
            elif not session:
                send(self._clients.sockets[channel], [*frames[:delimiter], *made])
            elif self.is_kept:
                self._store_message(channel, session, made, sum(map(len, made)), is_output=False)

    def _is_news(self, frames: Sequence[Any], request: Request) -> bool:
        message = frames[find_delimiter(frames) :]
        return self._opened(request, time.time(), bytes(message[HEADER]), _cell_of(request, message))

    def _opened(self, request: Request, at: float, header: bytes, cell_id: str | None) -> bool:
        # A notifier may write to the cell later, which needs its header.
        is_written_to = cell_id is not None and self.notifier is not None
        return self.tracker.opened(request, at, header if is_written_to else b"", cell_id)

    # ---- from the kernel

    def _from_kernel(self, channel: str, events: int) -> bool:
        """Forward replies and input_requests; tell whether there may be more."""
        if events & WRITE:
            self.unread.pump(channel)
        socket = self._kernel_sockets.sockets[channel]
        for _ in range(_BATCH):
            if (frames := receive(socket)) is None:
                return False
            self._reply(channel, frames)
        return True

    def _reply(self, channel: str, frames: Sequence[Any]) -> None:
        if channel == "stdin":
            self._asks(frames)
        identity = bytes(frames[0])
        if identity == self._prefix:
            if self.own is not None:
                self.own.took_reply(frames)
            return
        if self.own is not None and self.own.is_ipykernel is None:
            self.own.saw_reply(frames)
        if identity.startswith(self._prefix):
            self._keep(channel, self._session_of(identity), frames[1:], is_output=False)
        else:
            send(self._clients.sockets[channel], frames)

    def _session_of(self, identity: bytes) -> str:
        return identity[len(self._prefix) :].decode(errors="replace")

    def _asks(self, frames: Sequence[Any]) -> None:
        message = frames[find_delimiter(frames) :]
        if len(message) <= CONTENT or b'"input_request"' not in bytes(message[HEADER]):
            return
        parent = read_object(message[PARENT]).get("msg_id")
        if isinstance(parent, str) and self.tracker.asked(parent, time.time(), read_question(message)):
            self.has_news = True
            if self.links is not None:
                self.links.tell(cells_record(self.tracker))

    def _from_iopub(self, _events: int) -> bool:
        socket = self._kernel_sockets.sockets["iopub"]
        for _ in range(_BATCH):
            if (frames := receive(socket)) is None:
                return False
            self._broadcast(frames)
            if self._fresh_bytes > _BATCH_BYTES:
                break
        return True

    def _broadcast(self, frames: Sequence[Any]) -> None:
        """Forward a message of iopub to clients first; then read its news of the kernel."""
        message = frames[find_delimiter(frames) :]
        if self.own is not None and self.own.may_be_heard and self.own.took_status(message):
            return
        header = message[HEADER].bytes if len(message) > CONTENT else b""
        if header and self.before_iopub is not None:
            self.before_iopub(header, message)
        if self._topics:
            send(self._clients.sockets["iopub"], frames)
        if not header:
            return
        is_output = False
        if b'"status"' in header:
            self._status(header, message)
        elif b'"iopub_welcome"' in header:
            self._welcomed()
            return
        else:
            is_output = not any(mark in header for mark in _NO_OUTPUT)
            self.tracker.saw_output(time.time(), message[PARENT])
        self._keep("iopub", None, message, is_output)

    def _status(self, header: bytes, message: Sequence[Any]) -> None:
        parent = read_object(message[PARENT]).get("msg_id")
        if not isinstance(parent, str) or read_object(header).get("msg_type") != "status":
            return
        if b'"idle"' not in message[CONTENT].bytes:
            self.has_news = self.tracker.began(parent, time.time()) or self.has_news
        elif self.tracker.closed(parent, time.time()):
            self.has_news = True

    def publish(self, message: Sequence[bytes]) -> None:
        """Publish a message of the relay's own on iopub: kept and numbered like the kernel's."""
        origins, self._origins = self._origins, ()  # those are of the kernel's message that is being taken
        if self._topics:
            send(self._clients.sockets["iopub"], [_OWN_TOPIC, *message])
        if self.is_kept:
            self._store_message("iopub", None, message, sum(map(len, message)), is_output=True)
        self._origins = origins

    def _keep(self, channel: str, session: str | None, message: Sequence[Any], is_output: bool) -> None:
        if not self.is_kept:
            return
        size = sum(len(frame) for frame in message)
        if 0 < self.longest_message < size:
            self._leave_out(channel, session, message, size)
            return
        kept = [frame.bytes for frame in message] if size <= _SMALL else [frame.buffer for frame in message]
        self._store_message(channel, session, kept, size, is_output)

    def _leave_out(self, channel: str, session: str | None, message: Sequence[Any], size: int) -> None:
        """Tell a cell of a message that is too large for its gateway, and answer in the place of a reply."""
        for into, made in left_out(self._signer, channel, message, size, self.longest_message):
            is_note = into == "iopub"
            self._store_message(into, None if is_note else session, made, sum(map(len, made)), is_output=is_note)

    def _store_message(
        self, channel: str, session: str | None, kept: Sequence[Any], size: int, is_output: bool
    ) -> None:
        entry = self._store.add(channel, session, kept, size, is_output)
        entry.origins, self._origins = list(self._origins), ()
        self._delivery.added(entry)
        self._fresh.append(entry)
        self._fresh_bytes += size

    # ---- by a pod's sidecar

    def take(self, channel: str, frames: Sequence[Any], origin: int) -> None:
        """Take a message of the kernel, by the number that the store is to tell when it is done with."""
        self._origins = ((origin, origin),)
        if channel == "iopub":
            self._broadcast(frames)
        else:
            self._reply(channel, frames)
        origins, self._origins = self._origins, ()
        if origins:  # no gateway is to have it
            self._store.forgotten(origins)

    def took_room(self, channel: str) -> None:
        """Send what waits on a channel, for the kernel took something."""
        self.unread.pump(channel)

    def welcomed(self) -> None:
        """Note that the kernel has a subscription to all."""
        self._welcomed()
        if b"" in self._topics:
            self._welcome(b"")

    def beat(self, frames: Sequence[Any]) -> None:
        """Take an answer to a heartbeat."""
        send(self._clients.sockets["hb"], frames)

    def note(self, channel: str, frames: Sequence[Any]) -> Mapping[str, Any] | None:
        """Return what a later relay needs to know of an open request; None of another."""
        at = find_delimiter(frames)
        message = frames[at:]
        if at < 1 or len(message) <= CONTENT:
            return None
        request = read_request(read_object(message[HEADER]), channel)
        if request is None or len(message[HEADER]) > _MOST_NOTE_BYTES or not self.tracker.is_open(request.msg_id):
            return None
        identity, header = bytes(frames[0]), bytes(message[HEADER]).decode(errors="replace")
        session = self._session_of(identity) if identity.startswith(self._prefix) else ""
        told = {"id": request.msg_id, "at": time.time(), "channel": channel, "header": header}
        return {**told, "cell": _cell_of(request, message), "session": session}

    def follow(self, notes: Sequence[Mapping[str, Any]], *, is_later: bool) -> None:
        """Take over the open requests of another relay of this run, if there was one."""
        if self.links is not None and is_later:
            self.links.follows_another = True
        for note in notes:
            header = str(note["header"])
            fields = read_object(header.encode())
            request = read_request(fields, str(note["channel"]))
            if request is not None and self._opened(request, float(note["at"]), header.encode(), note["cell"]):
                self.has_news = True
                if self.links is not None:
                    self.links.saw_before(str(note["session"]), fields)

    def open_of(self, msg_ids: Sequence[str]) -> set[str]:
        """Return those of these requests that are open."""
        return {msg_id for msg_id in msg_ids if self.tracker.is_open(msg_id)}

    # ---- subscriptions and heartbeat

    def _subscribed(self, _events: int) -> None:
        socket = self._clients.sockets["iopub"]
        for _ in range(_BATCH):
            if (frames := receive(socket)) is None:
                return
            topic = frames[0].bytes
            if topic[:1] == b"\x01":
                self._topics.add(topic[1:])
                if self._kernel_sockets.has_welcomed:
                    self._welcome(topic[1:])
            else:
                self._topics.discard(topic[1:])

    def _welcomed(self) -> None:
        """Note that the kernel has our subscription.

        The forwarder passes the kernel's welcome to clients that subscribed to all.
        """
        if not self._kernel_sockets.has_welcomed:
            self._kernel_sockets.welcomed()
            for topic in self._topics - {b""}:
                self._welcome(topic)

    def _welcome(self, topic: bytes) -> None:
        message = self._signer.message("iopub_welcome", {"subscription": topic.decode(errors="replace")})
        send(self._clients.sockets["iopub"], [topic, *message] if topic else message)

    def _from_heart(self, _events: int) -> None:
        while (frames := receive(self._clients.sockets["hb"])) is not None:
            if not self._kernel_sockets.is_away:  # a kernel that is away answers nothing
                self._kernel_sockets.send("hb", frames)  # nor does one that does not read

    def _to_heart(self, _events: int) -> None:
        while (frames := receive(self._kernel_sockets.sockets["hb"])) is not None:
            send(self._clients.sockets["hb"], frames)


def _cell_of(request: Request, message: Sequence[Any]) -> str | None:
    """Return a cell's name in its notebook; None for a request that shows no output."""
    is_cell = request.msg_type == "execute_request" and not is_silent(message)
    return named_cell(message) if is_cell else None


def activity_record(tracker: ActivityTracker) -> Mapping[str, Any]:
    """Return the report of the kernel's activity for links."""
    return {"op": "activity", **tracker.snapshot()}


def cells_record(tracker: ActivityTracker) -> Mapping[str, Any]:
    """Return the report of the cells.

    A new link gets it, and every link when a cell asks its user.
    """
    return {"op": "cells", "cells": tracker.known_cells}
