"""The front: ZMQ sockets for Jupyter clients, bound at the same names for the relay's life. Forwards nothing itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import zmq

from .records import FRONT_PORTS

CHANNELS = ("shell", "control", "stdin", "hb", "iopub")
_TYPES = {"shell": zmq.ROUTER, "control": zmq.ROUTER, "stdin": zmq.ROUTER, "hb": zmq.ROUTER, "iopub": zmq.XPUB}
# Several times what a kernel and its client would hold between them; a slower client loses some, as with any PUB.
_IOPUB_MESSAGES = 10_000


class Front:
    """Made after the fork. ``sockets`` by channel; iopub also receives subscriptions."""

    def __init__(self, context: zmq.Context[Any], prefix: Path, curve: tuple[str, str] = ("", "")) -> None:
        """``curve``: public and secret key. Raises zmq.ZMQError when a name cannot be bound."""
        self._curve = curve
        self.sockets: dict[str, Any] = {}
        try:
            for channel in CHANNELS:
                self._bind(context, prefix, channel)
        except zmq.ZMQError:
            self.close()
            raise

    def close(self) -> None:
        for socket in self.sockets.values():
            socket.close(linger=0)

    def _bind(self, context: zmq.Context[Any], prefix: Path, channel: str) -> None:
        socket = self.sockets[channel] = context.socket(_TYPES[channel])
        socket.linger = 0
        if self._curve[1]:
            public, secret = self._curve
            socket.curve_publickey, socket.curve_secretkey = public.encode(), secret.encode()
            socket.curve_server = True
        if channel == "iopub":
            socket.sndhwm = _IOPUB_MESSAGES
            socket.setsockopt(zmq.XPUB_VERBOSE, 1)  # each subscriber gets a welcome, not only the first
        else:
            socket.sndhwm = socket.rcvhwm = 0
            # A client that comes back under its name finds its old connection still there.
            socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        path = f"{os.fspath(prefix)}-{FRONT_PORTS[f'{channel}_port']}"
        socket.bind(f"ipc://{path}")
        os.chmod(path, 0o600)
