"""An agent answers questions while its driver starts slowly, or never answers."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest
import warm_start
from test_client import FAKE_AGENT

from jupyter_aliquot.gpu_hook.client import agent_process
from jupyter_aliquot.gpu_hook.client.agent_process import AgentStartError, start_agent
from jupyter_aliquot.gpu_hook.client.client import AgentClientError, query

LONG = 600.0  # seconds: a test that waits for this deadline fails


def start_unseen(node: Any) -> None:
    """Start the agent, and wait until it listens, not until it knows its devices."""
    words = node.command("--log-file", str(node.folder / "agent.log"))[1:]
    node.process = warm_start.start(warm_start.AGENT, words)
    node.until(lambda: is_greeted(node))


def is_greeted(node: Any) -> bool:
    assert node.process.poll() is None, node.log()
    try:
        return bool(query("hello", runtime_dir=node.folder, version=1, name="test"))
    except AgentClientError:
        return False


def test_the_agent_listens_before_its_driver_answers(an_idle_node: Any) -> None:
    an_idle_node.set_devices(count=1, hangs=True, deadline=LONG)
    start_unseen(an_idle_node)
    assert "event=started" not in an_idle_node.log()
    assert an_idle_node.end() == 0


def test_a_reservation_that_comes_before_the_devices_are_known_waits_for_them(
    an_idle_node: Any, open_holder: Callable[[], Any]
) -> None:
    an_idle_node.set_devices(count=1, hangs=True, deadline=LONG)
    start_unseen(an_idle_node)
    holder = open_holder()
    holder.send(b'{"id": 1, "op": "reserve", "kernel_id": "k", "owner": "ada", "hundredths": 50}\n')
    an_idle_node.set_devices(count=1)
    assert holder.line()["ok"]


def test_a_driver_that_never_answers_is_said_and_its_devices_come_when_it_does(
    an_idle_node: Any, open_holder: Callable[[], Any]
) -> None:
    an_idle_node.set_devices(count=1, hangs=True, deadline=0.2)
    start_unseen(an_idle_node)
    status = an_idle_node.status()
    assert (status["devices"], status["driver_problem"]) == ([], "the driver has not answered for 0.2 s")
    holder = open_holder()
    refused = holder.reserve()
    assert refused["code"] == "no_room"
    assert "are not known yet: the driver has not answered for 0.2 s" in refused["message"]
    assert holder.ask("subscribe")["ok"]
    an_idle_node.set_devices(count=1)
    assert holder.wait_for_event() == {"event": "changed"}
    status = an_idle_node.status()
    assert ([device["lost"] for device in status["devices"]], status["driver_problem"]) == ([False], "")
    assert holder.reserve()["ok"]


def test_kernels_of_before_are_on_lost_devices_until_the_driver_answers(
    an_idle_node: Any, open_holder: Callable[[], Any]
) -> None:
    an_idle_node.start()
    holder = open_holder()
    assert holder.reserve()["ok"]
    hook = an_idle_node.a_hook()
    hook.hello()
    an_idle_node.end()
    an_idle_node.set_devices(count=2, hangs=True, deadline=0.2)
    start_unseen(an_idle_node)
    (device,) = an_idle_node.status()["devices"]
    assert device["lost"]
    assert an_idle_node.kernel() is not None
    again = open_holder()
    assert again.reserve()["ok"], "who has it holds it again, and asks no device"
    assert again.reserve("new")["code"] == "no_room"
    an_idle_node.set_devices(count=2)
    an_idle_node.until(lambda: [one["lost"] for one in an_idle_node.status()["devices"]] == [False, False])


def test_a_driver_that_does_not_start_is_the_starters_error(an_idle_node: Any) -> None:
    an_idle_node.set_devices(count=1, refuses="the NVIDIA driver does not start: version mismatch")
    with pytest.raises(AgentStartError, match="does not start: version mismatch"):
        start_agent(an_idle_node.folder, command=FAKE_AGENT)


def test_an_agent_that_does_not_end_either_is_the_starters_error(
    an_idle_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent stands for one whose driver hangs in a call that no signal ends."""
    monkeypatch.setattr(agent_process, "_END_SECONDS", 0.01, raising=False)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a child inherits it
    try:
        with pytest.raises(AgentStartError, match=r"within 0.1 s, and does not end \(pid (\d+)\)") as error:
            start_agent(an_idle_node.folder, command=("sh", "-c", "exec sleep 600", "agent"), seconds=0.1)
    finally:
        signal.signal(signal.SIGTERM, before)
    found = re.search(r"pid (\d+)", str(error.value))
    assert found is not None
    os.kill(int(found[1]), signal.SIGKILL)
