"""Whole ZMQ messages in and out, without blocking and without copies: the relay's innermost loop.

pyzmq's own recv_multipart and send_multipart do the same at three times the price, in enum
arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zmq
from zmq.backend import Socket

_receive: Any = Socket.recv
_send: Any = Socket.send
_get: Any = Socket.get
_EVENTS = int(zmq.EVENTS)
_POLLIN = int(zmq.POLLIN)
_NOBLOCK = int(zmq.NOBLOCK)
_MORE = int(zmq.SNDMORE)
_MORE_NOW = _MORE | _NOBLOCK

# The sockets that were used since the loop asked them last. A relay has one thread and one loop.
used: set[Any] = set()


def events_of(socket: Any) -> int:
    """Return ZMQ's events that a socket is ready for: zmq.POLLIN, zmq.POLLOUT."""
    return int(_get(socket, _EVENTS))


def receive(socket: Any) -> list[Any] | None:
    """Return the next message as ZMQ's frames; None if there is none."""
    if not _get(socket, _EVENTS) & _POLLIN:
        used.discard(socket)
        return None
    used.add(socket)
    frame = _receive(socket, _NOBLOCK, False)
    frames = [frame]
    while frame.more:
        frame = _receive(socket, _NOBLOCK, False)
        frames.append(frame)
    return frames


def send(socket: Any, frames: Sequence[Any]) -> None:
    """Queue a message. ZMQ's frames are shared, bytes are copied."""
    used.add(socket)
    for frame in frames[:-1]:
        _send(socket, frame, _MORE)
    _send(socket, frames[-1], 0)


def send_now(socket: Any, frames: Sequence[Any]) -> bool:
    """Send a message to a socket that may be full: then nothing is sent, and this returns False.

    Room is asked for at the first frame alone: the rest of a message never waits (libzmq counts
    whole messages).
    """
    used.add(socket)
    try:
        _send(socket, frames[0], _MORE_NOW)
    except zmq.Again:
        return False
    for frame in frames[1:-1]:
        _send(socket, frame, _MORE)
    _send(socket, frames[-1], 0)
    return True
