"""The service of a pod's sidecar: it leads the gateway's connections to the kernel, over TLS.

What the kernel sends is kept (`keeper`) until the gateway's relay is done with it.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import signal
import socket
import ssl
import time
from pathlib import Path
from typing import Any

from jupyter_aliquot.provisioner.relay.server.poll_loop import Loop
from jupyter_aliquot.provisioner.relay.store.spill_room import sweep
from jupyter_aliquot.provisioner.relay.wire.messages import Signer, new_id

from .connection import Connection, Owner
from .keeper import Keeper
from .stream import CHANNELS, KEPT, LIFE, LIFE_BEFORE, LONGEST_LINE, OK

_GREETING_SECONDS = 20.0  # for the handshake and the first line
_MOST_CONNECTIONS = 200  # a gateway has some; more would leave the kernel's sockets no descriptor
_LONGEST_WAIT_SECONDS = 60.0
_LAST_PART = 0.8  # of the pod's grace period: for what no gateway has taken at its end


class Sidecar:
    """The connections of one kernel, whose sockets are ``s-1`` to ``s-5`` in *folder*."""

    def __init__(self, loop: Loop, folder: Path, token: str, keeper: Keeper, context: ssl.SSLContext) -> None:
        self._loop, self._folder, self._keeper, self._context = loop, folder, keeper, context
        self._token = token.encode()
        self._connections: list[Connection] = []
        self._waiting: list[_Caller] = []  # for the kernel

    def accept(self, listening: socket.socket) -> None:
        """Take the connections that have come."""
        with contextlib.suppress(OSError):
            while True:
                raw, _ = listening.accept()
                if len(self._connections) >= _MOST_CONNECTIONS:
                    raw.close()
                    continue
                with contextlib.suppress(OSError):  # one that has ended
                    self._connections.append(_Caller(self, self._loop, self._secured(raw)).connection)

    def _secured(self, raw: socket.socket) -> ssl.SSLSocket:
        """Return a socket whose handshake is to come, and which tells a cut connection from one that was ended."""
        raw.setblocking(False)
        try:
            return self._context.wrap_socket(
                raw, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=False
            )
        except OSError:
            raw.close()
            raise

    def channel_of(self, line: bytes) -> str:
        """Return the channel that a first line asks for; empty without the token, or for one that is not known."""
        token, _, channel = line.strip().partition(b" ")
        name = channel.decode("ascii", "replace") if hmac.compare_digest(token, self._token) else ""
        return name if name in (*CHANNELS, KEPT, LIFE, LIFE_BEFORE) else ""

    def greeted(self, caller: _Caller) -> None:
        """Serve a connection once the kernel is there: the gateway connects ahead."""
        self._waiting.append(caller)
        self.turn(time.monotonic())

    def due_in(self, now: float) -> float:
        """Return the seconds until `turn` is due of itself."""
        return min((one.deadline - now for one in self._connections), default=_LONGEST_WAIT_SECONDS)

    def turn(self, now: float) -> None:
        """Serve the connections that waited for the kernel, and end those whose time is over."""
        if self._keeper.has_joined:
            waiting, self._waiting = self._waiting, []
            for caller in waiting:
                if not caller.connection.is_over:
                    self._serve(caller)
        for one in self._connections:
            if now >= one.deadline:
                one.close()
        self._connections = [one for one in self._connections if not one.is_over]

    def close(self) -> None:
        """End all connections. Their other sides hear of it at once."""
        for one in self._connections:
            one.end()

    def _serve(self, caller: _Caller) -> None:
        connection = caller.connection
        try:
            owner = self._owner(caller.channel, connection)
        except OSError:
            connection.end()  # the gateway asks again
            return
        connection.belong_to(owner)
        connection.send([OK])
        if caller.came:
            owner.take(caller.came)
        connection.resume()

    def _owner(self, channel: str, connection: Connection) -> Owner:
        """Return whatever serves a channel. Raises OSError for a socket of the kernel that takes no connection."""
        if channel == KEPT:
            return self._keeper.link(connection)
        return Life() if channel in (LIFE, LIFE_BEFORE) else self._pipe(channel, connection)

    def _pipe(self, channel: str, connection: Connection) -> _Pipe:
        kernels = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            kernels.connect(os.fspath(self._folder / f"s-{channel}"))
        except OSError:
            kernels.close()
            raise
        there = Connection(self._loop, kernels, Life())
        there.belong_to(_Pipe(there, connection))
        self._connections.append(there)
        return _Pipe(connection, there)


class Life:
    """An owner that has nothing to say: its connection lasts as long as the pod."""

    def take(self, piece: bytes) -> None:
        """Called by the connection."""

    def has_room(self) -> None:
        """Called by the connection."""

    def gone(self) -> None:
        """Called by the connection."""


class _Caller(Life):
    """A gateway's connection until it is served. ``came``: what came after its first line."""

    def __init__(self, sidecar: Sidecar, loop: Loop, secured: ssl.SSLSocket) -> None:
        self._sidecar = sidecar
        self.came, self.channel = b"", ""
        self.connection = Connection(loop, secured, self)
        self.connection.deadline = time.monotonic() + _GREETING_SECONDS

    def take(self, piece: bytes) -> None:
        """Called by the connection."""
        self.came += piece
        if self.channel:
            if len(self.came) > LONGEST_LINE:
                self.connection.pause()
            return
        line, end, rest = self.came.partition(b"\n")
        if end:
            self.came, self.channel = rest, self._sidecar.channel_of(line)
        if self.channel:
            self.connection.belong_to(self)  # it may wait as long as the kernel takes to come
            self._sidecar.greeted(self)
        elif end or len(self.came) > LONGEST_LINE:
            self.connection.end()


