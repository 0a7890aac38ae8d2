"""What waits in ZMQ for a kernel without a relay counts, too: played with a kernel that is there when told."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from jupyter_client.session import Session
from zmq.eventloop.zmqstream import ZMQStream

from jupyter_aliquot.gateway.channels.backpressure import BoundedChannel, StockUnread

MOST = 16 << 20
LARGE = 4 << 20


class Kernel:
    """A socket of each channel, which reads from `read` on, and websockets' channels to them."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.context = zmq.Context[Any]()
        self.unread = StockUnread(most_bytes)
        self.refused: list[tuple[str, int]] = []
        self.addresses = {name: f"ipc://{folder}/{name}" for name in ("shell", "control")}

    def read(self, name: str) -> Any:
        socket = self.context.socket(zmq.ROUTER)
        socket.bind(self.addresses[name])
        return socket

    def websocket(self, name: str, *, is_guest: bool = False) -> BoundedChannel:
        socket = self.context.socket(zmq.DEALER)
        socket.linger = 0
        socket.connect(self.addresses[name])
        channel = BoundedChannel(ZMQStream(socket), name, self.unread)
        channel.refuse = lambda channel, frames, size: self.refused.append((channel, size))
        channel.is_guest = is_guest
        return channel


@pytest.fixture
def a_kernel() -> Iterator[Kernel]:
    with tempfile.TemporaryDirectory(prefix="aq-", dir="/tmp") as folder:
        kernel = Kernel(Path(folder), MOST)
        yield kernel
        kernel.context.destroy(linger=0)


def say(channel: BoundedChannel, kind: str = "execute_request", length: int = LARGE) -> None:
    Session().send(channel, kind, {"code": "#" * length})


async def test_a_message_on_each_of_many_websockets_counts_though_zmq_has_it(a_kernel: Kernel, until: Any) -> None:
    channels = [a_kernel.websocket("shell") for _ in range(8)]
    for channel in channels:
        say(channel)
        await until(lambda channel=channel: not channel.sending())
    assert a_kernel.unread.bytes <= MOST
    taken = MOST // LARGE - 1  # each is a little longer than its text
    assert len(a_kernel.refused) == 8 - taken
    socket = a_kernel.read("shell")
    for _ in range(taken):
        await until(lambda: socket.poll(0))
        assert max(map(len, socket.recv_multipart())) > LARGE
    await until(lambda: a_kernel.unread.bytes == 0)
    say(channels[-1])
    assert len(a_kernel.refused) == 8 - taken


async def test_interrupts_and_other_channels_go_on_where_one_is_full_and_guests_leave_half(
    a_kernel: Kernel, until: Any
) -> None:
    guest, owner, control = a_kernel.websocket("shell", is_guest=True), *map(a_kernel.websocket, ("shell", "control"))
    for _ in range(8):
        say(guest)
    assert MOST // 2 - LARGE < a_kernel.unread.bytes <= MOST // 2
    while not a_kernel.refused[-1][1] < LARGE:
        say(owner)
        say(owner, length=LARGE // 8)
    held = a_kernel.unread.bytes
    assert held > MOST - LARGE
    say(control)  # the first on its channel
    assert a_kernel.unread.bytes > held
    before = len(a_kernel.refused)
    say(control, length=LARGE // 8)
    assert len(a_kernel.refused) == before + 1
    say(control, "interrupt_request", length=10)
    assert len(a_kernel.refused) == before + 1
    say(control, "interrupt_request", length=1 << 17)
    assert len(a_kernel.refused) == before + 2, "a long one has no room of its own"


async def test_a_channel_that_closes_takes_what_waits_with_it(a_kernel: Kernel) -> None:
    channel = a_kernel.websocket("shell")
    say(channel)
    say(channel)
    assert a_kernel.unread.bytes > 2 * LARGE
    channel.close()
    assert a_kernel.unread.bytes == 0


async def test_no_bound_is_none(a_kernel: Kernel) -> None:
    a_kernel.unread.most_bytes = 0
    channel = a_kernel.websocket("shell")
    for _ in range(8):
        say(channel)
    assert a_kernel.refused == []


def calls_of(act: Callable[[], object]) -> int:
    """How many functions it calls, as the least of several times: a collection of garbage calls some, too."""
    counts = []
    for _ in range(8):
        events: list[str] = []
        sys.setprofile(lambda _frame, event, _what, events=events: events.append(event))  # type: ignore[misc]
        try:
            act()
        finally:
            sys.setprofile(None)
        counts.append(sum(event in ("call", "c_call") for event in events))
    return min(counts)


async def test_a_message_costs_the_same_whatever_waits_and_so_does_one_that_is_refused(a_kernel: Kernel) -> None:
    """No reader, and no turn of the loop here: all that is sent waits."""
    channel, frames = a_kernel.websocket("shell"), [b"<IDS|MSG>", b"", b"{}", b"{}", b"{}", b"{}"]
    for _ in range(8):
        channel.send_multipart(frames)
    with_few = calls_of(lambda: channel.send_multipart(frames))
    for _ in range(4000):
        channel.send_multipart(frames)
    assert calls_of(lambda: channel.send_multipart(frames)) == with_few
    assert not a_kernel.refused
    a_kernel.unread.most_bytes = a_kernel.unread.bytes
    assert calls_of(lambda: channel.send_multipart(frames)) <= with_few
    assert len(a_kernel.refused) == 8


class Tracker(zmq.MessageTracker):
    """Of a message that went, or not: as told."""

    looked = 0

    def __init__(self) -> None:
        super().__init__()
        self.went = False

    @property
    def done(self) -> bool:
        Tracker.looked += 1
        return self.went


async def test_of_messages_that_zmq_has_the_first_is_looked_at_and_no_other(
    a_kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tracker, "looked", 0)
    channel, trackers = a_kernel.websocket("shell"), [Tracker() for _ in range(50)]
    for _ in trackers:
        say(channel, length=10)
    size = a_kernel.unread.bytes
    for tracker in trackers:  # as the stream would, were ZMQ to take that many
        channel._was_sent(None, tracker)
    assert (a_kernel.unread.bytes, Tracker.looked) == (size, 1)
    say(channel, length=10)
    assert Tracker.looked == 2
    for tracker in trackers[:10]:
        tracker.went = True
    Tracker.looked = 0
    assert size * 40 / 50 < a_kernel.unread.bytes < size * 42 / 50
    assert Tracker.looked == 11, "those that went, and the first that did not"
    channel.close()
    assert a_kernel.unread.bytes == 0
