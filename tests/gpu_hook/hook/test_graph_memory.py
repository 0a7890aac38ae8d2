"""Memory nodes of graphs are charged when a launch takes their memory, for as long as the driver keeps it."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage, PinReason

MIB = 1 << 20
UPLOAD = 2
OUT_OF_MEMORY = 2
UUID = "10" * 16


@pytest.fixture
def a_kernel(a_null_node: Any) -> tuple[Any, Any]:
    agent = a_null_node.grant((UUID, 64 * MIB))
    program = a_null_node.program()
    assert program("begin()") == 0
    return agent, program


def charged(agent: Any) -> int:
    return int(agent.process().word(0, HookPage.CHARGED))


def instantiate(program: Any, *amounts: int) -> int:
    graph = program("new_graph()")
    for amount in amounts:
        assert program(f"add_allocation({graph}, {amount})")[0] == 0
    code, exec_ = program(f"instantiate({graph})")
    assert code == 0
    return int(exec_)


@pytest.mark.parametrize("call", ["cuGraphLaunch", "cuGraphUpload"])
def test_a_graph_is_charged_when_it_is_launched_until_its_memory_is_trimmed(
    a_kernel: tuple[Any, Any], call: str
) -> None:
    agent, program = a_kernel
    exec_ = instantiate(program, 10 * MIB, 20 * MIB)
    assert charged(agent) == 0
    for _ in range(3):
        assert program(f"launch_graph({exec_}, {call!r})") == 0
        assert charged(agent) == 30 * MIB
    assert program(f"end_exec({exec_})") == 0
    assert charged(agent) == 30 * MIB
    assert program("trim_graphs()") == 0
    assert charged(agent) == 0


def test_graphs_share_what_is_reserved(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    first, second = instantiate(program, 40 * MIB), instantiate(program, 50 * MIB)
    assert program(f"launch_graph({first})") == 0
    assert program(f"launch_graph({second})") == 0
    assert charged(agent) == 50 * MIB
    assert agent.process().word(0, HookPage.PEAK) <= 64 * MIB


def test_over_quota_a_launch_is_out_of_memory_and_succeeds_after_a_free(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    _, pointer = program(f"alloc({40 * MIB})")
    exec_ = instantiate(program, 30 * MIB)
    assert program(f"launch_graph({exec_})") == OUT_OF_MEMORY
    assert charged(agent) == 40 * MIB
    assert agent.process().word(0, HookPage.REFUSALS) == 1
    assert program(f"free({pointer})") == 0
    assert program(f"launch_graph({exec_})") == 0
    assert charged(agent) == 30 * MIB


def test_a_trimmed_graph_must_find_its_memory_again(a_kernel: tuple[Any, Any]) -> None:
    _, program = a_kernel
    exec_ = instantiate(program, 30 * MIB)
    assert program(f"launch_graph({exec_})") == 0
    program("trim_graphs()")
    _, pointer = program(f"alloc({40 * MIB})")
    assert program(f"launch_graph({exec_})") == OUT_OF_MEMORY
    program(f"free({pointer})")
    assert program(f"launch_graph({exec_})") == 0


def test_a_graph_that_uploads_at_once_is_charged_at_once(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    graph = program("new_graph()")
    program(f"add_allocation({graph}, {10 * MIB})")
    assert program(f"instantiate({graph}, {UPLOAD})")[0] == 0
    assert charged(agent) == 10 * MIB
    program(f"add_allocation({graph}, {60 * MIB})")
    assert program(f"instantiate({graph}, {UPLOAD})")[0] == OUT_OF_MEMORY


def test_memory_nodes_of_child_graphs_count(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    child, graph = program("new_graph()"), program("new_graph()")
    program(f"add_allocation({child}, {50 * MIB})")
    program(f"add_child({graph}, {child})")
    _, exec_ = program(f"instantiate({graph})")
    _, pointer = program(f"alloc({40 * MIB})")
    assert program(f"launch_graph({exec_})") == OUT_OF_MEMORY
    program(f"free({pointer})")
    assert program(f"launch_graph({exec_})") == 0
    assert charged(agent) == 50 * MIB


def test_a_failed_launch_is_refunded(a_null_node: Any) -> None:
    agent = a_null_node.grant((UUID, 64 * MIB))
    program = a_null_node.program(NULL_DRIVER_BYTES=str(20 * MIB))
    program("begin()")
    exec_ = instantiate(program, 30 * MIB)
    assert program(f"launch_graph({exec_})") == OUT_OF_MEMORY
    assert (charged(agent), agent.process().word(0, HookPage.REFUSALS)) == (0, 0)


def test_the_last_green_context_gives_the_devices_memory_back(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    program(f"alloc({10 * MIB})")
    program("new_array(100, 100)")
    assert charged(agent) > 10 * MIB
    assert program("call('cuGreenCtxDestroy', None)") == 0
    assert charged(agent) == 0


def test_a_captured_allocation_is_charged_by_its_graph(a_node: Any) -> None:
    """This runs on the software GPU, which has captures."""
    outsider = a_node.outsider()
    outsider("begin()")
    agent = a_node.grant((outsider("uuid()"), 64 * MIB))
    program = a_node.program()
    program("begin()")
    stream = program("begin_capture()")
    code, pointer = program(f"alloc_captured({40 * MIB}, {stream})")
    assert (code, charged(agent)) == (0, 0)
    assert program(f"call('cuMemFreeAsync', U64({pointer}), U64({stream}))") == 0
    code, exec_ = program(f"instantiate(end_capture({stream}))")
    assert (code, charged(agent)) == (0, 0)
    _, plain = program(f"alloc({30 * MIB})")
    assert program(f"launch_graph({exec_})") == OUT_OF_MEMORY
    program(f"free({plain})")
    assert program(f"launch_graph({exec_})") == 0
    assert charged(agent) == program("graph_bytes()") == 40 * MIB
    assert program("info()")[1] == 24 * MIB


def test_who_is_refused_waits_for_frees_in_order_but_not_while_a_stream_captures(make_node: Any) -> None:
    """The pool holds a chunk that it gives back after a wait for the context, which no capture survives."""
    node = make_node(devices=1, memory="256MiB", pool_chunk="32MiB")
    outsider = node.outsider()
    outsider("begin()")
    node.grant((outsider("uuid()"), 64 * MIB))
    program = node.program()
    program("begin()")
    code, pointer = program("alloc_async(1)")
    assert code == 0
    stream = program("begin_capture()")
    assert program(f"alloc_async({60 * MIB})")[0] == OUT_OF_MEMORY
    assert program(f"end_capture({stream})")
    assert program("spin(200, waits=False)") == 0
    assert program(f"free_later({pointer})") == 0
    assert program(f"alloc({60 * MIB})")[0] == 0


def test_what_a_pool_keeps_unused_makes_room_for_a_graph(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    program(f"keep(default_pool(0), {1 << 40})")
    _, pointer = program(f"alloc_async({60 * MIB})")
    program(f"free_later({pointer})")
    assert charged(agent) == 64 * MIB
    exec_ = instantiate(program, 30 * MIB)
    assert program(f"launch_graph({exec_})") == 0
    assert charged(agent) == 30 * MIB
    assert agent.process().word(0, HookPage.REFUSALS) == 0


def test_nodes_of_impossible_sizes_do_not_add_up_to_nothing(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    exec_ = instantiate(program, 1 << 63, 1 << 63)
    assert program(f"launch_graph({exec_})") == OUT_OF_MEMORY
    assert (charged(agent), agent.process().word(0, HookPage.REFUSALS)) == (0, 1)


def test_the_session_s_thread_tells_of_graph_memory_without_asking_the_driver(make_node: Any) -> None:
    """A driver call may last as long as another thread holds the context's lock.

    Recalls would go unanswered.
    """
    node = make_node(devices=1, memory="256MiB", faults="cuDeviceGetGraphMemAttribute@aliquot-hook=999")
    program = node.program()
    program("init()")
    agent = node.grant((program("uuid()"), 128 * MIB))
    assert program("use()") == 0
    exec_ = instantiate(program, 30 * MIB)
    assert program(f"launch_graph({exec_})") == 0
    process = agent.process(program.pid)
    agent.wait_for(lambda: process.page_word(HookPage.RESIDENCY) >> 32 != 0)
    assert process.page_word(HookPage.RESIDENCY) >> 32 == PinReason.GRAPH
