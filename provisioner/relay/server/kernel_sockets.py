"""ZMQ sockets to one run of the kernel.

The relay makes them when the kernel's socket files are there, and forgets them when it ends.

    away -> joining -> ready

``ready`` means that the relay surely receives the kernel's iopub; until then messages for the
kernel wait in the relay.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import zmq

from jupyter_aliquot.provisioner.relay.wire.ports import FRONT_PORTS
from jupyter_aliquot.provisioner.relay.wire.spare_names import SpareNames
from jupyter_aliquot.provisioner.relay.wire.zmq_io import send_now

CHANNELS = ("iopub", "hb", "shell", "control", "stdin")
_TYPES = {"shell": zmq.DEALER, "control": zmq.DEALER, "stdin": zmq.DEALER, "hb": zmq.DEALER, "iopub": zmq.SUB}
_RECONNECT_MILLISECONDS = 10
# Messages that the kernel has not read wait in the relay, which counts them (`unread`).
_SENT_MESSAGES = {"shell": 1, "control": 1, "stdin": 1, "hb": 16, "iopub": 0}
_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
# A kernel that sends no iopub_welcome has our subscription at the latest this long after the
# handshake.
WELCOME_SECONDS = 0.05


class KernelSockets:
    """The kernel's sockets.

    Shell and stdin have one ``identity``, so that an input_request finds its cell's client.
    """

    resumes = False  # a kernel that is joined is another one
    is_over = False  # its process or its sockets tell of its end

    def __init__(self, context: zmq.Context[Any], prefix: Path, identity: bytes, spares: SpareNames) -> None:
        """Make the sockets. Spares that answer now are of a kernel that an earlier relay joined."""
        self._context = context
        self._spares = spares
        self._has_spares = spares.answer()
        self.lacks_spares = False
        self._paths = [f"{os.fspath(prefix)}-{port}" for port in FRONT_PORTS.values()]
        self._identity = identity
        self._heard_at: float | None = None
        self._held: list[int] = []  # descriptors of the kernel's socket files, in the order of the ports
        self.sockets: dict[str, Any] = {}
        self.monitor: Any = None
        self.is_ready = False
        self.has_welcomed = False

    @property
    def is_away(self) -> bool:
        return not self.sockets

    def is_there(self) -> bool:
        """Tell whether the kernel has bound all of its sockets, and hold them.

        Otherwise the kernel might put links in their place, to sockets that we reach and it does
        not.
        """
        if all(map(os.path.lexists, self._paths)):
            paths = self._paths
        elif self._has_spares:
            paths = list(map(os.fspath, self._spares.paths))
        else:
            return False
        self._let_go()
        with contextlib.suppress(OSError):
            self._held.extend(os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC) for path in paths)
        return len(self._held) == len(self._paths) and all(stat.S_ISSOCK(os.fstat(one).st_mode) for one in self._held)

    def join(self) -> None:
        """Connect to the kernel's sockets."""
        for channel in CHANNELS:
            socket = self.sockets[channel] = self._context.socket(_TYPES[channel])
            socket.linger = 0
            socket.sndhwm = _SENT_MESSAGES[channel]
            socket.rcvhwm = 0  # no message of the kernel is lost on the way
            socket.reconnect_ivl = _RECONNECT_MILLISECONDS
            if channel == "iopub":
                self.monitor = socket.get_monitor_socket(_EVENTS)
                socket.subscribe(b"")
            else:
                socket.setsockopt(zmq.IDENTITY, self._identity)
            held = self._held[list(FRONT_PORTS).index(f"{channel}_port")]
            socket.connect(f"ipc:///proc/self/fd/{held}")
        self.lacks_spares = True
        with contextlib.suppress(OSError):
            self.make_spares()

    def begin(self) -> None:
        """Do nothing: the loop reads the sockets."""

    def send(self, channel: str, frames: Sequence[Any]) -> bool:
        """Send a message to the kernel; False if the channel has no room for it."""
        return send_now(self.sockets[channel], frames)

    def make_spares(self) -> None:
        """Name the kernel's sockets a second time, for a later relay. Raises OSError."""
        if self._held:
            self._spares.keep(self._held)
        self.lacks_spares = False

    def leave(self, *, removes_files: bool = True) -> None:
        """Forget the sockets of a kernel that ended.

        Remove their files unless they are another kernel's.
        """
        if self.monitor is not None:
            self.sockets["iopub"].disable_monitor()
            self.monitor = None
        for socket in self.sockets.values():
            socket.close(linger=0)
        self.sockets.clear()
        self._let_go()
        self._heard_at, self.is_ready, self.has_welcomed = None, False, False
        self._has_spares = self.lacks_spares = False
        if removes_files:
            self.remove_files()

    def _let_go(self) -> None:
        while self._held:
            os.close(self._held.pop())

    def remove_files(self) -> None:
        self._spares.remove()
        for path in self._paths:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def read_monitor(self, now: float) -> bool:
        """Read the monitor of iopub; True if the kernel closed the connection."""
        hung_up = False
        while True:
            try:
                frames: Sequence[bytes] = self.monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return hung_up
            (event,) = struct.unpack_from("=H", frames[0])
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED and self._heard_at is None:
                self._heard_at = now + WELCOME_SECONDS
            hung_up = hung_up or event == zmq.EVENT_DISCONNECTED

    def welcomed(self) -> None:
        """Note that the kernel has our subscription."""
        self.is_ready = self.has_welcomed = True

    def became_ready(self, now: float) -> bool:
        """Tell whether a kernel that sends no welcome counts as ready from now on."""
        if self.is_ready or self._heard_at is None or now < self._heard_at:
            return False
        self.is_ready = True
        return True

    def ready_in(self, now: float) -> float | None:
        """Return the seconds until ``became_ready`` is due; None if the kernel decides that."""
        return None if self.is_ready or self._heard_at is None else max(0.0, self._heard_at - now)
