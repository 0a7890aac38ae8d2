"""The room of owners and collaborators with a kernel that reads nothing: simulated, without a kernel."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_aliquot.provisioner.relay.server.backlog import Backlog
from jupyter_aliquot.provisioner.relay.wire.messages import Request

MOST = 4 << 20
LARGE = [b"x" * (3 << 20)]
INTERRUPT = Request("i", "interrupt_request")
SMALL = [b"interrupt"]


@pytest.fixture
def unread_of_a_deaf_kernel() -> Backlog:
    back: Any = SimpleNamespace(send=lambda channel, frames: False)
    return Backlog(back, MOST, lambda channel, is_full: None)


def test_large_messages_on_all_channels_leave_the_room_of_what_interrupts(unread_of_a_deaf_kernel: Backlog) -> None:
    waiting = unread_of_a_deaf_kernel
    for channel in ("shell", "stdin", "control"):
        assert waiting.has_room(channel, LARGE, is_urgent=False, is_collaborator=True), "the first on its channel"
        waiting.send(channel, LARGE)
    assert not waiting.has_room("control", LARGE, is_urgent=False, is_collaborator=True)
    count = 0
    while waiting.has_room("control", SMALL, is_urgent=True, is_collaborator=False):
        waiting.send("control", SMALL, INTERRUPT)
        count += 1
    assert 100 < count < 2000, "a flood of them is bounded, too"
    waiting.kernel_ended()
    assert (waiting.bytes, waiting.messages) == (0, 0)
    waiting.send("control", LARGE)
    assert waiting.has_room("control", SMALL, is_urgent=True, is_collaborator=False)


def test_what_was_held_gives_its_room_back(unread_of_a_deaf_kernel: Backlog) -> None:
    waiting = unread_of_a_deaf_kernel
    while waiting.has_room("control", SMALL, is_urgent=True, is_collaborator=False):
        waiting.hold("control", SMALL, INTERRUPT)
        if waiting.held == 1:
            waiting.hold("control", [*LARGE, *LARGE], None)
    assert len(waiting.release()) > 100
    assert waiting.bytes == 0
    waiting.send("control", LARGE)
    assert waiting.has_room("control", SMALL, is_urgent=True, is_collaborator=False)
