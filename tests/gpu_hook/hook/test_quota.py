"""The quota: charges and refunds, and the behaviour at its edge."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import AgentPage, HookPage, MessageType

MIB = 1 << 20
OUT_OF_MEMORY = 2


@pytest.fixture
def a_uuid(a_node: Any) -> list[str]:
    outsider = a_node.outsider()
    outsider("begin()")
    return [outsider("uuid(0)"), outsider("uuid(1)")]


@pytest.fixture
def a_kernel(a_node: Any, a_uuid: list[str]) -> tuple[Any, Any]:
    """Make an agent that grants 64 MiB of device 0, and a program that has begun."""
    agent = a_node.grant((a_uuid[0], 64 * MIB))
    program = a_node.program()
    assert program("begin()") == 0
    return agent, program


def charged(agent: Any, pid: int | None = None) -> int:
    return int(agent.process(pid).word(0, HookPage.CHARGED))


def test_allocations_are_charged_in_whole_driver_pages(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    want_charged = 0
    for asked, taken in ((1, 512), (513, 1024), (MIB - 1, MIB), (MIB, 2 * MIB), (2 * MIB + 1, 4 * MIB)):
        assert program(f"alloc({asked})")[0] == 0
        want_charged += taken
        assert charged(agent) == want_charged
    assert agent.process().word(0, HookPage.ALLOCATIONS) == 5


def test_a_free_is_refunded_and_the_peak_stays(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    _, pointer = program(f"alloc({10 * MIB})")
    assert program(f"free({pointer})") == 0
    process = agent.process()
    assert charged(agent) == 0
    assert process.word(0, HookPage.PEAK) == 10 * MIB
    assert process.word(0, HookPage.ALLOCATIONS) == 0
    assert process.page_word(HookPage.LAST_CALL) > 0


def test_over_quota_is_out_of_memory_and_a_retry_after_a_free_succeeds(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    _, pointer = program(f"alloc({40 * MIB})")
    assert program(f"alloc({40 * MIB})")[0] == OUT_OF_MEMORY
    assert agent.process().word(0, HookPage.REFUSALS) == 1
    program(f"free({pointer})")
    assert program(f"alloc({40 * MIB})")[0] == 0


def test_the_whole_quota_can_be_used_and_not_a_byte_more(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    for _ in range(32):
        assert program(f"alloc({2 * MIB})")[0] == 0
    assert program("alloc(1)")[0] == OUT_OF_MEMORY
    assert charged(agent) == 64 * MIB


@pytest.mark.parametrize("asked", [(1 << 64) - 1, 1 << 63, 1 << 50])
def test_an_absurd_size_is_out_of_memory(a_kernel: tuple[Any, Any], asked: int) -> None:
    agent, program = a_kernel
    assert program(f"alloc({asked})")[0] == OUT_OF_MEMORY
    assert program("alloc(512)")[0] == 0
    assert charged(agent) == 512


def test_a_failed_driver_call_is_refunded(a_node: Any, a_uuid: list[str]) -> None:
    agent = a_node.grant((a_uuid[0], 64 * MIB))
    program = a_node.program(ALIQUOT_SOFTGPU_FAULTS="cuMemAlloc_v2:2=999")
    program("begin()")
    assert program(f"alloc({MIB})")[0] == 0
    assert program(f"alloc({MIB})")[0] == 999
    assert charged(agent) == 2 * MIB


def test_every_family_is_charged_and_refunded(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    code, pointer, pitch = program("alloc_pitch(1000, 3000)")
    assert code == 0
    assert charged(agent) == -(-pitch * 3000 // (2 * MIB)) * 2 * MIB
    assert program(f"free({pointer})") == 0
    for suffix in ("", "_ptsz"):
        code, pointer = program(f"alloc_async({3 * MIB}, {suffix!r})")
        assert (code, charged(agent)) == (0, 4 * MIB)
        assert program(f"free_async({pointer}, {suffix!r})") == 0
        assert charged(agent) == 0


@pytest.mark.parametrize(
    "allocate",
    ["alloc_from_pool({}, default_pool(1))", "alloc_from_pool({}, new_pool(1))", "alloc_on_stream({}, 1)"],
)
def test_stream_ordered_memory_is_charged_on_the_device_that_gives_it(
    allocate: str, a_node: Any, a_uuid: list[str]
) -> None:
    agent = a_node.grant((a_uuid[0], 2 * MIB), (a_uuid[1], 8 * MIB))
    program = a_node.program()
    assert program("begin()") == 0
    assert program(allocate.format(16 * MIB))[0] == OUT_OF_MEMORY
    code, pointer = program(allocate.format(8 * MIB))
    assert code == 0
    words = [agent.process().word(device, HookPage.CHARGED) for device in (0, 1)]
    assert words == [0, 8 * MIB]
    assert program(f"free_async({pointer})") == 0
    assert agent.process().word(1, HookPage.CHARGED) == 0


def test_managed_memory_is_charged_in_full(a_null_node: Any) -> None:
    agent = a_null_node.grant(("10" * 16, 64 * MIB))
    program = a_null_node.program()
    program("begin()")
    code, pointer = program(f"alloc_managed({MIB})")
    assert (code, charged(agent)) == (0, 2 * MIB)
    assert program(f"free({pointer})") == 0
    assert charged(agent) == 0


@pytest.fixture
def a_null_kernel(a_null_node: Any) -> tuple[Any, Any]:
    """Make a kernel with 64 MiB on the null driver, which has the virtual-memory API."""
    agent = a_null_node.grant(("10" * 16, 64 * MIB))
    program = a_null_node.program()
    program("begin()")
    return agent, program


def test_a_handle_is_charged_until_its_last_reference_and_mapping_are_gone(a_null_kernel: tuple[Any, Any]) -> None:
    agent, program = a_null_kernel
    _, handle = program(f"create({4 * MIB})")
    _, address = program(f"reserve({4 * MIB})")
    assert program(f"map_at({address}, {4 * MIB}, {handle})") == 0
    assert program(f"retain({address})")[0] == 0
    assert program(f"release({handle})") == 0
    assert charged(agent) == 4 * MIB
    assert program(f"release({handle})") == 0
    assert charged(agent) == 4 * MIB
    assert program(f"unmap({address}, {4 * MIB})") == 0
    assert charged(agent) == 0


def test_one_unmap_over_several_mappings_refunds_them_all(a_null_kernel: tuple[Any, Any]) -> None:
    agent, program = a_null_kernel
    _, address = program(f"reserve({8 * MIB})")
    for place in (4, 0, 2, 6):
        _, handle = program(f"create({2 * MIB})")
        program(f"map_at({address + place * MIB}, {2 * MIB}, {handle})")
        program(f"release({handle})")
    assert charged(agent) == 8 * MIB
    program(f"unmap({address + 2 * MIB}, {4 * MIB})")
    assert charged(agent) == 4 * MIB
    program(f"unmap({address}, {8 * MIB})")
    assert charged(agent) == 0


def test_memory_of_the_host_is_not_charged(a_null_kernel: tuple[Any, Any]) -> None:
    agent, program = a_null_kernel
    assert program(f"create({100 * MIB}, location=2)")[0] == 0
    assert charged(agent) == 0


def test_a_handle_over_quota_is_refused(a_null_kernel: tuple[Any, Any]) -> None:
    _, program = a_null_kernel
    assert program(f"create({66 * MIB})")[0] == OUT_OF_MEMORY
    assert program(f"create({64 * MIB})")[0] == 0


def test_an_ended_context_gives_its_memory_back(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    program(f"alloc({2 * MIB})")
    _, context = program("new_context()")
    program(f"alloc({10 * MIB})")
    assert charged(agent) == 12 * MIB
    assert program(f"end_context({context})") == 0
    assert charged(agent) == 2 * MIB


@pytest.mark.parametrize("end", ["cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRelease_v2"])
def test_the_end_of_the_primary_context_gives_its_memory_back(a_kernel: tuple[Any, Any], end: str) -> None:
    agent, program = a_kernel
    program(f"alloc({10 * MIB})")
    assert program(f"call({end!r}, 0)") == 0
    assert charged(agent) == 0


def test_releasing_one_of_two_uses_of_the_primary_context_frees_nothing(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    program("use(0)")
    program(f"alloc({10 * MIB})")
    assert program("call('cuDevicePrimaryCtxRelease_v2', 0)") == 0
    assert charged(agent) == 10 * MIB


def test_a_device_that_is_not_granted_has_a_quota_of_nothing(a_kernel: tuple[Any, Any]) -> None:
    _, program = a_kernel
    assert program("use(1)") == 0
    assert program("alloc(512)")[0] == OUT_OF_MEMORY
    assert program("info()") == [0, 0, 0]


def test_queries_show_the_quota(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    program(f"alloc({4 * MIB})")
    agent.write(agent.process(), 0, AgentPage.CHARGED_ELSEWHERE, 10 * MIB)
    assert program("info()") == [0, 50 * MIB, 64 * MIB]
    assert program("total()") == [0, 64 * MIB]
    assert program("call('cuMemGetInfo_v2', None, None)") in (0, 1)


def test_a_quota_beyond_the_device_shows_the_device(a_node: Any, a_uuid: list[str]) -> None:
    a_node.grant((a_uuid[0], 512 * MIB))
    program = a_node.program()
    program("begin()")
    _, free_bytes, total = program("info()")
    assert total == 256 * MIB
    assert free_bytes <= total
    assert program("total()") == [0, 256 * MIB]


def test_under_the_drivers_own_limit_queries_show_the_driver(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    page, at = agent.process().agent_page, AgentPage.DEVICES + AgentPage.ENFORCER
    page[at : at + 4] = protocol.Enforcer.DRIVER.to_bytes(4, "little")
    assert program("info()") == [0, 256 * MIB, 256 * MIB]
    assert program("total()") == [0, 256 * MIB]
    assert program(f"alloc({40 * MIB})")[0] == 0
    assert charged(agent) == 40 * MIB


def test_threads_at_the_edge_never_exceed_the_quota(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    refusals = program(f"in_threads(6, lambda: fill_and_empty(0, {3 * MIB}, 60))")
    process = agent.process()
    assert sum(refusals) > 0
    assert process.word(0, HookPage.PEAK) <= 64 * MIB
    assert charged(agent) == 0
    assert process.word(0, HookPage.ALLOCATIONS) == 0


def test_processes_of_one_kernel_share_its_quota(a_kernel: tuple[Any, Any], a_node: Any) -> None:
    agent, first = a_kernel
    second = a_node.program()
    second("begin()")
    assert first(f"alloc({30 * MIB})")[0] == 0
    connection = agent.process(first.pid)
    spare = connection.word(0, HookPage.CREDIT)
    agent.recall(connection, spare)
    agent.wait_for(lambda: connection.word(0, HookPage.CREDIT) == 0)
    agent.wait_for(lambda: agent.lent() == 30 * MIB)  # the page is ahead of the message
    assert second(f"alloc({34 * MIB})")[0] == 0
    assert second("alloc(512)")[0] == OUT_OF_MEMORY


def test_spare_credit_is_given_back(make_node: Callable[..., Any]) -> None:
    node = make_node(devices=1, memory="2GiB")
    outsider = node.outsider()
    outsider("begin()")
    agent = node.grant((outsider("uuid()"), 1024 * MIB))
    program = node.program()
    program("begin()")
    _, pointer = program(f"alloc({512 * MIB})")
    program(f"free({pointer})")
    agent.wait_for(lambda: agent.lent() == 64 * MIB)
    assert agent.process().word(0, HookPage.CREDIT) == 64 * MIB


def test_a_recall_is_answered_with_the_spare_credit(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    program(f"alloc({10 * MIB})")
    connection = agent.process()
    agent.recall(connection, 1000 * MIB, sequence=5)
    agent.wait_for(lambda: len(agent.of(MessageType.CREDIT_RETURN)) == 1)
    (answer,) = agent.of(MessageType.CREDIT_RETURN)
    assert (answer.sequence, answer.bytes) == (5, 54 * MIB)
    agent.recall(connection, 1000 * MIB, sequence=6)
    agent.wait_for(lambda: len(agent.of(MessageType.CREDIT_RETURN)) == 2)
    assert agent.of(MessageType.CREDIT_RETURN)[1].bytes == 0


def test_a_smaller_quota_refuses_new_memory_and_keeps_the_old(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    _, pointer = program(f"alloc({40 * MIB})")
    agent.set_quota(0, 20 * MIB)
    assert program(f"alloc({MIB})")[0] == OUT_OF_MEMORY
    assert program("info()") == [0, 0, 20 * MIB]
    assert program(f"free({pointer})") == 0
    assert program(f"alloc({20 * MIB})")[0] == 0


def needed(agent: Any) -> tuple[int, int]:
    """Return the refused need that stands, and the open one of the last refusal, in MiB."""
    words = (agent.process().page_word(HookPage.NEEDS + at) for at in (HookPage.NEEDED, HookPage.REFUSED_NEEDED))
    stands, is_open = words
    return stands // MIB, is_open // MIB


def refused_at(agent: Any) -> int:
    return int(agent.process().page_word(HookPage.NEEDS + HookPage.REFUSED_AT))


def test_the_moment_is_of_the_last_refusal_that_stands_and_not_of_one_that_was_made_up_for(
    a_kernel: tuple[Any, Any],
) -> None:
    agent, program = a_kernel
    _, pointer = program(f"alloc({40 * MIB})")
    assert program(f"alloc({30 * MIB})")[0] == OUT_OF_MEMORY
    first = refused_at(agent)
    assert first > 0
    assert program(f"alloc({2 * MIB})")[0] == 0
    assert refused_at(agent) == first
    while time.clock_gettime_ns(time.CLOCK_MONOTONIC) < first + 50_000_000:  # the hook's clock is coarse
        time.sleep(0.01)
    assert program(f"alloc({30 * MIB})")[0] == OUT_OF_MEMORY
    assert refused_at(agent) > first
    program(f"free({pointer})")
    assert program(f"alloc({30 * MIB})")[0] == 0
    assert refused_at(agent) == first
    assert program(f"alloc({60 * MIB})")[0] == OUT_OF_MEMORY
    assert program("alloc(512)")[0] == 0
    assert refused_at(agent) > first
    assert needed(agent) == (92, 0)


def test_what_was_refused_and_never_had_is_what_was_needed(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    _, pointer = program(f"alloc({40 * MIB})")
    assert needed(agent) == (0, 0)
    assert program(f"alloc({30 * MIB})")[0] == OUT_OF_MEMORY
    assert needed(agent) == (0, 70)  # nothing came after it yet
    assert program(f"alloc({2 * MIB})")[0] == 0
    assert needed(agent) == (70, 0)
    program(f"free({pointer})")
    assert program(f"alloc({20 * MIB})")[0] == 0
    assert needed(agent) == (70, 0)
    assert program(f"alloc({60 * MIB})")[0] == OUT_OF_MEMORY  # 22 + 60
    assert program("alloc(512)")[0] == 0
    assert needed(agent) == (82, 0)


def test_a_framework_that_returns_its_cache_and_then_gets_it_needed_no_more(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    _, cache = program(f"alloc({40 * MIB})")
    _, more = program(f"alloc({10 * MIB})")
    assert program(f"alloc({30 * MIB})")[0] == OUT_OF_MEMORY
    program(f"free({more})")
    assert program(f"alloc({30 * MIB})")[0] == OUT_OF_MEMORY  # it tries again: this is what counts
    assert needed(agent) == (0, 70)
    program(f"free({cache})")
    assert program(f"alloc({30 * MIB})")[0] == 0
    assert needed(agent) == (0, 0)


def test_an_allocator_that_asks_for_less_until_it_gets_some_made_do(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    for asked in (80, 72, 66):
        assert program(f"alloc({asked * MIB})")[0] == OUT_OF_MEMORY
    assert needed(agent) == (0, 66)
    assert program(f"alloc({60 * MIB})")[0] == 0
    assert needed(agent) == (0, 0)


def test_needs_count_what_the_kernels_other_processes_have(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    agent.write(agent.process(), 0, AgentPage.CHARGED_ELSEWHERE, 50 * MIB)
    assert program(f"alloc({70 * MIB})")[0] == OUT_OF_MEMORY
    assert needed(agent) == (0, 120)
