"""Page-locked host memory has a quota of its own, beside the devices'."""

from __future__ import annotations

import mmap
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import AgentPage, HookPage, MessageType

MIB = 1 << 20
PAGE = mmap.PAGESIZE
OUT_OF_MEMORY, INVALID_VALUE, ALREADY_REGISTERED, NOT_REGISTERED, INVALID_CONTEXT = 2, 1, 712, 713, 201
UUID = "10" * 16


@pytest.fixture
def a_kernel(a_null_node: Any) -> tuple[Any, Any]:
    """Grant 64 MiB of device 0, and 8 MiB of page-locked host memory."""
    a_null_node.agent.host_quota = 8 * MIB
    agent = a_null_node.grant((UUID, 64 * MIB))
    program = a_null_node.program()
    assert program("begin()") == 0
    return agent, program


def charged(agent: Any) -> int:
    return int(agent.process().page_word(HookPage.HOST_CHARGED))


@pytest.mark.parametrize("call", ["'cuMemAllocHost'", "'cuMemAllocHost_v2'", "'cuMemHostAlloc', 1"])
def test_allocations_are_charged_in_whole_pages_and_refunded(a_kernel: tuple[Any, Any], call: str) -> None:
    agent, program = a_kernel
    want = 0
    pointers = []
    for asked in (1, PAGE, PAGE + 1, MIB):
        code, pointer = program(f"alloc_host({asked}, {call})")
        want += -(-asked // PAGE) * PAGE
        assert (code, charged(agent)) == (0, want)
        pointers.append(pointer)
    for pointer in pointers:
        assert program(f"free_host({pointer})") == 0
    assert charged(agent) == 0
    assert agent.process().page_word(HookPage.HOST_PEAK) == want
    assert agent.process().word(0, HookPage.CHARGED) == 0


@pytest.mark.parametrize("name", ["cuMemHostRegister", "cuMemHostRegister_v2"])
def test_registered_pages_are_charged_as_far_as_they_are_touched(a_kernel: tuple[Any, Any], name: str) -> None:
    agent, program = a_kernel
    pointer = program(f"pages({4 * PAGE})")
    assert program(f"register({pointer + 100}, {PAGE}, name={name!r})") == 0
    assert charged(agent) == 2 * PAGE
    assert program(f"register({pointer + 100}, {PAGE}, name={name!r})") == ALREADY_REGISTERED
    assert charged(agent) == 2 * PAGE
    assert program(f"unregister({pointer + 100})") == 0
    assert program(f"unregister({pointer + 100})") == NOT_REGISTERED
    assert charged(agent) == 0


def test_memory_of_a_device_that_is_registered_is_not_the_hosts(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    pointer = program(f"pages({PAGE})")
    assert program(f"register({pointer}, {PAGE}, 4)") == 0
    assert charged(agent) == 0
    assert program(f"unregister({pointer})") == 0


def test_over_quota_is_out_of_memory_and_a_retry_after_a_free_succeeds(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    _, pointer = program(f"alloc_host({6 * MIB})")
    pages = program(f"pages({4 * MIB})")
    assert program(f"alloc_host({4 * MIB})")[0] == OUT_OF_MEMORY
    assert program(f"register({pages}, {4 * MIB})") == OUT_OF_MEMORY
    assert program(f"create({4 * MIB}, location=2)")[0] == OUT_OF_MEMORY
    assert agent.process().page_word(HookPage.HOST_REFUSALS) == 3
    assert program(f"free_host({pointer})") == 0
    assert program(f"alloc_host({4 * MIB})")[0] == 0
    assert program(f"register({pages}, {4 * MIB})") == 0
    assert charged(agent) == 8 * MIB


def test_a_handle_of_host_memory_is_charged_to_the_host(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    for location in (2, 3, 4):
        code, handle = program(f"create({2 * MIB}, location={location})")
        assert (code, charged(agent)) == (0, 2 * MIB)
        assert program(f"release({handle})") == 0
        assert charged(agent) == 0
    assert agent.process().word(0, HookPage.CHARGED) == 0


def test_a_wrong_call_gets_the_drivers_own_error_over_quota_too(a_kernel: tuple[Any, Any]) -> None:
    _, program = a_kernel
    program(f"alloc_host({8 * MIB})")
    _, pointer = program("alloc_host(1)")
    assert pointer == 0
    assert program(f"alloc_host({MIB}, 'cuMemHostAlloc', 64)")[0] == INVALID_VALUE
    assert program(f"call('cuMemAllocHost_v2', None, SIZE({MIB}))") == INVALID_VALUE
    assert program(f"register(0, {MIB})") == INVALID_VALUE
    assert program("free_host(4096)") == INVALID_VALUE


def test_without_a_host_quota_it_is_counted_and_not_limited(a_null_node: Any) -> None:
    agent = a_null_node.grant((UUID, 64 * MIB))
    program = a_null_node.program()
    program("begin()")
    code, pointer = program(f"alloc_host({300 * MIB})")
    assert (code, charged(agent)) == (0, 300 * MIB)
    assert program(f"free_host({pointer})") == 0
    assert charged(agent) == 0
    assert agent.of(MessageType.CREDIT_REQUEST) == []
    assert agent.of(MessageType.CREDIT_RETURN) == []


def test_a_new_agent_hears_what_is_held_of_the_host(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    program(f"alloc_host({6 * MIB})")
    agent.stop()
    agent.start()
    hello = agent.process().hello
    agent.wait_for(lambda: charged(agent) == 6 * MIB)
    assert [(one.uuid, one.charged_bytes) for one in hello.devices] == [(protocol.HOST_UUID, 6 * MIB)]
    assert program(f"alloc_host({4 * MIB})")[0] == OUT_OF_MEMORY
    assert program(f"alloc_host({2 * MIB})")[0] == 0


def test_unlimited_host_memory_that_became_limited_is_taken_over(a_null_node: Any) -> None:
    agent = a_null_node.grant((UUID, 64 * MIB))
    program = a_null_node.program()
    program("begin()")
    _, pointer = program(f"alloc_host({6 * MIB})")
    agent.stop()
    agent.host_quota = 8 * MIB
    agent.start()
    agent.wait_for(lambda: charged(agent) == 6 * MIB)
    assert program(f"alloc_host({4 * MIB})")[0] == OUT_OF_MEMORY
    assert program(f"free_host({pointer})") == 0
    assert program(f"alloc_host({8 * MIB})")[0] == 0
    assert agent.lent(protocol.HOST_MEMORY) == 8 * MIB


def test_a_smaller_host_quota_refuses_new_memory(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    program(f"alloc_host({4 * MIB})")
    page = agent.process().agent_page
    page[AgentPage.HOST_QUOTA : AgentPage.HOST_QUOTA + 8] = (2 * MIB).to_bytes(8, "little")
    assert program("alloc_host(1)")[0] == OUT_OF_MEMORY
