"""Page-locked host memory: lent like a device's, within a quota that goes by the kernel's share of the node."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.agent.devices.host_memory import HostMemoryRule, machine_memory_bytes
from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import HOST_MEMORY, AgentPage, Credit, HelloDevice, HookPage, MessageType

MIB = 1 << 20
GIB = 1 << 30


@pytest.fixture
def start(an_idle_node: Any, open_holder: Callable[[], Any]) -> Callable[..., Any]:
    """Start the agent with these options, and reserve half a device of its one."""

    def begin(*options: str) -> Any:
        an_idle_node.start(*options)
        assert open_holder().reserve(hundredths=50)["ok"]
        return an_idle_node

    return begin


def host(node: Any) -> dict[str, Any]:
    found: dict[str, Any] = node.kernel()["host_memory"]
    return found


def page_word(hook: Any, offset: int) -> int:
    return int.from_bytes(hook.agent_page[offset : offset + 8], "little")


def write_page_word(hook: Any, offset: int, value: int) -> None:
    hook.hook_page[offset : offset + 8] = value.to_bytes(8, "little")


@pytest.mark.parametrize(
    ("rule", "hundredths", "devices", "want"),
    [
        pytest.param(HostMemoryRule(0.5, GIB), 100, 4, 8 * GIB, id="a whole one of four gets a quarter of half"),
        pytest.param(HostMemoryRule(0.5, GIB), 250, 4, 20 * GIB, id="two and a half get as much more"),
        pytest.param(HostMemoryRule(0.5, GIB), 1, 4, GIB, id="the smallest gets the floor"),
        pytest.param(HostMemoryRule(0.01, GIB), 1, 4, 687194767, id="the floor is no more than there is to share"),
        pytest.param(HostMemoryRule(1e-15, GIB), 1, 4, 1, id="next to nothing is not no limit"),
        pytest.param(HostMemoryRule(0.0, GIB), 50, 4, None, id="fraction 0 is no limit"),
    ],
)
def test_a_quota_goes_by_the_share_of_the_node(
    rule: HostMemoryRule, hundredths: int, devices: int, want: int | None
) -> None:
    assert rule.quota(64 * GIB, hundredths, devices) == want


def test_the_machine_is_as_large_as_its_container_allows(tmp_path: Path) -> None:
    whole = machine_memory_bytes(tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    assert machine_memory_bytes(tmp_path) == whole
    (tmp_path / "memory.max").write_text(f"{512 * MIB}\n")
    assert machine_memory_bytes(tmp_path) == 512 * MIB


def test_credit_of_host_memory_ends_at_its_quota(start: Callable[..., Any]) -> None:
    node = start("--host-memory-fraction", "1", "--host-memory-floor", "1MiB")
    want = node.status()["host_memory_bytes"] // 2
    assert host(node)["quota_bytes"] == want
    hook = node.a_hook()
    hook.hello()
    assert page_word(hook, AgentPage.HOST_QUOTA) == want
    assert hook.borrow(want - 1, HOST_MEMORY) == want - 1
    assert hook.borrow(2, HOST_MEMORY) == 0
    assert hook.borrow(1, HOST_MEMORY) == 1
    assert node.device()["lent_bytes"] == 0
    assert host(node)["lent_bytes"] == want


def test_without_a_limit_all_of_the_machine_is_lent_and_counted(start: Callable[..., Any]) -> None:
    node = start("--host-memory-fraction", "0")
    hook = node.a_hook()
    hook.hello()
    assert page_word(hook, AgentPage.HOST_QUOTA) == protocol.NO_LIMIT
    everything = node.status()["host_memory_bytes"]
    assert hook.borrow(everything, HOST_MEMORY) == everything
    write_page_word(hook, HookPage.HOST_CHARGED, 7 * GIB)
    assert host(node)["quota_bytes"] is None
    assert host(node)["charged_bytes"] == min(7 * GIB, everything)
    assert hook.borrow(2**64 - 1, HOST_MEMORY) == 0


def test_processes_share_it_and_see_what_the_others_charged(start: Callable[..., Any]) -> None:
    node = start("--host-memory-floor", "256MiB", "--host-memory-fraction", "0.0001")
    quota = host(node)["quota_bytes"]
    idle, busy = node.a_hook(), node.a_hook()
    for hook in (idle, busy):
        hook.hello()
    idle.borrow(quota, HOST_MEMORY)
    sequence = busy.ask(quota // 2, HOST_MEMORY)
    recall = idle.receive()
    assert isinstance(recall, Credit)
    assert (recall.type, recall.device) == (MessageType.CREDIT_RECALL, HOST_MEMORY)
    idle.give_back(quota // 2, HOST_MEMORY, recall.sequence)
    assert busy.receive() == Credit(MessageType.CREDIT_GRANT, HOST_MEMORY, quota // 2, sequence)
    write_page_word(busy, HookPage.HOST_CHARGED, 1000)
    node.until(lambda: page_word(idle, AgentPage.HOST_CHARGED_ELSEWHERE) == 1000)
    assert page_word(busy, AgentPage.HOST_CHARGED_ELSEWHERE) == 0
    assert page_word(busy, AgentPage.HOST_CHARGED) == 1000


def test_a_killed_process_gives_it_back_and_its_peak_stays(start: Callable[..., Any]) -> None:
    node = start()
    process = node.a_hook_process(str(MIB), "host")
    assert process.stdout is not None
    assert int(process.stdout.readline()) == MIB
    assert host(node)["lent_bytes"] == MIB
    process.send_signal(signal.SIGKILL)
    node.until(lambda: host(node)["lent_bytes"] == 0)
    hook = node.a_hook()
    hook.hello()
    hook.borrow(MIB, HOST_MEMORY)
    write_page_word(hook, HookPage.HOST_PEAK, 2**63)
    write_page_word(hook, HookPage.HOST_REFUSALS, 2)
    hook.close()
    node.until(lambda: host(node)["lent_bytes"] == 0)
    assert (host(node)["peak_bytes"], host(node)["refusals"]) == (MIB, 2)


def test_a_process_keeps_it_over_a_restart_of_the_agent(start: Callable[..., Any]) -> None:
    node = start()
    hook = node.a_hook()
    table = (HelloDevice(protocol.HOST_UUID, 3 * MIB, MIB),)
    assert hook.hello(table) == protocol.Welcome(1)
    assert host(node)["lent_bytes"] == 4 * MIB
    hook.give_back(4 * MIB, HOST_MEMORY)
    node.until(lambda: host(node)["lent_bytes"] == 0)


def test_a_claim_of_more_than_the_machine_has_is_refused(start: Callable[..., Any]) -> None:
    node = start()
    hook = node.a_hook()
    everything = node.status()["host_memory_bytes"]
    assert isinstance(hook.hello((HelloDevice(protocol.HOST_UUID, everything, 1),)), protocol.Refuse)
    assert host(node)["lent_bytes"] == 0


def test_an_agent_refuses_a_fraction_that_is_none(an_idle_node: Any) -> None:
    done = subprocess.run(
        an_idle_node.command("--host-memory-fraction", "1.5"), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "'1.5' is not valid. Use a number from 0 to 1" in done.stderr
