"""The hook's life beside an agent that comes late, dies, recalls and refuses; and beside forks."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import Hello, HookPage, Role

MIB = 1 << 20
OUT_OF_MEMORY = 2
UUID = "10" * 16


@pytest.fixture
def a_kernel(a_null_node: Any) -> tuple[Any, Any]:
    agent = a_null_node.grant((UUID, 64 * MIB))
    program = a_null_node.program()
    assert program("begin()") == 0
    return agent, program


def charged(agent: Any, pid: int | None = None) -> int:
    return int(agent.process(pid).word(0, HookPage.CHARGED))


def hellos(agent: Any, role: Role = Role.PROCESS) -> list[Hello]:
    return [one for one in agent.heard if isinstance(one, Hello) and one.role is role]


def test_a_first_hello_says_who_it_is_and_holds_nothing(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    agent.process(program.pid)
    (hello,) = hellos(agent)
    stat = Path(f"/proc/{program.pid}/stat").read_text()
    want_ticks = int(stat[stat.rindex(")") :].split()[20])
    assert (hello.pid, hello.start_time_ticks, hello.devices) == (program.pid, want_ticks, ())


def test_nothing_is_started_before_cu_init(a_null_node: Any) -> None:
    agent = a_null_node.grant((UUID, 64 * MIB))
    program = a_null_node.program()
    program("call('cuDriverGetVersion', ctypes.byref(ctypes.c_int()))")
    assert agent.heard == []
    program("begin()")
    agent.process(program.pid)


def test_with_a_dead_agent_the_hook_keeps_running_within_its_credit(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    _, pointer = program(f"alloc({10 * MIB})")
    agent.stop()
    assert program(f"alloc({20 * MIB})")[0] == 0
    assert program(f"free({pointer})") == 0


def test_a_new_agent_hears_the_whole_table(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    program(f"alloc({10 * MIB})")
    agent.stop()
    program(f"alloc({20 * MIB})")
    agent.start()
    agent.wait_for(lambda: len(hellos(agent)) == 2)
    (device,) = hellos(agent)[1].devices
    assert device.uuid.hex() == UUID
    assert (device.charged_bytes, device.credit_bytes) == (30 * MIB, 34 * MIB)
    agent.wait_for(lambda: charged(agent) == 30 * MIB)
    assert program(f"alloc({35 * MIB})")[0] == OUT_OF_MEMORY
    assert program(f"alloc({34 * MIB})")[0] == 0


def test_a_request_waits_for_an_agent_that_restarts(a_null_node: Any) -> None:
    agent = a_null_node.grant((UUID, 200 * MIB))
    program = a_null_node.program()
    program("begin()")
    program(f"alloc({60 * MIB})")
    agent.stop()
    program.ask(f"alloc({100 * MIB})")
    agent.start()
    assert program.answer()[0] == 0
    assert charged(agent) == 160 * MIB


def test_a_request_survives_an_agent_that_dies_before_it_answers(a_null_node: Any) -> None:
    agent = a_null_node.grant((UUID, 200 * MIB))
    program = a_null_node.program()
    program("begin()")
    agent.is_silent = True
    program.ask(f"alloc({100 * MIB})")
    agent.wait_for(lambda: bool(agent.of(protocol.MessageType.CREDIT_REQUEST)))
    agent.stop()
    agent.is_silent = False
    agent.start()
    assert program.answer()[0] == 0


@pytest.mark.soak(alone="waits half a minute")
def test_a_silent_agent_is_out_of_memory_in_the_end(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    agent.is_silent = True
    assert program(f"alloc({10 * MIB})")[0] == OUT_OF_MEMORY


def test_without_an_agent_cuda_starts_and_memory_is_refused_with_a_reason(a_null_node: Any) -> None:
    program = a_null_node.program()
    assert program("begin()") == 0
    assert program(f"alloc({MIB})")[0] == OUT_OF_MEMORY
    assert 'reason="No such file or directory"' in a_null_node.log.read_text()
    assert program("info()")[1] == 0


def test_an_agent_that_comes_late_is_found(a_null_node: Any) -> None:
    program = a_null_node.program()
    program("begin()")
    assert program(f"alloc({MIB})")[0] == OUT_OF_MEMORY
    agent = a_null_node.grant((UUID, 64 * MIB))
    agent.process(program.pid)
    assert program(f"alloc({MIB})")[0] == 0


def test_a_refusal_is_logged_and_means_no_memory(a_null_node: Any) -> None:
    a_null_node.agent.refusal = protocol.Refuse(protocol.RefusalReason.KERNEL, "the grant ended")
    a_null_node.grant((UUID, 64 * MIB))
    program = a_null_node.program()
    assert program("begin()") == 0
    assert program(f"alloc({MIB})")[0] == OUT_OF_MEMORY
    assert 'reason=2 text="the grant ended"' in a_null_node.log.read_text()


@pytest.mark.parametrize("env", [{"ALIQUOT_HOOK": "off"}, {"ALIQUOT_KERNEL_DIR": ""}])
def test_a_hook_that_is_off_forwards_and_changes_nothing(a_null_node: Any, env: dict[str, str]) -> None:
    agent = a_null_node.grant((UUID, 4 * MIB))
    program = a_null_node.program(**env)
    program("begin()")
    assert program(f"alloc({100 * MIB})")[0] == 0
    assert program("info()") == [0, 924 * MIB, 1024 * MIB]
    assert "native/shim" not in program("query('cuMemAlloc')")[1]
    assert agent.heard == []


def test_a_child_forked_before_init_registers_for_itself(a_null_node: Any) -> None:
    agent = a_null_node.grant((UUID, 64 * MIB))
    program = a_null_node.program()
    code, pid = program(f"in_fork(lambda: (begin(), alloc({4 * MIB}), [alloc(512)[0], os.getpid()])[-1])")
    assert code == 0
    assert [hello.pid for hello in hellos(agent)] == [pid]


def test_a_child_forked_after_init_is_passive_until_its_own(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    program(f"alloc({10 * MIB})")
    assert program("in_fork(lambda: [alloc(512)[0], len([d for d in descriptors() if 'socket' in d])])") == [0, 0]
    assert charged(agent) == 10 * MIB
    agent.recall(agent.process(), 64 * MIB)
    agent.wait_for(lambda: agent.lent() == 10 * MIB)
    code, pid = program(f"in_fork(lambda: [(begin(), alloc({4 * MIB}))[1][0], os.getpid()])")
    assert code == 0
    assert [hello.pid for hello in hellos(agent)] == [program.pid, pid]
    assert charged(agent, program.pid) == 10 * MIB


def test_a_killed_process_leaves_no_connection_behind_in_its_children(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    agent.process(program.pid)
    child = program("fork_a_sleeper()")
    try:
        program.kill()
        agent.wait_for(lambda: agent.connections == [])
    finally:
        os.kill(child, signal.SIGKILL)


def test_descriptors_stay_away_from_the_standard_ones(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    agent.process(program.pid)
    got = program("[os.get_inheritable(int(n)) for n in os.listdir('/proc/self/fd') if is_ours(n)]")
    assert got
    assert not any(got)


def test_a_program_that_closes_our_descriptors_keeps_its_own_files(a_kernel: tuple[Any, Any], a_folder: Path) -> None:
    agent, program = a_kernel
    pointer = program(f"alloc({MIB})")[1]
    file = a_folder / "file"
    file.write_bytes(b"the user's")
    taken = program(f"take_over({str(file)!r})")
    assert len(taken) == 3
    assert program("launch()") == 0
    agent.wait_for(lambda: len(hellos(agent)) == 2)
    assert program(f"alloc({40 * MIB})")[0] == 0
    assert program(f"free({pointer})") == 0
    assert program(f"[os.path.samefile(number, {str(file)!r}) for number in {taken}]") == [True] * 3
    assert program(f"[os.lseek(number, 0, os.SEEK_CUR) for number in {taken}]") == [0] * 3
    assert file.read_bytes() == b"the user's"


def test_launches_are_counted_and_a_closed_gate_holds_them(a_kernel: tuple[Any, Any]) -> None:
    agent, program = a_kernel
    process = agent.process()
    assert program("launch(1000)") == 0
    agent.wait_for(lambda: process.word(0, HookPage.LAUNCHES) == 1000)
    assert sum(program("in_threads(4, lambda: use(0) or launch(500))")) == 0
    agent.wait_for(lambda: process.word(0, HookPage.LAUNCHES) == 3000)
    program("use(1)")
    program("launch(5)")
    program("use(0)")
    program("launch(1)")
    agent.wait_for(lambda: process.word(0, HookPage.LAUNCHES) == 3001)
    agent.set_gate(1)
    program.ask("launch(1)")
    program_is_held = process.word(0, HookPage.LAUNCHES)
    agent.set_gate(0)
    assert program.answer() == 0
    assert program_is_held == 3001
    agent.wait_for(lambda: process.word(0, HookPage.LAUNCHES) == 3002)


def test_a_fork_keeps_the_counts_of_before_cuinit_and_wipes_the_guards_word(make_parts: Callable[..., Any]) -> None:
    parts = make_parts()
    parts.library.page_wiped_word.restype = ctypes.c_void_p
    wiped = ctypes.c_uint32.from_address(parts.library.page_wiped_word())
    unknown = ctypes.c_uint64.from_address(parts.library.page_hook() + HookPage.UNKNOWN_SYMBOLS)
    wiped.value, unknown.value = 1, 3
    pid = os.fork()
    if pid == 0:
        os._exit(10 * wiped.value + unknown.value)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert (wiped.value, unknown.value) == (1, 3)
