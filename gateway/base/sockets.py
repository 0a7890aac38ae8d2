"""The processes that listen at Unix sockets, as the system reports them."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from jupyter_aliquot.provisioner.listener import account_name

_PATIENCE_SECONDS = 2.0


@dataclass(frozen=True)
class Peer:
    """The process that listens at a socket."""

    pid: int
    uid: int

    def __str__(self) -> str:
        return f"pid {self.pid} of {account_name(self.uid)}"


def peer(path: Path) -> Peer | None:
    """Return the process that listens at the socket; None if none does."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_PATIENCE_SECONDS)
            connection.connect(os.fspath(path))
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except OSError:
        return None
    pid, uid, _ = struct.unpack("3i", credentials)
    return Peer(pid, uid)


def peer_words(path: Path) -> str:
    """Return the process in words; empty if none listens."""
    return str(peer(path) or "")
