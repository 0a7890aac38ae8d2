"""Measured costs of one kernel's floods for the agent and its neighbours.

``FLOOD_SECONDS`` is the duration of each flood.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import Credit, MessageType

MIB = 1 << 20
SECONDS = float(os.environ.get("FLOOD_SECONDS", "3"))
CONNECTIONS = 16
MOST_GROWTH = 5 * MIB


def resident(pid: int, word: str = "VmRSS") -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{word}:"))


class Neighbour(threading.Thread):
    """A kernel that asks for nothing and gets its answer at once.

    It measures how long each answer took.
    """

    def __init__(self, hook: Any) -> None:
        super().__init__(daemon=True)
        self.hook = hook
        self.seconds: list[float] = []
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.wait(0.01):
            start = time.monotonic()
            assert self.hook.borrow(0) == 0
            self.seconds.append(time.monotonic() - start)

    def end(self) -> tuple[float, float]:
        """Return its median and 99th percentile, in milliseconds."""
        self.is_over.set()
        self.join(60)
        parts = statistics.quantiles(self.seconds, n=100)
        return parts[49] * 1000, parts[98] * 1000


def keep_on(node: Any, turn: Callable[[list[Any], int], int]) -> int:
    """Do turns on many connections, each made anew when the agent has ended it.

    Return the number of sent messages.
    """
    hooks: list[Any] = [None] * CONNECTIONS
    sent, deadline = 0, time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        for number in range(CONNECTIONS):
            try:
                if hooks[number] is None:
                    hooks[number] = node.a_hook("flooder")
                    hooks[number].hello()
                    hooks[number].socket.setblocking(False)
                sent += turn(hooks, number)
            except (OSError, AttributeError):
                hooks[number].close()
                node.hooks.remove(hooks[number])
                hooks[number] = None
    for hook in hooks:
        if hook is not None:
            hook.close()
            node.hooks.remove(hook)
    return sent


def send_requests(amount: int) -> Callable[[list[Any], int], int]:
    packed = protocol.pack(Credit(MessageType.CREDIT_REQUEST, 0, amount, 1))

    def turn(hooks: list[Any], number: int) -> int:
        for count in range(200):
            try:
                hooks[number].socket.send(packed)
            except BlockingIOError:
                return count
        return 200

    return turn


def send_and_read(hooks: list[Any], number: int) -> int:
    sent = send_requests(0)(hooks, number)
    try:
        while hooks[number].socket.recv(4096):
            pass
    except BlockingIOError:
        return sent
    raise ConnectionError


def connect_and_leave(hooks: list[Any], number: int) -> int:
    raise ConnectionError


FLOODS = {
    "requests that wait for room": send_requests(800 * MIB),
    "requests that are answered, and answers not read": send_requests(0),
    "requests that are answered and read": send_and_read,
    "connections": connect_and_leave,
}


@pytest.fixture(autouse=True)
def _take_turns_often() -> Iterator[None]:
    """Let threads take turns often.

    The neighbour and the flood share one interpreter: the agent must not be blamed for its waits.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_grows_the_agent_by_five_mib_at_most(an_idle_node: Any, open_holder: Any, name: str) -> None:
    an_idle_node.start("--overcommit", "4")
    holder, pid = open_holder(), an_idle_node.process.pid
    for kernel_id, hundredths in (("holder", 80), ("flooder", 80), ("neighbour", 10)):
        assert holder.reserve(kernel_id, hundredths)["ok"]
    for kernel_id, amount in (("holder", 700 * MIB), ("neighbour", MIB)):
        hook = an_idle_node.a_hook(kernel_id)
        hook.hello()
        assert hook.borrow(amount) == amount
    before, neighbour = resident(pid), Neighbour(an_idle_node.hooks[-1])
    neighbour.start()
    sent = keep_on(an_idle_node, FLOODS[name])
    median, late = neighbour.end()
    an_idle_node.until(lambda: not an_idle_node.kernel("flooder")["pids"])
    growth, peak = resident(pid) - before, resident(pid, "VmHWM") - before
    print(
        f"\n| {name} | {sent} | {SECONDS:g} s | {before / MIB:.1f} MiB | {growth / MIB:+.1f} MiB "
        f"| {peak / MIB:+.1f} MiB | {median:.2f} ms | {late:.2f} ms |"
    )
    assert peak <= MOST_GROWTH
    assert "Traceback" not in an_idle_node.log()
