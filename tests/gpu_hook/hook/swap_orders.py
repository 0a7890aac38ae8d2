"""An agent's orders to swap one process: populated host memory, orders, and their answers."""

from __future__ import annotations

import fcntl
import os
import socket
from typing import Any

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import MessageType, Moved, MoveOutcome, Segment, Swap, Wake

MIB = 1 << 20
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class Orders:
    """Orders to the process of a connection, one at a time."""

    def __init__(self, agent: Any, connection: Any, sizes: list[int], drain_milliseconds: int = 30_000) -> None:
        self._agent, self._connection = agent, connection
        self._sequence = 1000
        self._heard = 0
        self._drain = drain_milliseconds
        self._sizes = sizes
        self._memory: list[int] = []

    def add_segment(self, size: int) -> None:
        """Add a segment for the next swap out; whole units of 2 MiB."""
        self._sizes.append(-(-size // (2 * MIB)) * 2 * MIB)

    def swap_out(self) -> Moved:
        """Swap out with all segments."""
        self.begin_swap_out()
        return self._answer()

    def begin_swap_out(self) -> None:
        """Order a swap out, and wait for no answer."""
        while len(self._memory) < len(self._sizes):
            self._memory.append(_make_segment(self._sizes[len(self._memory)]))
        for number, descriptor in enumerate(self._memory):
            segment = protocol.pack(Segment(number, self._sizes[number]))
            socket.send_fds(self._connection.socket, [segment], [descriptor])
        self._order(MessageType.SWAP_OUT, len(self._memory))

    def swap_in(self) -> Moved:
        """Swap in, then spoil the segments: no process owns their contents any more."""
        self._order(MessageType.SWAP_IN, 0)
        moved = self._answer()
        if moved.outcome is MoveOutcome.DONE:
            for number, descriptor in enumerate(self._memory):
                for at in range(0, self._sizes[number], MIB):
                    os.pwrite(descriptor, b"spoilt" * 8, at)
        return moved

    def await_wake(self) -> None:
        """Wait until a call waits, in the time since the last order."""
        self._agent.wait_for(lambda: any(isinstance(one, Wake) for one in self._agent.heard[self._heard :]), 30)

    def close(self) -> None:
        for descriptor in self._memory:
            os.close(descriptor)

    def _order(self, kind: MessageType, count: int) -> None:
        self._sequence += 1
        self._heard = len(self._agent.heard)
        order = Swap(kind, self._sequence, drain_milliseconds=self._drain, segment_count=count)
        self._connection.socket.send(protocol.pack(order))

    def _answer(self) -> Moved:
        found: list[Moved] = []

        def is_answered() -> bool:
            heard = self._agent.heard[self._heard :]
            found[:] = [one for one in heard if isinstance(one, Moved) and one.sequence == self._sequence]
            return bool(found)

        self._agent.wait_for(is_answered, 60)
        return found[0]


def _make_segment(size: int) -> int:
    descriptor = os.memfd_create("segment", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.posix_fallocate(descriptor, 0, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor
