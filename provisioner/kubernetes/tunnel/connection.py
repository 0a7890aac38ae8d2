"""A stream socket in the sidecar's poll loop, of TLS or plain. Nothing here waits, and no word is read.

The sidecar has no asyncio: its import takes the kernel, which starts beside it, more of a processor
than all that the sidecar does until then.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from jupyter_aliquot.provisioner.relay.server.poll_loop import READ, WRITE, Watcher

_PIECE_BYTES = 1 << 16
_MOST_PIECES = 16  # of one connection, before the loop looks at the others
_MOST_UNSENT_BYTES = 1 << 20
_CLOSE_SECONDS = 5.0  # for the other side to confirm an end
_NEVER = float("inf")


class Owner(Protocol):
    """Whatever a connection belongs to. The connection calls it."""

    def take(self, piece: bytes) -> None:
        """Take what came."""

    def has_room(self) -> None:
        """Send more, where more waits."""

    def gone(self) -> None:
        """Note the connection's end."""


class Connection:
    """A connection, of which TLS has its handshake here.

    ``deadline``: when it is closed, on the monotonic clock. ``is_confirmed``: it was ended, and the other side
    told that it had all.
    """

    def __init__(self, loop: Watcher, connection: socket.socket, owner: Owner) -> None:
        connection.setblocking(False)
        self._loop, self._socket, self._owner = loop, connection, owner
        self._tls = connection if isinstance(connection, ssl.SSLSocket) else None
        self._descriptor = connection.fileno()
        self._is_greeted = self._tls is None
        self._out: deque[memoryview] = deque()
        self._unsent_bytes, self._wants = 0, READ
        self._is_working = self._is_paused = self._is_ending = self._has_parted = False
        self.deadline = _NEVER
        self.is_over = self.is_confirmed = False
        loop.watch(self._descriptor, self._work, READ)

    @property
    def is_idle(self) -> bool:
        """Tell whether it sent all that it was given."""
        return not self._out

    @property
    def can_take(self) -> bool:
        """Tell whether it takes more: what it has not sent is in memory."""
        return self._unsent_bytes < _MOST_UNSENT_BYTES and not self.is_over

    def belong_to(self, owner: Owner) -> None:
        """Tell another what comes from now on."""
        self._owner, self.deadline = owner, _NEVER

    def send(self, pieces: Sequence[Any]) -> None:
        """Send these after those before them. Nothing is copied."""
        if self.is_over or self._is_ending:
            return
        self._out.extend(memoryview(piece) for piece in pieces if len(piece))
        self._unsent_bytes += sum(map(len, pieces))
        self._step(self._flush)

    def pause(self) -> None:
        """Read nothing until `resume`."""
        self._is_paused = True

    def resume(self) -> None:
        """Read again."""
        if self._is_paused:
            self._is_paused = False
            self._wants |= READ
            self._watch()

    def end(self, until: float = 0.0) -> None:
        """Send what is left, and end: at *until* at the latest, if that comes before the usual time is over."""
        if not self._is_ending:
            usual = time.monotonic() + _CLOSE_SECONDS
            self.deadline = min(usual, until) if until else usual
            self._is_ending, self._is_paused = True, False
            self._wants |= READ  # also one that was paused: the other side's word is awaited
            self._step(self._part)

    def close(self) -> None:
        """End it at once, whatever it has not sent. Idempotent."""
        if not self.is_over:
            self.is_over = True
            self._loop.forget(self._descriptor)
            self._socket.close()
            self._out.clear()
            self._owner.gone()

    # ---- the socket

    def _work(self, _events: int) -> None:
        """Do all that can be done now. Called by the loop."""
        self._wants, self._is_working = 0, True
        try:
            self._step(self._do)
        finally:
            self._is_working = False
        self._watch()

    def _step(self, work: Callable[[], None]) -> None:
        """Do a part of the work, and then watch for what it waits for."""
        if self.is_over:
            return
        try:
            work()
        except OSError:  # ssl.SSLError is one
            self.close()
        self._watch()

    def _watch(self) -> None:
        if self.is_over or self._is_working:
            return
        if self._wants:
            self._loop.watch(self._descriptor, self._work, self._wants)
        else:
            self._loop.forget(self._descriptor)  # else the loop would turn for an end that is not read yet

    def _do(self) -> None:
        if not self._is_greeted and self._tls is not None:
            self._is_greeted = self._attempt(self._tls.do_handshake, None) is not None
            if not self._is_greeted:
                return
        self._flush()
        if self._is_ending:
            self._part()
        elif self.can_take:
            self._owner.has_room()
        self._read()

    def _attempt(self, act: Callable[..., Any], word: Any) -> Any:
        """Return what a call on the socket does; None: it waits. Raises OSError."""
        try:
            found = act() if word is None else act(word)
            return True if found is None else found
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            self._wants |= READ if isinstance(error, ssl.SSLWantReadError) else WRITE
        except BlockingIOError:
            self._wants |= WRITE if act == self._socket.send else READ
        return None

    def _flush(self) -> None:
        while self._out and self._is_greeted:
            first = self._out[0]
            sent = self._attempt(self._socket.send, first[:_PIECE_BYTES])  # TLS copies it several times
            if sent is None:
                return
            self._unsent_bytes -= sent
            if sent < len(first):
                self._out[0] = first[sent:]
            else:
                self._out.popleft()

    def _read(self) -> None:
        for _ in range(_MOST_PIECES):
            if self._is_paused or self.is_over:
                return
            try:
                piece = self._attempt(self._socket.recv, _PIECE_BYTES)
            except ssl.SSLZeroReturnError:
                piece = b""
            if piece is None:
                return
            if not piece:
                self.is_confirmed = self._has_parted
                self.close()
                return
            if not self._is_ending:
                self._owner.take(piece)
        self._wants |= READ

    def _part(self) -> None:
        """Tell the other side that this was all, once it was sent. A plain connection tells by its end."""
        self._flush()
        if self._out or self._has_parted:
            return
        if self._tls is None or not self._is_greeted:
            self.close()
            return
        self._wants &= ~WRITE
        if self._attempt(self._tls.unwrap, None) is not None:
            self._has_parted = self.is_confirmed = True
            self.close()
        self._has_parted = not self._wants & WRITE
