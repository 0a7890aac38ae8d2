"""The kernel of a pod, by its sidecar, in the place of `KernelSockets`.

The sidecar keeps what the kernel sends until this relay is done with it, or another relay in its place.
So a connection that is lost is no end of the kernel: it is made again, and nothing comes twice. The
sidecar's end is `provisioner/kubernetes/tunnel/keeper.py`. Records are those of links:

    hello {versions, epoch, run, last}          run, last: the last message of that run that came
    send {n, channel, note} + message           note: what a later relay needs to know of an open request
    closed {ids}                                these noted requests are not open any more
    done {seqs}                                 ranges of messages that need not be kept
    heart + message                             of the heartbeat, both ways

    hello {version, run, follows, notes, received, waiting}
                                                follows: another relay was before. received: the last request
                                                that came; those in waiting the kernel has no room for
    ready {welcomed}                            the kernel takes requests
    message {seq, channel, envelope} + message  envelope: the frames before the delimiter, in hex
    got {n}                                     the kernel took this request
    ended                                       the kernel, after all that it sent
    refused {message}                           the sidecar does not understand a record
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import zmq

from jupyter_aliquot.gpu_hook.base.pacing import Backoff
from jupyter_aliquot.provisioner.relay.wire.log import log
from jupyter_aliquot.provisioner.relay.wire.peer import Peer
from jupyter_aliquot.provisioner.relay.wire.protocol import VERSIONS, ProtocolError, Record
from jupyter_aliquot.provisioner.relay.wire.ranges import Range, joined

from .kernel_sockets import KernelSockets
from .poll_loop import READ, WRITE, Watcher

# Requests of a channel that the kernel has not taken: more wait in the relay, which counts them.
_MOST_UNTAKEN = 4
# The numbers of one run's messages are below this; those of the next run begin there.
_RUN_NUMBERS = 1 << 48
_MOST_RANGES = 10_000  # of one record, whose header is bounded
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 1.0, 10.0


class Taker(Protocol):
    """The forwarder, as `SidecarLink` sees it."""

    def take(self, channel: str, frames: Sequence[Any], origin: int) -> None:
        """Take a message of the kernel, by the number that the store is to tell when it is done with."""

    def took_room(self, channel: str) -> None:
        """Send what waits on a channel, for the kernel took something."""

    def welcomed(self) -> None:
        """Note that the kernel has a subscription to all."""

    def beat(self, frames: Sequence[Any]) -> None:
        """Take an answer to a heartbeat."""

    def note(self, channel: str, frames: Sequence[Any]) -> Mapping[str, Any] | None:
        """Return what a later relay needs to know of an open request; None of another."""

    def follow(self, notes: Sequence[Mapping[str, Any]], *, is_later: bool) -> None:
        """Take over the open requests of another relay of this run, if there was one."""

    def open_of(self, msg_ids: Sequence[str]) -> set[str]:
        """Return those of these requests that are open."""


class SidecarLink:
    """A link that lasts for one run of the kernel, over as many connections as it takes."""

    monitor = None  # the loop watches the connection
    lacks_spares = False

    def __init__(self, loop: Watcher, folder: Path, epoch: str) -> None:
        """Make no connection yet. *folder* has the tunnel's sockets; *epoch* tells this relay from others."""
        self._loop = loop
        self._path, self._mark = folder / "s-1", folder / "over"
        self._names = (self._path, folder / "s-5", self._mark)
        self._epoch = epoch
        self.taker: Taker
        self._peer: Peer | None = None
        self._waits, self._next_try = Backoff(_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS), 0.0
        self._tried: tuple[int, int] | None = None  # the tunnel's socket that the last connection was to
        self._is_greeted = self._is_joined = False
        self._early: list[Record] = []  # what came before the relay had joined
        self._run = self._left_run = ""
        self._base = 0  # of the numbers of this run's messages
        self._last = 0  # the last message that came
        self._sent = 0
        self._untaken: dict[int, tuple[str, Record]] = {}  # requests that the kernel has not taken
        self._noted: set[str] = set()
        self._done: list[Range] = []
        self.sockets: dict[str, Any] = {}  # the loop watches none
        self.is_ready = self.has_welcomed = self.resumes = self.is_over = False

    # ---- the connection

    @property
    def is_away(self) -> bool:
        return not self._is_joined

    def is_there(self) -> bool:
        """Tell whether the sidecar answers, of a run that this relay has not left; connect to it."""
        if self._run and os.path.lexists(self._mark):
            self.is_over = True
        elif self._peer is None and (time.monotonic() >= self._next_try or _which(self._path) != self._tried):
            self._connect()
        return self._is_greeted and not self.is_over

    def _connect(self) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            connection.connect(os.fspath(self._path))
        except OSError:
            connection.close()
            return
        self._peer, self._tried = Peer(connection), _which(self._path)
        self._peer.takes_links()
        hello = {"op": "hello", "versions": list(VERSIONS), "role": "link", "epoch": self._epoch}
        self._say({**hello, "run": self._run, "last": self._last})

    def join(self) -> None:
        """Begin with the run that the sidecar told, or go on with it."""
        self._is_joined = True

    def begin(self) -> None:
        """Send what the sidecar did not get, and take what came meanwhile."""
        for number, (_, request) in sorted(self._untaken.items()):
            if not request.header.get("is_there"):
                self._say({**request.header, "n": number}, request.frames)
        early, self._early = self._early, []
        for record in early:
            self._take(record)
        for channel in ("shell", "control", "stdin"):
            self.taker.took_room(channel)

    def leave(self, *, removes_files: bool = True) -> None:
        """Forget a run that ended."""
        self._cut()
        self._left_run, self._run = self._run, ""
        self._base += _RUN_NUMBERS
        self._last = self._sent = 0
        self._untaken.clear()
        self._noted.clear()
        self._done.clear()
        self.is_ready = self.has_welcomed = self.resumes = self.is_over = False
        for name in self._names if removes_files else ():
            with contextlib.suppress(OSError):
                name.unlink()

    def _cut(self) -> None:
        if self._peer is not None:
            self._loop.forget(self._peer.descriptor)
            self._peer.close()
        self._peer = None
        self._is_greeted = self._is_joined = False
        self.is_ready = False  # requests wait, and stay for another run if this one has ended
        self._early.clear()

    def _cut_for_a_while(self) -> None:
        """End a connection that came to nothing; another to this socket of the tunnel's waits."""
        self._next_try = time.monotonic() + self._waits.next_seconds()
        self._cut()

    def _say(self, header: Mapping[str, Any], frames: Sequence[Any] = ()) -> None:
        peer = self._peer
        if peer is None:
            return
        peer.say(header, frames)
        peer.flush()
        self._loop.watch(peer.descriptor, self._ready, READ | WRITE if peer.has_unsent else READ)

    def _ready(self, events: int) -> None:
        peer = self._peer
        if peer is None:
            return
        if events & WRITE:
            self._say_rest(peer)
        try:
            for record in peer.read():
                self._take(record)
                if self._peer is not peer:
                    return
        except (ProtocolError, KeyError, TypeError, ValueError) as error:
            log("sidecar_not_understood", reason=error)
            self._cut_for_a_while()
            return
        if peer.is_ended:
            self._cut()

    def _say_rest(self, peer: Peer) -> None:
        peer.flush()
        if not peer.has_unsent:
            self._loop.watch(peer.descriptor, self._ready, READ)

    # ---- from the sidecar

    def _take(self, record: Record) -> None:
        if record.op == "hello":
            self._greeted(record.header)
        elif record.op == "refused":
            raise ProtocolError(f"it refused a record: {record.header.get('message')!s:.1000}")
        elif not self._is_joined:
            self._early.append(record)
        elif record.op == "message":
            self._message(record)
        elif record.op == "got":
            self._got(int(record.header["n"]))
        elif record.op == "ready":
            self._is_kernel_ready(record.header)
        elif record.op == "heart":
            self.taker.beat(_frames(record.frames))
        elif record.op == "ended":
            self.is_over = True

    def _greeted(self, told: Mapping[str, Any]) -> None:
        run = str(told["run"])
        if run == self._left_run:
            self._cut_for_a_while()  # its pod is about to end
            return
        if self._run and run != self._run:
            self.is_over = True  # the run before, without a word
            return
        self.resumes, self._run, self._is_greeted = bool(self._run), run, True
        if not self.resumes:
            self.taker.follow(told["notes"], is_later=bool(told["follows"]))
            self._noted.update(str(one["id"]) for one in told["notes"])  # this relay tells when they end
        received, waiting = int(told["received"]), set(told["waiting"])
        for number in [one for one in self._untaken if one <= received]:
            if number in waiting:
                self._untaken[number][1].header["is_there"] = True
            else:
                del self._untaken[number]

    def _message(self, record: Record) -> None:
        number = int(record.header["seq"])
        if number <= self._last:
            return
        self._last = number
        self._waits.reset()
        envelope = [bytes.fromhex(frame) for frame in record.header["envelope"]]
        frames = [*_frames(envelope), *_frames(record.frames)]
        self.taker.take(str(record.header["channel"]), frames, self._base + number)

    def _is_kernel_ready(self, told: Mapping[str, Any]) -> None:
        self.is_ready = True
        if told.get("welcomed") and not self.has_welcomed:
            self.taker.welcomed()

    def _got(self, number: int) -> None:
        taken = self._untaken.pop(number, None)
        if taken is not None:
            self.taker.took_room(taken[0])

    # ---- to the sidecar

    def send(self, channel: str, frames: Sequence[Any]) -> bool:
        """Send a message to the kernel; False if the channel has no room for it, or the sidecar is away."""
        if channel == "hb":
            self._say({"op": "heart"}, [bytes(frame) for frame in frames])
            return True
        if self.is_away or sum(one == channel for one, _ in self._untaken.values()) >= _MOST_UNTAKEN:
            return False
        self._sent += 1
        header: dict[str, Any] = {"op": "send", "channel": channel}
        if (note := self.taker.note(channel, frames)) is not None:
            header["note"] = note
            self._noted.add(note["id"])
        request = Record(header, [bytes(frame) for frame in frames])
        self._untaken[self._sent] = channel, request
        self._say({**header, "n": self._sent}, request.frames)
        return True

    def forget(self, origins: Sequence[Range]) -> None:
        """Note messages that this relay is done with; `settle` tells the sidecar."""
        self._done.extend((first - self._base, last - self._base) for first, last in origins if first > self._base)

    def settle(self) -> None:
        """Tell the sidecar what it need not keep any more. Called at a turn's end."""
        if self.is_away:
            return
        if self._done:
            done, self._done = joined(sorted(self._done)), []
            for at in range(0, len(done), _MOST_RANGES):
                self._say({"op": "done", "seqs": done[at : at + _MOST_RANGES]})
        if self._noted and (closed := self._noted - self.taker.open_of(tuple(self._noted))):
            self._noted -= closed
            self._say({"op": "closed", "ids": sorted(closed)})

    # ---- what `KernelSockets` has

    def welcomed(self) -> None:
        """Note that the kernel has our subscription."""
        self.is_ready = self.has_welcomed = True

    def became_ready(self, now: float) -> bool:
        """Tell that the sidecar alone says when the kernel is ready."""
        return False

    def ready_in(self, now: float) -> None:
        """Tell that nothing is due of itself."""

    def read_monitor(self, now: float) -> bool:
        """Tell that there is no monitor."""
        return False

    def make_spares(self) -> None:
        """Do nothing: the tunnel makes the names of its sockets again."""


def _which(path: Path) -> tuple[int, int] | None:
    """Return what tells a socket from another at the same path; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def _frames(frames: Sequence[Any]) -> list[Any]:
    """Return frames as ZMQ's, which those of a kernel beside the relay are. To share them costs more than a copy."""
    return [zmq.Frame(frame) for frame in frames]


KernelSide = KernelSockets | SidecarLink
