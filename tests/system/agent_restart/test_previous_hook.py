"""Kernels that an upgrade leaves with the hook of the release before: today's agent serves them as that one did."""

from __future__ import annotations

import platform
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.system.agent_restart.agent_node import MIB, AgentNode, Kernel, problems, until, wait_for_rounds, work
else:
    from agent_node import MIB, Kernel, problems, until, wait_for_rounds, work

PREVIOUS = Path(__file__).parents[1] / "previous_hook"
QUOTA = 1024 * MIB
REFUSED = "cuMemAlloc_v2 answered 2"


@pytest.fixture
def a_kernel_of_before(a_node: AgentNode) -> Kernel:
    """Two processes with the older hook, which hold 100 MiB each."""
    if platform.machine() != "x86_64":
        pytest.skip(f"the older hook was built for x86_64, this is {platform.machine()}")
    kernel = Kernel(a_node, "before", 25, worker_count=2)
    kernel.start_processes(PREVIOUS)
    assert [worker.ask("hold", 100, 0) for worker in kernel.workers] == ["", ""]
    return kernel


def test_it_is_granted_charged_and_refused_over_its_quota(a_kernel_of_before: Kernel) -> None:
    kernel, (first, second) = a_kernel_of_before, a_kernel_of_before.workers
    until(lambda: kernel.record()["charged_bytes"] == 200 * MIB)
    assert first.ask("hold", 900, 0) == REFUSED
    assert second.ask("hold", 800, 0) == ""
    assert first.ask("hold", 100, 0) == REFUSED
    assert kernel.record()["charged_bytes"] <= kernel.record()["lent_bytes"] <= QUOTA
    assert kernel.record()["refusals"] == 2
    assert kernel.node.kernel("before")["unhooked_processes"] == []


def test_it_computes_while_the_agent_is_away_and_comes_back_with_its_table(a_kernel_of_before: Kernel) -> None:
    kernel, node = a_kernel_of_before, a_kernel_of_before.node
    for number in (signal.SIGKILL, signal.SIGTERM):
        work([kernel], True)
        wait_for_rounds([kernel], 5)
        node.end(number)
        wait_for_rounds([kernel], 10)
        node.start()
        wait_for_rounds([kernel], 5)
        work([kernel], False)
        until(lambda: kernel.record()["charged_bytes"] == 200 * MIB)
        assert len(kernel.connected()) == 2
    assert kernel.workers[0].ask("hold", 900, 0) == REFUSED, "the quota is the one before, and so is what is left of it"
    assert kernel.workers[0].ask("hold", 700, 0) == ""
    assert problems([kernel]) == []


def test_it_shares_the_node_with_kernels_of_today(a_kernel_of_before: Kernel) -> None:
    node = a_kernel_of_before.node
    today = Kernel(node, "today", 25, worker_count=1)
    today.start_processes()
    assert today.workers[0].ask("hold", 300, 10) == ""
    node.end()
    node.start()
    until(
        lambda: (
            (today.record()["charged_bytes"], a_kernel_of_before.record()["charged_bytes"]) == (300 * MIB, 200 * MIB)
        )
    )
    until(lambda: node.used_bytes() == 500 * MIB)
