"""Channels of a websocket without ZMQ sockets: they hand on what Jupyter's connection sends."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

CHANNELS = ("iopub", "shell", "control", "stdin")

# The delimiter, the signature, and the four parts that every message has. The relay refuses links
# that send less, or more than fits one record.
_LEAST_FRAMES, _MOST_FRAMES = 6, 4096
_LONGEST_HEADER = 1 << 16  # much of it is kept for as long as a request is open

Send = Callable[[str, str, Sequence[bytes]], None]


class LinkChannel:
    """One channel of a websocket, with the part of a ZMQStream that Jupyter's connection and
    Session call.
    """

    def __init__(self, send: Send, channel: str, session: str, log: logging.Logger) -> None:
        """``send`` takes each message on its way to the kernel, with its channel and its session."""
        self.channel = channel
        self._send = send
        self._session = session
        self._log = log
        self._is_closed = False

    def send_multipart(self, frames: Sequence[bytes], flags: int = 0, copy: bool = True, **_: Any) -> None:
        """Called by Session.send and send_raw with a signed message. What is none is left out."""
        if self._is_closed:
            return  # what the relay has yet to take is bounded by sockets that wait, and this one waits no more
        if is_message(frames):
            self._send(self.channel, self._session, frames)
        else:
            self._log.warning("request=dropped channel=%s it is no Jupyter message", self.channel)

    def closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True

    def on_recv(self, callback: Any) -> None:
        """Called by Jupyter's disconnect with None; what arrives comes through the socket itself."""

    def flush(self) -> None:
        """Called before a status message. Nothing waits here: the link hands on what arrives at
        once.
        """


def is_message(frames: Sequence[bytes]) -> bool:
    """Recognize a Jupyter message, from its delimiter on, by a header that can be read."""
    if not _LEAST_FRAMES <= len(frames) <= _MOST_FRAMES or len(frames[2]) > _LONGEST_HEADER:
        return False
    try:
        return isinstance(json.loads(bytes(frames[2])), dict)
    except (ValueError, RecursionError):
        return False
