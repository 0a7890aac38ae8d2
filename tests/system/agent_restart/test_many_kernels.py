"""An agent that is killed, stopped and started under load.

Its kernels keep computing, and its ledger is the one before.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.system.agent_restart.agent_node import (
        MIB,
        AgentNode,
        Kernel,
        problems,
        until,
        wait_for_charges,
        wait_for_rounds,
        work,
    )
else:
    from agent_node import MIB, Kernel, problems, until, wait_for_charges, wait_for_rounds, work

ENDS = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGKILL)


def start_kernels(node: AgentNode) -> list[Kernel]:
    """Start three kernels of two processes, each of which holds amounts of its own."""
    kernels = [Kernel(node, f"k{i}", 25, worker_count=2) for i in range(3)]
    for kernel in kernels:
        kernel.start_processes()
    for amount, worker in enumerate(worker for kernel in kernels for worker in kernel.workers):
        assert worker.ask("hold", 100 + 10 * amount, 4 + amount) == ""
    return kernels


def ledger(kernels: list[Kernel]) -> list[dict[str, Any]]:
    """Return each kernel's record at the agent and its processes by NVML."""
    return [{**kernel.record(), "processes": kernel.workers[0].ask("processes")} for kernel in kernels]


def test_the_ledger_after_a_kill_is_the_one_before(a_node: AgentNode) -> None:
    kernels = start_kernels(a_node)
    assert kernels[0].workers[0].ask("hold", 2000, 0) == "cuMemAlloc_v2 answered 2"
    work(kernels, True)
    wait_for_rounds(kernels, 8)
    work(kernels, False)
    for kernel in kernels:
        kernel.wait_for_peaks_on_disk()
    before = ledger(kernels)
    held = [[100 * MIB, 110 * MIB], [120 * MIB, 130 * MIB], [140 * MIB, 150 * MIB]]
    assert [sorted(amount for _, amount in kernel["processes"]) for kernel in before] == held
    assert [kernel["host_charged_bytes"] for kernel in before] == [9 * MIB, 13 * MIB, 17 * MIB]
    assert before[0]["refusals"] == 1
    for number in (signal.SIGKILL, signal.SIGTERM):
        a_node.end(number)
        a_node.start()
        wait_for_charges(kernels, before)
        assert until(lambda: (after := ledger(kernels)) == before and after) == before
    assert problems(kernels) == []


def test_kernels_compute_and_allocate_while_their_agent_is_killed_again_and_again(a_node: AgentNode) -> None:
    kernels = start_kernels(a_node)
    before = [kernel.record() for kernel in kernels]
    work(kernels, True)
    for number in ENDS:
        wait_for_rounds(kernels, 5)
        a_node.end(number)
        wait_for_rounds(kernels, 8)
        a_node.start()
    a_node.end()  # at once: some of them are back, others not
    a_node.start()
    wait_for_rounds(kernels, 8)
    work(kernels, False)
    wait_for_charges(kernels, before)
    assert problems(kernels) == [], "nothing was refused, and all was computed right"
    for kernel, want in zip(kernels, before, strict=True):
        assert kernel.record()["peak_bytes"] >= want["peak_bytes"]
        assert len(kernel.connected()) == 2


def test_nothing_of_kernels_is_left_after_their_end_beside_a_killed_agent(a_node: AgentNode) -> None:
    kernels = [Kernel(a_node, name, 25, worker_count=2) for name in ("killed", "ended", "lives")]
    processes = [kernel.start_processes() for kernel in kernels]
    for worker in (worker for kernel in kernels for worker in kernel.workers):
        assert worker.ask("hold", 64, 4) == ""
    work(kernels, True)
    wait_for_rounds(kernels, 5)
    for process in processes[0]:
        process.kill()
    a_node.end()
    for process in processes[1]:
        process.terminate()
    for process in (*processes[0], *processes[1]):
        process.wait(30)
    a_node.start()
    until(lambda: [kernel["kernel_id"] for kernel in a_node.status()["kernels"]] == ["lives"])
    work(kernels[2:], False)
    until(lambda: a_node.used_bytes() == kernels[2].record()["charged_bytes"] == 128 * MIB)
    for process in processes[2]:
        process.kill()
        process.wait(30)
    until(lambda: (a_node.status()["kernels"], a_node.used_bytes()) == ([], 0))
    assert a_node.status()["devices"][0]["reserved_bytes"] == 0
