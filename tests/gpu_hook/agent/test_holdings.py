"""The charges that the audit believes: the loans of all a process's sessions, within the quota."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_aliquot.gpu_hook.agent.devices.audit import Holding
from jupyter_aliquot.gpu_hook.agent.kernels.usage import KernelUsage
from jupyter_aliquot.gpu_hook.agent.ledger.ledger import DeviceFacts, Ledger
from jupyter_aliquot.gpu_hook.agent.sessions.session import HookSession
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import HelloDevice, HookPage

MIB = 1 << 20
ME = os.getpid()
UUID = "GPU-00000000-0000-0000-0000-0000000000a0"


@pytest.fixture
def start(an_idle_node: Any, open_holder: Callable[[], Any]) -> Any:
    """Start an agent that lets a context take 1 MiB, and a kernel with half of a device.

    Its limit is 512 MiB.
    """
    an_idle_node.start("--context-slack", "1MiB")
    assert open_holder().reserve()["ok"]
    return an_idle_node


def look_twice(node: Any, used_bytes: int) -> None:
    """Let the driver report so much for this process.

    Wait until the audit has judged it for longer than it needs.
    """
    node.set_devices(count=1, processes={str(ME): used_bytes})
    seen = node.device()["busy_seconds"]
    node.set_devices(count=1, processes={str(ME): used_bytes}, busy={str(ME): 1.0})
    node.until(lambda: node.device()["busy_seconds"] >= seen + 4)


def test_two_sessions_of_one_process_are_both_counted(start: Any) -> None:
    for _ in range(2):  # a process with a hook in each of two link-map namespaces
        hook = start.a_hook()
        hook.hello()
        hook.borrow(100 * MIB)
        hook.write(HookPage.CHARGED, 100 * MIB)
    look_twice(start, 200 * MIB)
    assert start.kernel()["unhooked_processes"] == []
    assert start.device()["context_bytes"] == 0


def test_a_page_that_tells_of_more_than_was_lent_hides_nothing(start: Any) -> None:
    hook = start.a_hook()
    hook.hello()
    hook.borrow(512 * MIB)
    hook.write(HookPage.CHARGED, 1024 * MIB)
    start.set_devices(count=1, processes={str(ME): 900 * MIB})
    (found,) = start.until(lambda: start.kernel()["unhooked_processes"])
    assert (found["why"], found["used_bytes"], found["charged_bytes"]) == ("past its charge", 900 * MIB, 512 * MIB)


def test_a_process_whose_claim_was_refused_is_seen_as_no_kernels(start: Any) -> None:
    hook = start.a_hook()
    hook.hello((HelloDevice(protocol.device_uuid_bytes(UUID), 1024 * MIB, 0),))
    start.set_devices(count=1, processes={str(ME): 900 * MIB})
    (found,) = start.until(lambda: start.status()["foreign_processes"])
    assert (found["pid"], found["used_bytes"], found["charged_bytes"]) == (ME, 900 * MIB, 0)
    assert start.kernel()["devices"][0]["charged_bytes"] == 0


def test_memory_of_a_quota_that_was_shrunk_is_still_the_kernels_and_no_context(
    start: Any, open_holder: Callable[[], Any]
) -> None:
    hook = start.a_hook()
    hook.hello()
    hook.borrow(400 * MIB)
    hook.write(HookPage.CHARGED, 400 * MIB)
    assert open_holder().ask("resize", kernel_id="k", hundredths=25)["ok"]
    look_twice(start, 400 * MIB)
    assert start.kernel()["devices"][0]["quota_bytes"] == 256 * MIB
    assert start.device()["context_bytes"] == 0
    assert start.kernel()["unhooked_processes"] == []


def test_what_was_given_back_since_the_last_look_counts_as_held_in_it() -> None:
    ledger = Ledger()
    ledger.set_devices([DeviceFacts(UUID, 0, "a device", 1024 * MIB)])
    ledger.reserve("k", [Part(UUID, 0, 50, 512 * MIB)])
    page = SimpleNamespace(charged=lambda device: 10 * MIB)
    session = cast(HookSession, SimpleNamespace(number=1, pid=ME, hook_side=page))

    def holding() -> Holding:
        return KernelUsage.holdings([session], ledger.accounts("k"))[(ME, UUID)]

    ledger.lend("k", 0, 1, 300 * MIB)
    ledger.take_back("k", 0, 1, 280 * MIB)
    assert holding() == Holding(10 * MIB, 300 * MIB)
    ledger.begin_look()
    assert holding() == Holding(10 * MIB, 10 * MIB)
