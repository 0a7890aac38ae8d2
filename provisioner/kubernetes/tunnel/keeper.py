"""Keep what a pod's kernel sends, in its sidecar, until a relay is done with it.

The relay beside the gateway may be lost with its machine; the next one gets what is kept, in order. So
the kernel's sockets are the keeper's, and relays come and go at one connection each, of which the last
counts. The relay's end is `provisioner/relay/server/sidecar_link.py`.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import zmq

from jupyter_aliquot.provisioner.relay.server.kernel_sockets import KernelSockets
from jupyter_aliquot.provisioner.relay.server.poll_loop import READ, WRITE, Watcher
from jupyter_aliquot.provisioner.relay.store.notices import left_out, notice_maker
from jupyter_aliquot.provisioner.relay.store.output_store import Bounds, Entry, Store
from jupyter_aliquot.provisioner.relay.store.segments import Spill
from jupyter_aliquot.provisioner.relay.store.spill_room import RoomBounds, SpillRoom
from jupyter_aliquot.provisioner.relay.wire.log import log
from jupyter_aliquot.provisioner.relay.wire.messages import CONTENT, HEADER, Signer, find_delimiter, new_id
from jupyter_aliquot.provisioner.relay.wire.ports import FRONT_PORTS
from jupyter_aliquot.provisioner.relay.wire.protocol import (
    LONGEST_MESSAGE,
    LONGEST_RECORD,
    VERSIONS,
    ProtocolError,
    Record,
    RecordReader,
    encode,
)
from jupyter_aliquot.provisioner.relay.wire.ranges import read_ranges
from jupyter_aliquot.provisioner.relay.wire.spare_names import SpareNames, is_listened_at
from jupyter_aliquot.provisioner.relay.wire.zmq_io import events_of, receive

from .connection import Connection

_IDENTITY = b"aliquot-sidecar"  # the same after a restart of the sidecar: answers on their way find it
_MEMORY_BYTES = 4 << 20
_SMALL = 1 << 16  # a smaller message is copied: its frames would hold larger buffers of ZMQ's
_BATCH = 256
_BATCH_BYTES = 1 << 20
_MOST_NOTES, _MOST_NOTE_BYTES = 10_000, 4 << 20  # all are in the header of one record
_LOOK_SECONDS = 0.005  # a look takes some microseconds
_END_SECONDS = 0.25  # from the kernel's hanging up until it is taken for ended
_NO_BOUND = 1 << 62
_NEVER = float("inf")
_OWN_TOPIC = b"stream"
_REQUEST_CHANNELS = ("shell", "control", "stdin")
# Not outputs that a notebook can do without.
_NO_OUTPUT = (b'"status"', b'"comm_open"', b'"comm_close"')


class Link:
    """A relay's connection. ``todo``: what the relay is yet to get, in order; ``epoch`` is empty until its hello."""

    def __init__(self, keeper: Keeper, connection: Connection) -> None:
        self._keeper, self.connection = keeper, connection
        self.epoch, self.todo, self.told_end = "", deque[int](), False
        self._reader = RecordReader(LONGEST_RECORD)

    @property
    def is_idle(self) -> bool:
        """Tell whether it was sent all that there is."""
        return not self.todo and self.connection.is_idle

    def say(self, header: Mapping[str, Any], frames: Sequence[Any] = ()) -> None:
        """Send a record after those before it."""
        self.connection.send(encode(dict(header), frames))

    def take(self, piece: bytes) -> None:
        """Called by the connection."""
        try:
            for record in _records(self._reader, piece):
                self._keeper.take(self, record)
        except (ProtocolError, KeyError, TypeError, ValueError, AttributeError) as error:
            log("relay_not_understood", reason=error)
            self.say({"op": "refused", "message": f"{error!r:.1000}"})  # it says hello again, after a while
            self._keeper.part_from(self)

    def has_room(self) -> None:
        """Called by the connection."""
        self._keeper.push()

    def gone(self) -> None:
        """Called by the connection."""
        self._keeper.gone(self)


