"""What clients asked a kernel without a relay, and nothing has read: counted in bytes, over all websockets to it.

A kernel's relay counts for itself (`provisioner/relay/unread`), by the same rules. Here each websocket has ZMQ sockets
of its own: the stream before each holds what waits, and ZMQ a message that goes. Both count until the operating system
took it, save that of a message of a few KiB in ZMQ nobody hears when it went.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import zmq

from jupyter_aliquot.provisioner.relay.server.backlog import LONGEST_URGENT, URGENT_BYTES
from jupyter_aliquot.provisioner.relay.wire.messages import HEADER, read_object, read_request
from jupyter_aliquot.provisioner.relay.wire.protocol import charge

# As for the relay's own (`back`): ZMQ counts messages, which may be of any size.
_SENT_MESSAGES = 1
# Up to it ZMQ copies a message, and does not tell when it went.
_MOST_COPIED_BYTES = 1 << 14


@dataclass(frozen=True)
class Waiting:
    """A message that counts."""

    size: int
    # What of it is in the room for what ends or interrupts the kernel.
    urgent: int
    # Of one that ZMQ has: whether it went.
    tracker: zmq.MessageTracker | None = None


class StockUnread:
    """Of one kernel: sums, for a send must cost the loop the same whatever waits. ``most_bytes`` 0: no bound."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._bytes = 0
        self._urgent_bytes = 0
        self._messages: Counter[str] = Counter()  # by channel
        # Of which ZMQ has messages that it tells of: a few for each websocket, and a user's websockets are counted.
        self._going: set[BoundedChannel] = set()

    @property
    def bytes(self) -> int:
        self._settle()
        return self._bytes

    def most(self, *, is_guest: bool) -> int:
        """Up to how many bytes somebody's messages may wait: guests leave half of the room to the kernel's owner."""
        return self.most_bytes // 2 if is_guest else self.most_bytes

    def has_room(self, channel: str, size: int, *, is_urgent: bool, is_guest: bool) -> bool:
        """Whether one more may wait. Where nothing waits on a channel of the kernel, one may, whatever its size."""
        self._settle()
        if not self.most_bytes or not self._messages[channel]:
            return True
        if is_urgent and size <= LONGEST_URGENT and self._urgent_bytes + size <= URGENT_BYTES:
            return True
        return self._bytes + size <= self.most(is_guest=is_guest)

    def add(self, channel: str, waiting: Waiting) -> None:
        self._bytes += waiting.size
        self._urgent_bytes += waiting.urgent
        self._messages[channel] += 1

    def remove(self, channel: str, waiting: Waiting) -> None:
        self._bytes -= waiting.size
        self._urgent_bytes -= waiting.urgent
        self._messages[channel] -= 1

    def goes(self, channel: BoundedChannel) -> None:
        """ZMQ has a message of it now, and will tell when that went."""
        self._going.add(channel)

    def forget(self, channel: BoundedChannel) -> None:
        """It closed."""
        self._going.discard(channel)

    def _settle(self) -> None:
        self._going.difference_update([channel for channel in self._going if not channel.settle()])


class BoundedChannel:
    """A ZMQStream to the kernel that takes no more than there is room for; all else is the stream's own."""

    def __init__(self, stream: Any, channel: str, unread: StockUnread) -> None:
        self.channel = channel
        # Called with what is not sent, and its size: by the websocket that has the channel now.
        self.refuse: Callable[[str, Sequence[Any], int], None] = lambda *_: None
        # Whether a message is kept elsewhere: what came before it waits for the kernel.
        self.hold: Callable[[str, Sequence[Any]], bool] = lambda *_: False
        self.is_guest = False
        self._stream = stream
        self._unread = unread
        self._queued: deque[Waiting] = deque()
        self._going: deque[Waiting] = deque()
        stream.socket.set(zmq.SNDHWM, _SENT_MESSAGES)
        stream.socket.copy_threshold = 0  # which messages are copied is decided here

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def send_multipart(self, frames: Sequence[Any], flags: int = 0, **_: Any) -> None:
        """Called by Session.send and send_raw with a signed message."""
        if self.hold(self.channel, frames):
            return
        size = charge(frames)
        request = read_request(read_object(frames[HEADER]), self.channel) if len(frames) > HEADER else None
        is_urgent = request is not None and request.is_for_one_kernel
        if not self._unread.has_room(self.channel, size, is_urgent=is_urgent, is_guest=self.is_guest):
            self.refuse(self.channel, frames, size)
            return
        is_copied = size <= _MOST_COPIED_BYTES
        waiting = Waiting(size, size if is_urgent and size <= LONGEST_URGENT else 0)
        self._queued.append(waiting)
        self._unread.add(self.channel, waiting)
        self._stream.send_multipart(frames, flags, copy=is_copied, track=not is_copied, callback=self._was_sent)

    def _was_sent(self, _frames: Any, outcome: Any) -> None:
        """Called by the stream, once for each message in their order: ZMQ has it, or did not take it at all."""
        sent = self._queued.popleft()
        if isinstance(outcome, zmq.MessageTracker):
            self._going.append(Waiting(sent.size, sent.urgent, outcome))
            self._unread.goes(self)
        else:
            self._unread.remove(self.channel, sent)

    def settle(self) -> bool:
        """Count no more what went. They go in their order: none is looked at behind one that ZMQ still has.

        Whether it has any.
        """
        while self._going and (tracker := self._going[0].tracker) is not None and tracker.done:
            self._unread.remove(self.channel, self._going.popleft())
        return bool(self._going)

    def close(self) -> None:
        for waiting in (*self._going, *self._queued):
            self._unread.remove(self.channel, waiting)
        self._going.clear()
        self._queued.clear()
        self._unread.forget(self)
        self._stream.close()
