"""Tests of when the node agent is told of a kernel's work. Time is an argument."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.provisioner.relay.server.agent_notifier import AgentNotifier
from jupyter_aliquot.provisioner.relay.server.poll_loop import Loop

SOON = 0.02


class Told:
    """A notifier of one kernel, and the lines that its agent has."""

    def __init__(self, listening: socket.socket, path: Path) -> None:
        self.state: dict[str, Any] = {"open": 0, "work": 0, "since": 0.0, "input": None}
        self.notifier = AgentNotifier(Loop(), path, "k", lambda: dict(self.state))
        self.notifier.tell(0.0)
        self._agent, _ = listening.accept()
        self._agent.setblocking(False)
        self.lines()

    def lines(self) -> list[tuple[int, float]]:
        """Return work and since of the lines that came."""
        try:
            came = self._agent.recv(1 << 16)
        except BlockingIOError:
            return []
        told = [json.loads(line) for line in came.splitlines()]
        return [(line["work"], line["since"]) for line in told if line["op"] == "activity"]

    def begins(self, now: float) -> None:
        self.state |= {"open": 1, "work": 1, "since": now}
        self.notifier.tell_work(now)

    def ends(self, now: float) -> None:
        self.state |= {"open": 0, "work": 0, "since": now, "input": None}
        self.notifier.tell_soon(now)

    def close(self) -> None:
        self.notifier.rest()
        self._agent.close()


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(tmp_path / "agent.sock"))
        listening.listen()
        made = Told(listening, tmp_path / "agent.sock")
        yield made
        made.close()


def test_work_of_an_idle_kernel_is_told_at_once_and_its_end_soon(told: Told) -> None:
    told.begins(1.0)
    assert told.lines() == [(1, 1.0)]
    told.ends(1.5)
    assert told.notifier.due_in(1.5) == pytest.approx(SOON)
    told.notifier.turn(1.51)
    assert not told.lines()
    told.notifier.turn(1.53)
    assert (told.lines(), told.notifier.due_in(1.53)) == ([(0, 1.5)], None)


def test_cells_that_follow_each_other_at_once_are_one_line_in_20_ms(told: Told) -> None:
    told.begins(1.0)
    for now in (1.001, 1.002, 1.003):
        told.ends(now)
        told.begins(now)
        told.notifier.turn(now)
    assert told.lines() == [(1, 1.0)]
    told.notifier.turn(1.03)
    assert told.lines() == [(1, 1.003)]


def test_a_cell_after_the_end_was_told_is_told_at_once(told: Told) -> None:
    told.begins(1.0)
    told.ends(1.1)
    told.notifier.turn(1.2)
    told.begins(1.3)
    assert told.lines() == [(1, 1.0), (0, 1.1), (1, 1.3)]


def test_an_answer_to_input_is_told_at_once(told: Told) -> None:
    told.begins(1.0)
    told.state["input"] = 1.1
    told.notifier.tell_soon(1.1)
    told.notifier.turn(1.2)
    told.state["input"] = None
    told.notifier.tell_work(1.3)
    assert told.lines() == [(1, 1.0)] * 3


def test_a_state_that_the_agent_knows_is_not_due(told: Told) -> None:
    told.begins(1.0)
    told.notifier.tell_soon(1.0)
    assert told.notifier.due_in(1.0) is None


def test_the_end_that_waits_is_told_before_the_kernel_is_gone(told: Told) -> None:
    told.begins(1.0)
    told.ends(1.1)
    told.notifier.rest()
    assert told.lines() == [(1, 1.0), (0, 1.1)]