class Keeper:
    """The keeper of one kernel, whose sockets are ``s-1`` to ``s-5`` in *folder*.

    *output*: the folder for what does not stay in memory; *most_bytes*: the bound of what is kept; 0: none.
    """

    def __init__(self, loop: Watcher, folder: Path, output: Path, most_bytes: int, signer: Signer) -> None:
        self._loop = loop
        self._shell = folder / "s-1"
        spares = SpareNames(folder / "b", tuple(FRONT_PORTS.values()))
        self._sockets = KernelSockets(zmq.Context(), folder / "s", _IDENTITY, spares)
        spill = Spill(SpillRoom(output, "", "kernel", RoomBounds(most_bytes)))
        self._signer = signer
        self._store = Store(Bounds(_MEMORY_BYTES, most_bytes or _NO_BOUND), spill, notice_maker(signer))
        self._run = new_id()
        self._link: Link | None = None
        self._notes: dict[str, Mapping[str, Any]] = {}  # open requests, as their relays told
        self._note_bytes: dict[str, int] = {}
        self._received: dict[str, int] = {}  # by relay: the last request of this run that came
        # By channel: requests that the kernel has no room for, each with its relay and number.
        self._waiting: dict[str, deque[tuple[str, int, Sequence[Any]]]] = {one: deque() for one in _REQUEST_CHANNELS}
        self._leaving_at = _NEVER  # after the kernel's hanging up
        self._until = _NEVER  # the end of the last part
        self._parting: Link | None = None  # got all, and its connection is being ended
        self.has_joined = self._is_over = False

    # ---- its time, which the sidecar's loop gives

    def due_in(self, now: float) -> float:
        """Return the seconds until `turn` is due of itself."""
        if self._until < _NEVER:
            return _LOOK_SECONDS
        if self._is_over:
            return _NEVER
        if self._sockets.is_away:
            return _LOOK_SECONDS
        ready_in = self._sockets.ready_in(now)
        return min(self._leaving_at - now, _NEVER if ready_in is None else ready_in)

    def turn(self, now: float) -> None:
        """Join the kernel when it is there, and leave it when it has ended."""
        if self._is_over:
            return
        if self._sockets.is_away:
            if self._sockets.is_there():
                self._join()
        elif now >= self._leaving_at:
            self._leave()
        elif self._sockets.became_ready(now):
            self._tell_ready()

    def finish(self, seconds: float) -> None:
        """Give a relay so long to take what is left, and one to come if there is none."""
        self._until = min(self._until, time.monotonic() + seconds)

    def is_finished(self, now: float) -> bool:
        """Tell, after `finish`, whether a relay has confirmed that it got all, or the time is over."""
        parting, link = self._parting, self._link
        if now >= self._until or (parting is not None and parting.connection.is_confirmed):
            return True
        if parting is not None and not parting.connection.is_over:
            return False
        self._parting = None
        if link is None:
            return not len(self._store)
        if link.is_idle and (self._leaving_at == _NEVER or self._is_over):
            self._parting = link
            link.connection.end(self._until)
        return False

    def _watched(self) -> list[Any]:
        return [*self._sockets.sockets.values(), self._sockets.monitor]

    def _join(self) -> None:
        self._sockets.join()
        for socket in self._watched():
            self._loop.watch(socket, self._work)
        self.has_joined = True
        self._work()

    def _leave(self) -> None:
        """Leave a kernel that ended, or one that other sockets took the place of."""
        while any(events_of(socket) & zmq.POLLIN for socket in self._watched()):
            self._work()
        for socket in self._watched():
            self._loop.forget(socket)
        self._is_over = not is_listened_at(self._shell)
        self._sockets.leave(removes_files=False)
        self._leaving_at = _NEVER
        if not self._is_over:
            self._begin_run()
        self.push()

    def _begin_run(self) -> None:
        """Forget what was another process's: its open requests, and those that it had no room for."""
        self._run = new_id()
        self._notes.clear()
        self._note_bytes.clear()
        self._received.clear()
        for queue in self._waiting.values():
            queue.clear()
        if self._link is not None:
            self.part_from(self._link)  # the relay asks again, and hears of another run

    # ---- the kernel

    def _work(self, _events: int = 0) -> None:
        """Take what the kernel sent, and send what it has room for. Called by the loop.

        Some messages may be left, for the loop's next turn.
        """
        fresh: list[Entry] = []
        for channel, socket in self._sockets.sockets.items():
            taken = 0
            for _ in range(_BATCH):
                if taken > _BATCH_BYTES or (frames := receive(socket)) is None:
                    break
                taken += sum(map(len, frames))
                self._took(channel, frames, fresh)
        self._pump()
        now = time.monotonic()
        if self._sockets.read_monitor(now):
            self._leaving_at = min(self._leaving_at, now + _END_SECONDS)  # its last messages
        self.push()
        for entry in fresh:
            self._store.settle(entry)

    def _took(self, channel: str, frames: Sequence[Any], fresh: list[Entry]) -> None:
        if channel == "hb":
            if self._link is not None:
                self._link.say({"op": "heart"}, [frame.bytes for frame in frames])
            return
        at = max(0, find_delimiter(frames))
        message, header = frames[at:], frames[at + HEADER].bytes if len(frames) > at + CONTENT else b""
        is_output = channel == "iopub" and not any(mark in header for mark in _NO_OUTPUT)
        if channel == "iopub" and b'"iopub_welcome"' in header:
            self._sockets.welcomed()
            self._tell_ready()
            return
        size = sum(map(len, frames))
        envelope = [frame.bytes for frame in frames[:at]]
        if size > LONGEST_MESSAGE:
            for into, made in left_out(self._signer, channel, message, size, LONGEST_MESSAGE):
                is_note = into == "iopub"
                self._keep(into, [_OWN_TOPIC] if is_note else envelope, made, is_note, fresh)
            return
        kept = [frame.bytes for frame in message] if size <= _SMALL else [frame.buffer for frame in message]
        self._keep(channel, envelope, kept, is_output, fresh)

    def _keep(
        self, channel: str, envelope: Sequence[bytes], kept: Sequence[Any], is_output: bool, fresh: list[Entry]
    ) -> None:
        size = sum(map(len, envelope)) + sum(map(len, kept))
        entry = self._store.add(channel, " ".join(frame.hex() for frame in envelope), kept, size, is_output)
        fresh.append(entry)
        if self._link is not None:
            self._link.todo.append(entry.seq)

    def _pump(self) -> None:
        for channel, queue in self._waiting.items():
            socket = self._sockets.sockets.get(channel)
            if socket is None:
                continue
            while queue and self._sockets.send(channel, queue[0][2]):
                epoch, number, _ = queue.popleft()
                if self._link is not None and self._link.epoch == epoch:
                    self._link.say({"op": "got", "n": number})
            self._loop.watch(socket, self._work, READ | WRITE if queue else READ)

    # ---- the relay

    def link(self, connection: Connection) -> Link:
        """Return the owner of a relay's connection, which is to say hello."""
        return Link(self, connection)

    def gone(self, link: Link) -> None:
        """Note that a connection is over."""
        if self._link is link:
            self._link = None

    def part_from(self, link: Link) -> None:
        """End a connection: nothing that still comes by it counts."""
        self.gone(link)
        link.connection.end()

    def take(self, link: Link, record: Record) -> None:
        """Take a relay's record. Raises what a relay of another kind makes of it: ProtocolError, KeyError and such."""
        if record.op == "hello":
            self._greet(link, record.header)
        elif self._link is not link:
            link.connection.end()  # another relay came after it
        elif record.op == "send":
            self._accept(link, record)
        elif record.op == "done":
            for first, last in read_ranges(record.header["seqs"]):
                for seq in range(first, last + 1):
                    self._store.remove(seq)
        elif record.op == "closed":
            for name in record.header["ids"]:
                self._forget_note(name)
        elif record.op == "heart" and self._sockets.sockets:
            self._sockets.send("hb", record.frames)

    def _greet(self, link: Link, told: Mapping[str, Any]) -> None:
        if not set(VERSIONS) & set(told["versions"]):
            raise ProtocolError(f"a relay speaks versions {told['versions']!r}, this sidecar {list(VERSIONS)}")
        epoch, is_same = str(told["epoch"]), told["run"] == self._run
        known = int(told["last"]) if is_same else 0
        received = self._received.get(epoch, 0) if is_same else 0
        self._received[epoch] = received
        if self._link is not None and self._link is not link:
            self.part_from(self._link)
        self._link, link.epoch, link.told_end = link, epoch, False
        link.todo = deque(entry.seq for entry in self._store if entry.seq > known)
        self._store.handed = known
        waiting = [number for queue in self._waiting.values() for of, number, _ in queue if of == epoch]
        hello = {"op": "hello", "version": VERSIONS[-1], "run": self._run, "follows": len(self._received) > 1}
        link.say({**hello, "notes": list(self._notes.values()), "received": received, "waiting": waiting})
        if self._sockets.is_ready or self._is_over:
            self._tell_ready()
        self.push()

    def _accept(self, link: Link, record: Record) -> None:
        number, channel = int(record.header["n"]), record.header["channel"]
        if number <= self._received.get(link.epoch, 0):
            return
        self._received[link.epoch] = number
        if (note := record.header.get("note")) is not None:
            self._note(str(note["id"]), note)
        self._waiting[channel].append((link.epoch, number, record.frames))
        self._pump()

    def _note(self, name: str, note: Mapping[str, Any]) -> None:
        self._notes[name], self._note_bytes[name] = note, len(json.dumps(note))
        while len(self._notes) > _MOST_NOTES or sum(self._note_bytes.values()) > _MOST_NOTE_BYTES:
            self._forget_note(next(iter(self._notes)))

    def _forget_note(self, name: str) -> None:
        self._notes.pop(name, None)
        self._note_bytes.pop(name, None)

    def _tell_ready(self) -> None:
        if self._link is not None:
            self._link.say({"op": "ready", "welcomed": self._sockets.has_welcomed})

    def push(self) -> None:
        """Send the relay what it takes now; the rest when it has taken that."""
        link = self._link
        if link is None:
            return
        while link.todo and link.connection.can_take:
            if (entry := self._store.get(link.todo.popleft())) is not None:
                self._store.handed = entry.seq
                self._send(link, entry)
        if self._is_over and not link.todo and not link.told_end:
            link.told_end = True
            link.say({"op": "ended"})

    def _send(self, link: Link, entry: Entry) -> None:
        try:
            frames = self._store.load(entry)
        except OSError:
            self._store.lose(entry)
            return
        envelope = (entry.session or "").split()
        link.say({"op": "message", "seq": entry.seq, "channel": entry.channel, "envelope": envelope}, frames)


def _records(reader: RecordReader, piece: bytes) -> Sequence[Record]:
    found: list[Record] = []
    while piece:
        room = reader.buffer()
        count = min(len(room), len(piece))
        room[:count] = piece[:count]
        found += reader.filled(count)
        piece = piece[count:]
    return found
