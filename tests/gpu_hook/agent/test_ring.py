"""Agent, hook and software GPU together: bytes and GPU time of real processes.

Both survive kill -9 of either side.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import warm_start

from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.paths import PathError, RuntimeDir, shim_dir, softgpu_driver, softgpu_state_path

MIB = 1 << 20
# Allocates by lines of input, and prints the results; "spin N" keeps the GPU busy for N
# milliseconds.
CLIENT = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, module, spin = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
image = (b".version 7.0\\n.target sm_70\\n.address_size 64\\n"
         b".visible .entry aliquot_spin(.param .u64 ns)\\n{\\n ret;\\n}\\n")
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuModuleLoadData(ctypes.byref(module), image) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(spin), module, b"aliquot_spin") == 0
for line in sys.stdin:
    word, number = line.split()
    if word == "alloc":
        print(cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(int(number))), flush=True)
    else:
        duration = ctypes.c_uint64(int(number) * 1000000)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(duration))
        assert cuda.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, None, arguments, None) == 0
        print(cuda.cuCtxSynchronize(), flush=True)
"""


class AProgram:
    def __init__(self, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, line: str) -> int:
        self.tell(line)
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())


@pytest.fixture
def a_ring(an_idle_node: Any) -> Iterator[Any]:
    """A node on the software GPU with 1 GiB, with a ``start_agent`` of its own."""
    try:
        softgpu_driver()
    except PathError as error:
        pytest.skip(f"no software GPU: {error}")
    if not (shim_dir() / "libcuda.so.1").exists():
        pytest.skip(f"no hook at {shim_dir()}")

    def start_agent() -> None:
        command = [
            sys.executable,
            "-m",
            "jupyter_aliquot.gpu_hook.agent",
            "--driver",
            "softgpu",
            "--softgpu-memory",
            "1GiB",
        ]
        log = an_idle_node.folder / "agent.log"
        command += ["--runtime-dir", str(an_idle_node.folder), "--log-file", str(log)]
        an_idle_node.process = warm_start.start(warm_start.AGENT, command[1:])
        an_idle_node.until(an_idle_node.answers)

    start_agent()
    an_idle_node.start_agent = start_agent
    yield an_idle_node
    remove_state(softgpu_state_path(RuntimeDir(an_idle_node.folder)))


@pytest.fixture
def run(a_ring: Any, open_holder: Callable[[], Any]) -> Callable[[], AProgram]:
    """Start a program of kernel ``k``, which has half the GPU."""

    def run_one() -> AProgram:
        env = {**os.environ, **open_holder().reserve()["grant"]["env"]}
        env["LD_LIBRARY_PATH"] = env.pop("LD_LIBRARY_PATH_PREPEND")
        program = AProgram(env)
        a_ring.helpers.append(program.process)
        return program

    return run_one


def test_the_quota_holds_between_processes_and_a_killed_one_gives_back(
    a_ring: Any, run: Callable[[], AProgram]
) -> None:
    first, second = run(), run()
    assert first.ask(f"alloc {300 * MIB}") == 0
    assert second.ask(f"alloc {214 * MIB}") == 2
    assert second.ask(f"alloc {212 * MIB}") == 0
    assert a_ring.device()["charged_bytes"] == 512 * MIB
    first.process.kill()
    a_ring.until(lambda: a_ring.device()["lent_bytes"] == 212 * MIB)
    assert second.ask(f"alloc {300 * MIB}") == 0


def test_gpu_time_is_booked_also_when_the_process_is_killed(a_ring: Any, run: Callable[[], AProgram]) -> None:
    program = run()
    assert program.ask("spin 300") == 0
    program.process.kill()
    a_ring.until(lambda: 0.28 <= a_ring.device()["busy_seconds"] <= 0.32)


def test_a_killed_agent_is_told_the_bytes_again(a_ring: Any, run: Callable[[], AProgram]) -> None:
    program = run()
    assert program.ask(f"alloc {300 * MIB}") == 0
    a_ring.end(signal.SIGKILL)
    a_ring.start_agent()
    a_ring.until(lambda: a_ring.device()["charged_bytes"] == 300 * MIB)
    assert program.ask(f"alloc {213 * MIB}") == 2
    assert program.ask(f"alloc {212 * MIB}") == 0
