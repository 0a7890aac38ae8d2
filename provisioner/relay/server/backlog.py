"""The backlog of a kernel: requests that it has not read, in order and bounded in bytes.

ZMQ itself holds at most two messages of a channel (`kernel_sockets`); all others are here, where
the relay can count them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from jupyter_aliquot.provisioner.relay.wire.messages import Request
from jupyter_aliquot.provisioner.relay.wire.protocol import charge

from .sidecar_link import KernelSide

CHANNELS = ("shell", "control", "stdin")
# Room beyond the bound for requests that end or interrupt the kernel.
URGENT_BYTES, LONGEST_URGENT = 1 << 20, 1 << 16

Held = tuple[str, Sequence[Any], Request | None]


class Backlog:
    """The requests that wait, passed on as the kernel reads them.

    The backlog calls ``watch`` when a channel begins or ends to wait. If nothing waits on a
    channel, it takes one message of any size, so that each channel goes on without the others.
    """

    def __init__(self, sockets: KernelSide, most_bytes: int, watch: Callable[[str, bool], object]) -> None:
        """Make an empty backlog. ``most_bytes`` 0: no bound."""
        self._kernel_sockets = sockets
        self._watch = watch
        # By channel: each message with its size, and its bytes in the room for urgent ones.
        self._queues: dict[str, deque[tuple[Sequence[Any], int, int]]] = {channel: deque() for channel in CHANNELS}
        self._held: deque[Held] = deque()  # messages that wait for a kernel to come
        self._held_on: Counter[str] = Counter()  # their number by channel
        self.most_bytes = most_bytes
        self.bytes = 0
        self._urgent_bytes = 0  # bytes of urgent messages; others never take their room
        self.refused = 0

    @property
    def held(self) -> int:
        """The number of messages that wait for a kernel to come."""
        return len(self._held)

    @property
    def messages(self) -> int:
        return len(self._held) + sum(map(len, self._queues.values()))

    def has_room(self, channel: str, frames: Sequence[Any], *, is_urgent: bool, is_collaborator: bool) -> bool:
        """Tell whether one more may wait. Collaborators leave half of the room to the kernel's owner."""
        if not self.bytes or not self.most_bytes or not self._waits(channel):
            return True
        size = charge(frames)
        if is_urgent and size <= LONGEST_URGENT and self._urgent_bytes + size <= URGENT_BYTES:
            return True
        return self.bytes + size <= self.most(is_collaborator=is_collaborator)

    def most(self, *, is_collaborator: bool) -> int:
        """Return the bytes up to which a user's messages may wait, together with all others."""
        return self.most_bytes // 2 if is_collaborator else self.most_bytes

    def _waits(self, channel: str) -> bool:
        return bool(self._queues[channel] or self._held_on[channel])

    def hold(self, channel: str, frames: Sequence[Any], request: Request | None) -> None:
        """Keep a message until `release`: no kernel is ready."""
        self._held.append((channel, frames, request))
        self._held_on[channel] += 1
        self._count(charge(frames), _urgent(charge(frames), request))

    def release(self) -> Sequence[Held]:
        """Return the held messages, and forget them."""
        held, self._held = self._held, deque()
        self._held_on.clear()
        for _, frames, request in held:
            self._count(-charge(frames), -_urgent(charge(frames), request))
        return held

    def send(self, channel: str, frames: Sequence[Any], request: Request | None = None) -> None:
        """Send a message to the kernel, after those that wait on its channel."""
        queue = self._queues[channel]
        if not queue and self._kernel_sockets.send(channel, frames):
            return
        size = charge(frames)
        urgent = _urgent(size, request)
        queue.append((frames, size, urgent))
        self._count(size, urgent)
        if len(queue) == 1:
            self._watch(channel, True)

    def pump(self, channel: str) -> None:
        """Pass on what the kernel has room for. Called when it has read something."""
        queue = self._queues[channel]
        while queue:
            frames, size, urgent = queue[0]
            if not self._kernel_sockets.send(channel, frames):
                return
            queue.popleft()
            self._count(-size, -urgent)
        self._watch(channel, False)

    def kernel_ended(self) -> None:
        """Forget messages for the kernel that ended; keep those that wait for the next one."""
        for queue in self._queues.values():
            queue.clear()
        self._held = deque(item for item in self._held if item[2] is None or not item[2].is_for_one_kernel)
        self._held_on = Counter(channel for channel, _, _ in self._held)
        self.bytes = self._urgent_bytes = 0
        for _, frames, request in self._held:
            self._count(charge(frames), _urgent(charge(frames), request))

    def _count(self, size: int, urgent: int) -> None:
        self.bytes += size
        self._urgent_bytes += urgent

    def snapshot(self) -> dict[str, int]:
        """Return the counts for the wire."""
        return {"messages": self.messages, "bytes": self.bytes, "refused": self.refused}


def _urgent(size: int, request: Request | None) -> int:
    """Return the bytes of a request in the room for requests to end or interrupt the kernel."""
    return size if request is not None and request.is_for_one_kernel and size <= LONGEST_URGENT else 0
