"""ZMQ sockets for Jupyter clients, bound at the same names for the relay's life.

They forward nothing themselves.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import zmq

from jupyter_aliquot.provisioner.relay.wire.files import socket_mode
from jupyter_aliquot.provisioner.relay.wire.ports import FRONT_PORTS
from jupyter_aliquot.provisioner.relay.wire.rmtree import remove_folder

CHANNELS = ("shell", "control", "stdin", "hb", "iopub")
_TYPES = {"shell": zmq.ROUTER, "control": zmq.ROUTER, "stdin": zmq.ROUTER, "hb": zmq.ROUTER, "iopub": zmq.XPUB}
# Several times what a kernel and its client would hold between them; a slower client loses some, as
# with any PUB.
_IOPUB_MESSAGES = 10_000


class ClientSockets:
    """The client sockets, by channel; iopub also receives subscriptions. Made after the fork."""

    def __init__(self, context: zmq.Context[Any], prefix: Path, curve: tuple[str, str] = ("", "")) -> None:
        """Bind the sockets. ``curve``: public and secret key.

        Raises zmq.ZMQError when a name cannot be bound.
        """
        self._curve = curve
        self._prefix = os.fspath(prefix)
        self._inodes: dict[str, int] = {}
        self.sockets: dict[str, Any] = {}
        try:
            for channel in CHANNELS:
                self._make(context, channel)
                self._bind(channel)
        except zmq.ZMQError:
            self.close()
            raise

    def close(self) -> None:
        for socket in self.sockets.values():
            socket.close(linger=0)

    def bind_missing(self) -> None:
        """Bind again at names that are gone, or that another socket took; connections stay.

        Raises OSError.
        """
        for channel in CHANNELS:
            try:
                is_there = os.lstat(self._path(channel)).st_ino == self._inodes[channel]
            except FileNotFoundError:
                is_there = False
            if not is_there:
                try:
                    self._bind(channel)
                except zmq.ZMQError as error:
                    raise OSError(error.errno, f"cannot bind {self._path(channel)}: {error}") from error

    def _path(self, channel: str) -> str:
        return f"{self._prefix}-{FRONT_PORTS[f'{channel}_port']}"

    def _bind(self, channel: str) -> None:
        """Bind under another name first.

        ZMQ removes the name that it bound, however late it closes a socket.
        """
        path = self._path(channel)
        self.sockets[channel].bind(f"ipc://{path}.new")
        os.chmod(f"{path}.new", socket_mode(Path(path).parent))
        remove_folder(Path(path))  # if the name is a folder
        os.replace(f"{path}.new", path)
        self._inodes[channel] = os.lstat(path).st_ino

    def _make(self, context: zmq.Context[Any], channel: str) -> None:
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
