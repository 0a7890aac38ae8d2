"""Keep what a pod's kernel sends, in its sidecar, until a relay is done with it.

The relay beside the gateway may be lost with its machine; the next one gets what is kept, in order. So
the kernel's sockets are the keeper's, and relays come and go at one connection each, of which the last
counts. The relay's end is `provisioner/relay/server/sidecar_link.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import zmq

from jupyter_aliquot.provisioner.relay.server.kernel_sockets import KernelSockets
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

from .stream import Stream

_IDENTITY = b"aliquot-sidecar"  # the same after a restart of the sidecar: answers on their way find it
_MEMORY_BYTES = 4 << 20
_MOST_UNSENT_BYTES = 1 << 20
_PIECE_BYTES = 1 << 16
_SMALL = 1 << 16  # a smaller message is copied: its frames would hold larger buffers of ZMQ's
_BATCH = 256
_BATCH_BYTES = 1 << 20
_MOST_NOTES, _MOST_NOTE_BYTES = 10_000, 4 << 20  # all are in the header of one record
_LOOK_SECONDS = 0.005  # a look takes some microseconds
_END_SECONDS = 0.25  # from the kernel's hanging up until it is taken for ended
_CLOSE_SECONDS = 5.0  # for a gateway to confirm that a connection has ended
_NO_BOUND = 1 << 62
_OWN_TOPIC = b"stream"
_REQUEST_CHANNELS = ("shell", "control", "stdin")
# Not outputs that a notebook can do without.
_NO_OUTPUT = (b'"status"', b'"comm_open"', b'"comm_close"')


class _Link:
    """A relay's connection. *todo*: what it is yet to get, in order. It calls *has_room* after a pause.

    A record goes in pieces, with pauses: TLS copies what it is given several times.
    """

    def __init__(
        self, writer: asyncio.StreamWriter, epoch: str, todo: deque[int], has_room: Callable[[], object]
    ) -> None:
        self.writer, self.epoch, self.todo, self._has_room = writer, epoch, todo, has_room
        self.told_end = False
        self._out: deque[memoryview] = deque()
        self._draining: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Tell whether it was sent all that there is."""
        return not (self.todo or self._out or self.writer.transport.get_write_buffer_size())

    def say(self, header: Mapping[str, Any], frames: Sequence[Any] = ()) -> None:
        """Send a record after those before it."""
        self._out.extend(memoryview(piece) for piece in encode(dict(header), frames) if len(piece))
        self.flush()

    def flush(self) -> bool:
        """Send what the connection takes now; tell whether that was all."""
        while self._out and self._draining is None:
            if self.writer.transport.get_write_buffer_size() >= _MOST_UNSENT_BYTES:
                self._draining = asyncio.create_task(self._drain())
                return False
            first = self._out.popleft()
            self.writer.write(first[:_PIECE_BYTES])
            if len(first) > _PIECE_BYTES:
                self._out.appendleft(first[_PIECE_BYTES:])
        return not self._out

    async def _drain(self) -> None:
        try:
            await self.writer.drain()
        except OSError:
            return  # the keeper sees the end, too
        self._draining = None
        if self.flush():
            self._has_room()


