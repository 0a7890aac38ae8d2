"""The table of a kernel's own processes on the agent's page, for NVML inside the kernel."""

from __future__ import annotations

import os
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import AgentPage, HookPage, Role

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _a_kernel(a_holder: Any) -> None:
    assert a_holder.reserve()["ok"]


def half_word(hook: Any, offset: int) -> int:
    return int.from_bytes(hook.agent_page[offset : offset + 4], "little")


def table(hook: Any) -> list[tuple[int, int, int, int]]:
    """Return pid, own pid, device and bytes of each entry, read as a hook reads it."""
    while True:
        before = half_word(hook, AgentPage.PROCESS_SEQUENCE)
        count = half_word(hook, AgentPage.PROCESS_COUNT)
        entry = AgentPage.PROCESS
        rows = [entry.unpack_from(hook.agent_page, AgentPage.PROCESSES + i * entry.size) for i in range(count)]
        if before % 2 == 0 and half_word(hook, AgentPage.PROCESS_SEQUENCE) == before:
            return [(pid, own, device, charged) for pid, own, device, _, charged in rows]


def test_a_process_with_memory_is_in_the_table_of_all(a_node: Any) -> None:
    first, second = a_node.a_hook(), a_node.a_hook()
    for hook in (first, second):
        hook.hello()
    assert table(first) == []
    first.borrow(10 * MIB)
    first.write(HookPage.CHARGED, 7 * MIB)
    want = [(os.getpid(), os.getpid(), 0, 7 * MIB)]
    a_node.until(lambda: table(second) == want)
    assert table(first) == want
    first.close()
    a_node.until(lambda: table(second) == [])


def test_a_page_tells_the_truth_from_the_welcome_on(a_node: Any) -> None:
    """A program that reads once, as `nvitop --once`, sees no zeros of an unwritten page."""
    first = a_node.a_hook()
    first.hello()
    first.borrow(10 * MIB)
    first.write(HookPage.CHARGED, 7 * MIB)
    for _ in range(20):
        once = a_node.a_hook()
        once.hello(role=Role.OBSERVER)
        assert once.read(AgentPage.CHARGED) == 7 * MIB
        assert [row[3] for row in table(once)] == [7 * MIB]
        once.close()


def test_a_process_names_itself_as_it_sees_itself(a_node: Any) -> None:
    hook = a_node.a_hook()
    hook.hello(pid=7)
    hook.borrow(MIB)
    hook.write(HookPage.CHARGED, 1)
    a_node.until(lambda: table(hook) == [(os.getpid(), 7, 0, 1)])


def test_a_process_with_a_context_alone_is_in_it_too(a_node: Any) -> None:
    hook = a_node.a_hook()
    hook.hello()
    a_node.set_devices(count=1, processes={str(os.getpid()): 300 * MIB})
    a_node.until(lambda: table(hook) == [(os.getpid(), os.getpid(), 0, 0)])
    a_node.set_devices(count=1)
    a_node.until(lambda: table(hook) == [])


def test_observers_are_not_in_it(a_node: Any) -> None:
    hook = a_node.a_hook()
    hook.hello(role=Role.OBSERVER)
    a_node.set_devices(count=1, processes={str(os.getpid()): 1}, busy={str(os.getpid()): 0.5})
    a_node.until(lambda: half_word(hook, AgentPage.DEVICES + AgentPage.UTILIZATION) == 50)
    assert table(hook) == []


def test_a_table_that_is_full_leaves_the_rest_out(a_node: Any) -> None:
    for _ in range(protocol.MAX_PROCESSES + 2):
        hook = a_node.a_hook()
        hook.hello()
        hook.borrow(1)
        hook.write(HookPage.CHARGED, 1)
    a_node.until(lambda: len(table(hook)) == protocol.MAX_PROCESSES)


def test_utilization_is_the_kernels_own_in_the_last_look(a_node: Any) -> None:
    hook = a_node.a_hook()
    hook.hello()
    a_node.set_devices(count=1, busy={str(os.getpid()): 0.25, "1": 0.5})
    a_node.until(lambda: half_word(hook, AgentPage.DEVICES + AgentPage.UTILIZATION) == 25)
    a_node.set_devices(count=1)
    a_node.until(lambda: half_word(hook, AgentPage.DEVICES + AgentPage.UTILIZATION) == 0)
