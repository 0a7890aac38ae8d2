"""The hook is a guest: it neither ends nor holds a program.

The program may do anything with its threads, signals and limits.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MIB = 1 << 20
SOURCE = Path(__file__).parent / "clients" / "guest.c"
SECONDS = 30  # far more than any step takes: a program that is held longer is held for ever


@pytest.fixture
def build(a_null_node: Any, a_folder: Path) -> Callable[..., str]:
    """Compile the program, linked with the driver."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed: install gcc"

    def compile_program(*flags: str) -> str:
        driver = Path(a_null_node.hooked_env["ALIQUOT_REAL_CUDA"]).parent
        command = [compiler, "-w", "-O1", "-pthread", *flags, str(SOURCE), "-o", str(a_folder / "guest")]
        subprocess.run([*command, f"-L{driver}", "-l:libcuda.so.1"], check=True)
        return str(a_folder / "guest")

    return compile_program


@pytest.fixture
def run(a_null_node: Any, build: Callable[..., str]) -> Callable[..., str]:
    """Run one of the program's routes in a kernel of 64 MiB; return its output."""

    def run_route(route: str, *flags: str, **env: str) -> str:
        a_null_node.grant(("10" * 16, 64 * MIB))
        command = [build(*flags), route]
        whole_env = {**a_null_node.hooked_env, **env}
        done = subprocess.run(command, env=whole_env, capture_output=True, text=True, timeout=SECONDS)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run_route


def test_a_thread_that_is_cancelled_in_a_call_holds_nobody_else(run: Callable[..., str]) -> None:
    assert run("cancelled") == "0\n"


def test_a_program_with_large_static_tls_gets_its_memory(run: Callable[..., str]) -> None:
    """Static TLS lies on each thread's stack, so on that of the hook's thread, too."""
    assert run("", "-DSTATIC_TLS=(4<<20)") == "0\n"


def test_a_log_beyond_the_limit_of_a_files_size_ends_nobody(run: Callable[..., str]) -> None:
    assert run("limited") == "0\n"


def test_a_program_without_descriptors_gets_memory_when_it_has_some(run: Callable[..., str]) -> None:
    assert run("closed") == "0 2 0\n"


def test_a_thread_with_the_smallest_stack_may_call_the_driver(run: Callable[..., str]) -> None:
    assert run("small") == "0\n"


@pytest.mark.parametrize("place", ["fifo", "folder", "nowhere/log", "/dev/full"])
def test_a_log_that_cannot_be_written_disturbs_nobody(place: str, run: Callable[..., str], a_folder: Path) -> None:
    os.mkfifo(a_folder / "fifo")
    (a_folder / "folder").mkdir()
    assert run("", ALIQUOT_HOOK_LOG=str(a_folder / place)) == "0\n"


def test_a_call_that_waits_for_the_gate_shows_whence_it_came(a_null_node: Any, build: Callable[..., str]) -> None:
    """Debuggers, profilers and faulthandler walk through the generated code."""
    agent = a_null_node.grant(("10" * 16, 64 * MIB))
    with subprocess.Popen(
        [build("-rdynamic"), "watched"], env=a_null_node.hooked_env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        try:
            assert program.stdin is not None
            assert program.stdout is not None
            assert program.stdout.readline() == b"ready\n"
            agent.process(program.pid)
            agent.set_gate(1)
            program.stdin.write(b"\n")
            program.stdin.flush()
            agent.wait_for(lambda: _is_held(program.pid))
            program.send_signal(signal.SIGUSR1)
            assert program.stdout.readline() == b"whole\n"
            agent.set_gate(0)
            assert program.stdout.readline() == b"0\n"
        finally:
            program.kill()


def _is_held(pid: int) -> bool:
    return Path(f"/proc/{pid}/syscall").read_text().split()[0] in {"202", "98"}  # futex