class _Pipe:
    """The way of bytes from one connection into another. Both are over together."""

    def __init__(self, here: Connection, there: Connection) -> None:
        self._here, self._there = here, there

    def take(self, piece: bytes) -> None:
        """Called by the connection."""
        self._there.send([piece])
        if not self._there.can_take:
            self._here.pause()

    def has_room(self) -> None:
        """Called by the connection, into which the other leads."""
        self._there.resume()

    def gone(self) -> None:
        """Called by the connection."""
        self._there.end()


def run(
    folder: Path, keys: Path, listening: socket.socket, output: Path, most_bytes: int, grace_seconds: float
) -> None:
    """Serve until SIGTERM. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(keys / "tls.crt", keys / "tls.key")
    told = json.loads((keys / "connection.json").read_text())
    kept = output / "kept"  # its own: a volume's folder is the node's
    sweep(kept)  # what a killed sidecar left
    loop = Loop()
    keeper = Keeper(loop, folder, kept, most_bytes, Signer(told["key"], told["signature_scheme"], new_id()))
    sidecar = Sidecar(loop, folder, (keys / "token").read_text().strip(), keeper, context)
    stop = _Stop(loop)
    listening.setblocking(False)
    loop.watch(listening.fileno(), lambda _: sidecar.accept(listening))
    while not (stop.is_asked and keeper.is_finished(time.monotonic())):
        now = time.monotonic()
        loop.turn(min(keeper.due_in(now), sidecar.due_in(now), _LONGEST_WAIT_SECONDS))
        if stop.is_asked:
            keeper.finish(_LAST_PART * grace_seconds)
        keeper.turn(time.monotonic())
        sidecar.turn(time.monotonic())
    sidecar.close()


class _Stop:
    """The signals that end the sidecar. The first process of a container gets none that it does not handle."""

    def __init__(self, loop: Loop) -> None:
        self.is_asked = False
        self._ends = socket.socketpair()
        for end in self._ends:
            end.setblocking(False)
        signal.set_wakeup_fd(self._ends[1].fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)
        loop.watch(self._ends[0].fileno(), self._wake)

    def _ask(self, _number: int, _frame: Any) -> None:
        self.is_asked = True

    def _wake(self, _events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._ends[0].recv(4096):
                pass