class Keeper:
    """The keeper of one kernel, whose sockets are ``s-1`` to ``s-5`` in *folder*.

    *output*: the folder for what does not stay in memory; *most_bytes*: the bound of what is kept; 0: none.
    """

    def __init__(self, folder: Path, output: Path, most_bytes: int, signer: Signer) -> None:
        self._shell = folder / "s-1"
        spares = SpareNames(folder / "b", tuple(FRONT_PORTS.values()))
        self._sockets = KernelSockets(zmq.Context(), folder / "s", _IDENTITY, spares)
        spill = Spill(SpillRoom(output, "", "kernel", RoomBounds(most_bytes)))
        self._signer = signer
        self._store = Store(Bounds(_MEMORY_BYTES, most_bytes or _NO_BOUND), spill, notice_maker(signer))
        self._run = new_id()
        self._link: _Link | None = None
        self._notes: dict[str, Mapping[str, Any]] = {}  # open requests, as their relays told
        self._note_bytes: dict[str, int] = {}
        self._received: dict[str, int] = {}  # by relay: the last request that came
        # By channel: requests that the kernel has no room for, each with its relay and number.
        self._waiting: dict[str, deque[tuple[str, int, Sequence[Any]]]] = {one: deque() for one in _REQUEST_CHANNELS}
        self._is_due = self._is_over = False
        self.joined, self._hung_up = asyncio.Event(), asyncio.Event()

    async def keep(self) -> None:
        """Keep what the kernel sends from its begin to its end. A task of the sidecar."""
        while not self._is_over:
            while not self._sockets.is_there():  # noqa: ASYNC110  # another process makes them
                await asyncio.sleep(_LOOK_SECONDS)
            self._sockets.join()
            for socket in self._watched():
                asyncio.get_running_loop().add_reader(socket.fd, self._turn)
            self.joined.set()
            self._turn()
            await self._hung_up.wait()
            await asyncio.sleep(_END_SECONDS)  # its last messages
            self._leave()
        self._push()

    async def finish(self, seconds: float) -> None:
        """Give a relay so long to take what is left, and one to come if there is none."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            link, is_ending = self._link, self._hung_up.is_set() and not self._is_over
            if link is None and not len(self._store):
                return
            if link is not None and link.is_idle and not is_ending:
                if await _ends(link.writer, until):
                    return
                self._link = None if self._link is link else self._link
            await asyncio.sleep(_LOOK_SECONDS)

    def _watched(self) -> list[Any]:
        return [*self._sockets.sockets.values(), self._sockets.monitor]

    def _leave(self) -> None:
        """Leave a kernel that ended, or one that other sockets took the place of."""
        while self._turn():
            pass
        for socket in self._watched():
            asyncio.get_running_loop().remove_reader(socket.fd)
        self._is_over = not is_listened_at(self._shell)
        self._sockets.leave(removes_files=False)
        self._hung_up.clear()
        if not self._is_over:
            self._run = new_id()
            self._notes.clear()
            self._note_bytes.clear()
            if self._link is not None:
                self._link.writer.close()  # the relay asks again, and hears of another run

    # ---- the kernel

    def _turn_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> bool:
        """Take what the kernel sent, and send what it has room for; tell whether there is more.

        A descriptor of ZMQ tells of news once, and whatever uses its socket may take that: so all are
        asked until they have nothing.
        """
        self._is_due = False
        if not self._sockets.sockets:
            return False
        fresh: list[Entry] = []
        for channel, socket in self._sockets.sockets.items():
            taken = 0
            for _ in range(_BATCH):
                if taken > _BATCH_BYTES or (frames := receive(socket)) is None:
                    break
                taken += sum(map(len, frames))
                self._took(channel, frames, fresh)
        self._pump()
        if self._sockets.read_monitor(time.monotonic()):
            self._hung_up.set()
        self._push()
        for entry in fresh:
            self._store.settle(entry)
        self._look_for_readiness()
        has_more = any(events_of(socket) & zmq.POLLIN for socket in self._watched())
        if has_more:
            self._turn_soon()
        return has_more

    def _look_for_readiness(self) -> None:
        now = time.monotonic()
        if self._sockets.sockets and self._sockets.became_ready(now):
            self._tell_ready()
        elif (due := self._sockets.ready_in(now)) is not None:
            asyncio.get_running_loop().call_later(due, self._look_for_readiness)

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
            while queue and self._sockets.send(channel, queue[0][2]):
                epoch, number, _ = queue.popleft()
                if self._link is not None and self._link.epoch == epoch:
                    self._link.say({"op": "got", "n": number})

    # ---- the relay

    async def serve(self, stream: Stream) -> None:
        """Serve one relay until its connection ends. Raises OSError."""
        reader, writer = stream
        writer.transport.set_write_buffer_limits(high=_MOST_UNSENT_BYTES)
        records = RecordReader(LONGEST_RECORD)
        try:
            while piece := await reader.read(_PIECE_BYTES):
                for record in _records(records, piece):
                    self._take(writer, record)
        except (ProtocolError, KeyError, TypeError, ValueError, AttributeError) as error:
            log("relay_not_understood", reason=error)
            link = self._link
            if link is not None and link.writer is writer:
                link.say({"op": "refused", "message": f"{error!r:.1000}"})  # it says hello again, after a while
        finally:
            if self._link is not None and self._link.writer is writer:
                self._link = None

    def _take(self, writer: asyncio.StreamWriter, record: Record) -> None:
        link = self._link
        if record.op == "hello":
            self._greet(writer, record.header)
        elif link is None or link.writer is not writer:
            writer.close()  # another relay came after it
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
            self._turn_soon()

    def _greet(self, writer: asyncio.StreamWriter, told: Mapping[str, Any]) -> None:
        if not set(VERSIONS) & set(told["versions"]):
            raise ProtocolError(f"a relay speaks versions {told['versions']!r}, this sidecar {list(VERSIONS)}")
        epoch, is_same = str(told["epoch"]), told["run"] == self._run
        known = int(told["last"]) if is_same else 0
        received = self._received.get(epoch, 0) if is_same else 0
        self._received[epoch] = received
        if self._link is not None and self._link.writer is not writer:
            self._link.writer.close()
        todo = deque(entry.seq for entry in self._store if entry.seq > known)
        self._store.handed = known
        link = self._link = _Link(writer, epoch, todo, self._push)
        waiting = [number for queue in self._waiting.values() for of, number, _ in queue if of == epoch]
        hello = {"op": "hello", "version": VERSIONS[-1], "run": self._run, "follows": len(self._received) > 1}
        link.say({**hello, "notes": list(self._notes.values()), "received": received, "waiting": waiting})
        if self._sockets.is_ready or self._is_over:
            self._tell_ready()
        self._push()

    def _accept(self, link: _Link, record: Record) -> None:
        number, channel = int(record.header["n"]), record.header["channel"]
        if number <= self._received.get(link.epoch, 0):
            return
        self._received[link.epoch] = number
        if (note := record.header.get("note")) is not None:
            self._note(str(note["id"]), note)
        self._waiting[channel].append((link.epoch, number, record.frames))
        self._turn_soon()

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

    def _push(self) -> None:
        """Send the relay what it takes now; the rest when it has taken that."""
        link = self._link
        if link is None:
            return
        while link.todo and link.flush():
            if (entry := self._store.get(link.todo.popleft())) is not None:
                self._store.handed = entry.seq
                self._send(link, entry)
        if self._is_over and not link.todo and not link.told_end:
            link.told_end = True
            link.say({"op": "ended"})

    def _send(self, link: _Link, entry: Entry) -> None:
        try:
            frames = self._store.load(entry)
        except OSError:
            self._store.lose(entry)
            return
        envelope = (entry.session or "").split()
        link.say({"op": "message", "seq": entry.seq, "channel": entry.channel, "envelope": envelope}, frames)


async def _ends(writer: asyncio.StreamWriter, until: float) -> bool:
    """End a connection; tell whether its other end confirmed that, and so got all that was sent."""
    writer.close()
    with contextlib.suppress(OSError, asyncio.TimeoutError):
        await asyncio.wait_for(writer.wait_closed(), min(_CLOSE_SECONDS, max(0.0, until - time.monotonic())))
        return True
    writer.transport.abort()
    return False


def _records(reader: RecordReader, piece: bytes) -> Sequence[Record]:
    found: list[Record] = []
    while piece:
        room = reader.buffer()
        count = min(len(room), len(piece))
        room[:count] = piece[:count]
        found += reader.filled(count)
        piece = piece[count:]
    return found
