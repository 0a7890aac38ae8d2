"""Moves between devices, as an agent without a driver decides about them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.agent.base.processes import start_time_ticks

# Hold the lock of a process that begins CUDA.
ENTERS = (
    "import fcntl, sys; held = open(sys.argv[1]); fcntl.lockf(held, fcntl.LOCK_SH); print('in', flush=True); input()"
)
UUIDS = [f"GPU-00000000-0000-0000-0000-0000000000a{index}" for index in range(2)]


class Moving:
    """A node of two devices, and a kernel without a process of its own on the first."""

    def __init__(self, node: Any, open_holder: Callable[[], Any]) -> None:
        self.node = node
        node.set_devices(count=2)
        node.start("--experimental-moves")
        self.holder = open_holder()
        placement = [{"uuid": UUIDS[0], "hundredths": 50}]
        assert self.holder.reserve("k", 50, placement=placement)["ok"]
        pid = os.getpid()
        assert self.holder.ask("bind", kernel_id="k", pid=pid, start_time_ticks=start_time_ticks(pid))["ok"]
        assert self.holder.ask("activity", kernel_id="k", open=0, work=0, since=0.0)["ok"]

    def enter(self) -> subprocess.Popen[str]:
        """Start a process of the kernel that begins CUDA, and does not come to an end with it."""
        file = self.node.folder / "kernels" / "k" / "entrance"
        pipe = subprocess.PIPE
        process = subprocess.Popen([sys.executable, "-c", ENTERS, str(file)], stdin=pipe, stdout=pipe, text=True)
        self.node.helpers.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        return process

    def begin(self) -> None:
        self.node.until(lambda: self.holder.ask("move", kernel_id="k", device=UUIDS[1])["ok"] or None, 30)

    @property
    def outcome(self) -> tuple[str, str]:
        answer = self.holder.ask("moved", kernel_id="k", device=UUIDS[1])
        return answer["state"], answer["reason"]

    def ended(self) -> tuple[str, str]:
        self.node.until(lambda: self.outcome[0] != "moving" or None, 30)
        return self.outcome

    @property
    def reserved(self) -> list[int]:
        return [device["reserved_hundredths"] for device in self.node.status()["devices"]]


@pytest.fixture
def moving(an_idle_node: Any, open_holder: Callable[[], Any]) -> Moving:
    return Moving(an_idle_node, open_holder)


def test_a_move_waits_for_a_process_that_begins_cuda(moving: Moving) -> None:
    process = moving.enter()
    moving.begin()
    assert (moving.outcome, moving.reserved) == (("moving", ""), [50, 50])
    process.kill()
    assert (moving.ended(), moving.reserved) == (("done", ""), [0, 50])


def test_an_eviction_calls_off_a_move_that_has_not_left(moving: Moving) -> None:
    moving.enter()
    moving.begin()
    assert moving.holder.ask("evict", kernel_id="k")["ok"]
    assert moving.ended() == ("failed", "it is evicted")
    moving.node.until(lambda: moving.node.status()["evicted"] == ["k"] or None, 30)
    assert moving.reserved == [0, 0]
    assert moving.holder.ask("readmit", kernel_id="k")["ok"]
    assert moving.reserved == [50, 0]


def test_a_move_to_a_device_that_is_lost_meanwhile_is_called_off(moving: Moving) -> None:
    moving.enter()
    moving.begin()
    moving.node.set_devices(count=1)
    state, reason = moving.ended()
    assert (state, UUIDS[1] in reason, "gone" in reason) == ("failed", True, True), reason
    moving.node.until(lambda: moving.reserved == [50] or None, 30)
    assert moving.node.kernel("k")["devices"][0]["index"] == 0
