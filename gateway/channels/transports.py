"""Transports of a websocket's messages: the link to the kernel's relay, or ZMQ sockets."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from jupyter_aliquot.gateway.relays.link import KernelLink, Subscriber

CHANNELS = ("iopub", "shell", "control", "stdin")

# The delimiter, the signature, and the four parts that every message has. The relay refuses links
# that send fewer frames, or more than fit one record.
_LEAST_FRAMES, _MOST_FRAMES = 6, 4096
_LONGEST_HEADER = 1 << 16  # much of it is kept for as long as a request is open

Send = Callable[[str, str, Sequence[bytes]], None]


class Transport(Protocol):
    """The calls of a websocket to its transport."""

    def send(self, channel: str, session: str, frames: Sequence[bytes]) -> None:
        """Send a signed message that a `LinkChannel` hands over."""
        ...

    def until_room(self, page: Subscriber) -> Awaitable[None] | None:
        """Return what to await before more is read from the browser; None: nothing."""
        ...

    def leave(self, page: Subscriber) -> None:
        """Take nothing more for this page. Idempotent."""
        ...

    def drop_requests(self, page: Subscriber, may_stay: Callable[[Sequence[Any]], bool]) -> None:
        """Drop what the page's user sent and no relay has, but for the frames that *may_stay*."""
        ...

    def count(self, page: Subscriber, why: str) -> None:
        """Count a message that was not sent to the page."""
        ...


class RelayTransport:
    """The gateway's link to the kernel's relay."""

    def __init__(self, link: KernelLink) -> None:
        self.link = link

    def send(self, channel: str, session: str, frames: Sequence[bytes]) -> None:
        self.link.send(channel, session, frames)

    def until_room(self, page: Subscriber) -> Awaitable[None] | None:
        return self.link.until_room(page) if self.link.is_full else None

    def leave(self, page: Subscriber) -> None:
        self.link.shut(page)

    def drop_requests(self, page: Subscriber, may_stay: Callable[[Sequence[Any]], bool]) -> None:
        self.link.drop_requests(page, may_stay)

    def count(self, page: Subscriber, why: str) -> None:
        self.link.count(why, subscriber=page)


class ZmqTransport:
    """Jupyter's own ZMQ sockets, to a kernel without a relay: nothing is bounded or counted there."""

    def send(self, channel: str, session: str, frames: Sequence[bytes]) -> None:
        """Drop a message of a channel that has no ZMQ socket: the kernel never started."""

    def until_room(self, page: Subscriber) -> Awaitable[None] | None:
        return None

    def leave(self, page: Subscriber) -> None:
        """Do nothing: Jupyter closes the sockets, or keeps them for a page that comes back."""

    def drop_requests(self, page: Subscriber, may_stay: Callable[[Sequence[Any]], bool]) -> None:
        """Do nothing: ZMQ has all of it."""

    def count(self, page: Subscriber, why: str) -> None:
        """Do nothing: Jupyter counts no messages."""


class ZmqChannel:
    """A ZMQStream to a kernel whose earlier messages may still wait in the gateway.

    All other calls go to the stream.
    """

    def __init__(self, stream: Any, channel: str) -> None:
        self.channel = channel
        self._stream = stream
        # Returns whether it kept a message behind others. The websocket that has the channel now
        # replaces it.
        self.hold: Callable[[str, Sequence[Any]], bool] = lambda *_: False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def send_multipart(self, frames: Sequence[Any], *args: Any, **kwargs: Any) -> None:
        """Called by Session.send and send_raw with a signed message."""
        if not self.hold(self.channel, frames):
            self._stream.send_multipart(frames, *args, **kwargs)


class LinkChannel:
    """One channel of a websocket over the relay's link.

    It has the part of a ZMQStream that Jupyter's connection and Session call.
    """

    def __init__(self, send: Send, channel: str, session: str, log: logging.Logger) -> None:
        """Make the channel. ``send`` gets each message to the kernel, with its channel and session."""
        self.channel = channel
        self._send = send
        self._session = session
        self._log = log
        self._is_closed = False

    def send_multipart(self, frames: Sequence[bytes], flags: int = 0, copy: bool = True, **_: Any) -> None:
        """Called by Session.send and send_raw with a signed message. Drops anything else."""
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
        """Called by Jupyter's disconnect with None; messages arrive through the socket itself."""

    def flush(self) -> None:
        """Called before a status message.

        Nothing waits here: the link hands messages on at once.
        """


def is_message(frames: Sequence[bytes]) -> bool:
    """Recognize a Jupyter message, from its delimiter on, by a header that can be read."""
    if not _LEAST_FRAMES <= len(frames) <= _MOST_FRAMES or len(frames[2]) > _LONGEST_HEADER:
        return False
    try:
        return isinstance(json.loads(bytes(frames[2])), dict)
    except (ValueError, RecursionError):
        return False
