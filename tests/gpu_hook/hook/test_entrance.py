"""A process begins CUDA: the agent can tell until it has registered, and a kernel that moves lets none begin."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.agent.kernels.entrance import Entrance

MIB = 1 << 20
NOT_INITIALIZED, NO_DEVICE, NOT_READY = 3, 100, 802
DEADLINE_SECONDS = 60.0


@pytest.fixture
def a_node(make_node: Callable[..., Any]) -> Any:
    return make_node(memory="128MiB")


@pytest.fixture
def an_entrance(a_node: Any) -> Entrance:
    return Entrance(a_node.kernel_dir)


def until(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not claim():
        assert time.monotonic() < deadline, "the claim did not come true in time"
        time.sleep(0.005)


def says(log: Path, text: str) -> Callable[[], bool]:
    return lambda: log.exists() and text in log.read_text()


def grant(node: Any) -> None:
    outsider = node.outsider()
    outsider("begin()")
    node.grant((outsider("uuid(0)"), 64 * MIB))
    outsider.close()


def test_a_process_waits_before_cuda_while_its_kernel_moves(a_node: Any, an_entrance: Entrance) -> None:
    grant(a_node)
    an_entrance.close()
    program = a_node.program()
    program.ask("init()")
    until(says(a_node.log, "event=waits_for_move"))
    assert not says(a_node.log, "event=started")()
    an_entrance.open()
    assert program.answer() == 0
    assert program("count()") == 1


def test_an_entrance_that_is_made_again_during_a_move_lets_no_process_in(a_node: Any, an_entrance: Entrance) -> None:
    an_entrance.close()
    an_entrance.path.unlink()
    an_entrance.make(is_closed=True)
    program = a_node.program()
    program.ask("init()")
    until(says(a_node.log, "event=waits_for_move"))
    an_entrance.open()
    assert program.answer() == 0


def test_an_interrupt_ends_the_wait_for_a_moves_end(a_node: Any, an_entrance: Entrance) -> None:
    an_entrance.close()
    program = a_node.program()
    program.ask("stopped(init)")
    until(says(a_node.log, "event=waits_for_move"))
    # A signal may come between two sleeps, and end none of them.
    assert any(os.kill(program.pid, signal.SIGINT) or program.has_answer(5.0) for _ in range(3))
    assert program.answer() == "KeyboardInterrupt"
    assert an_entrance.find_inside() is None
    an_entrance.open()
    assert program("init()") == 0


def test_a_signal_that_is_no_interrupt_leaves_a_process_waiting(a_node: Any, an_entrance: Entrance) -> None:
    an_entrance.close()
    program = a_node.program()
    program("signal.signal(signal.SIGUSR1, lambda *_: None) and None")
    program.ask("init()")
    until(says(a_node.log, "event=waits_for_move"))
    for _ in range(5):
        until(program.is_asleep)
        os.kill(program.pid, signal.SIGUSR1)
    assert not says(a_node.log, "event=wait_ended")()
    an_entrance.open()
    assert program.answer() == 0


def test_a_process_is_seen_from_its_beginning_of_cuda_until_it_has_registered(
    a_node: Any, an_entrance: Entrance
) -> None:
    program = a_node.program()
    assert an_entrance.find_inside() is None
    assert program("in_threads(4, init)") == [0] * 4
    assert an_entrance.find_inside() == program.pid
    grant(a_node)
    until(lambda: an_entrance.find_inside() is None)
    an_entrance.close()
    assert program("init()") == 0, "it has begun already"


def test_a_process_that_cannot_begin_cuda_is_not_seen(a_node: Any, an_entrance: Entrance) -> None:
    program = a_node.program(ALIQUOT_SOFTGPU_FAULTS=f"cuInit={NO_DEVICE}")
    assert program("init()") == NO_DEVICE
    assert an_entrance.find_inside() is None


def test_the_child_of_a_fork_waits_by_itself(a_node: Any, an_entrance: Entrance) -> None:
    grant(a_node)
    program = a_node.program()
    assert program("init()") == 0
    until(says(a_node.log, "event=registered"))
    an_entrance.close()
    program.ask("os.waitpid(os.fork() or os._exit(init()), 0)[1]")
    until(says(a_node.log, "event=waits_for_move"))
    an_entrance.open()
    assert program.answer() >> 8 == NOT_INITIALIZED, "as the driver says in the child of a process that has begun"


def test_a_process_takes_its_lock_before_it_reads_whether_its_kernel_moves(
    a_node: Any, tmp_path: Path, an_entrance: Entrance
) -> None:
    """The agent writes first, and looks for locks then: so one of both sees the other."""
    if shutil.which("strace") is None:
        pytest.skip("no strace: install it")
    trace = tmp_path / "trace"
    code = "import ctypes; assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0"
    command = ["strace", "-o", str(trace), "-e", "trace=openat,fcntl,statx,readlink,close", sys.executable, "-c", code]
    done = subprocess.run(command, env=a_node.hooked_env, capture_output=True, text=True)
    if "PTRACE" in done.stderr:
        pytest.skip(f"no process may be traced here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    lines = trace.read_text().splitlines()
    begins = next(at for at, line in enumerate(lines) if "/entrance" in line)
    number = lines[begins].split()[-1]
    calls = [line.split("(")[0] for line in lines[begins : begins + 3]]
    assert calls == ["openat", "fcntl", "statx"]
    assert all(f"({number}, " in line for line in lines[begins + 1 : begins + 3])
    assert "F_SETLK" in lines[begins + 1]


@pytest.mark.soak(alone="waits half a minute")
def test_without_an_agent_a_process_does_not_wait_for_ever(a_node: Any, an_entrance: Entrance) -> None:
    an_entrance.close()
    program = a_node.program()
    assert program("init()") == NOT_READY
    assert an_entrance.find_inside() is None
    an_entrance.open()
    assert program("init()") == 0
