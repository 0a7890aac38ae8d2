"""A program that exits while the hook's threads use the driver keeps its own exit code."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shared_words import load

from jupyter_aliquot.gpu_hook import paths
from jupyter_aliquot.gpu_hook.protocol.codec import HookPage, MoveOutcome, Pace, Residency, ResidencyMode

MIB = 1 << 20
HELD = 96 * MIB
OUT_OF_MEMORY = 2
SOURCE = Path(__file__).parent / "clients" / "late.c"
SECONDS = 30  # a process that is held longer is held for ever


def exit_code(program: Any) -> int:
    """End the program as it ends by itself: Python's end, then C's."""
    program.close()
    return int(program._process.returncode)


@pytest.fixture(scope="session")
def late(tmp_path_factory: pytest.TempPathFactory, include_dir: Path) -> str:
    """Compile a program that asks for memory after CUDA's end, and return its path."""
    program = tmp_path_factory.mktemp("late") / "late"
    driver = paths.softgpu_driver().cuda.parent
    command = ["cc", "-w", f"-I{include_dir}", str(SOURCE), "-o", str(program), f"-L{driver}", "-l:libcuda.so.1"]
    subprocess.run(command, check=True)
    return str(program)


@pytest.mark.parametrize("copied", range(0, 64 * MIB, 8 * MIB))
def test_a_process_may_exit_while_its_memory_leaves(copied: int, make_kernel: Callable[..., Any]) -> None:
    kernel = make_kernel(held=HELD, link_gbps=1)
    kernel.orders.add_segment(HELD)
    kernel.orders.begin_swap_out()
    kernel.await_residency(Residency.SWAPPING_OUT, Residency.SWAPPED)
    page = kernel.process.hook_page
    kernel.agent.wait_for(lambda: load(page, HookPage.COPIED_BYTES) >= copied, 30)
    assert exit_code(kernel.program) == 0


def test_a_process_may_exit_while_its_device_is_waited_for(make_kernel: Callable[..., Any]) -> None:
    """The wait is inside the driver; the exit waits for it."""
    kernel = make_kernel(held=4 * MIB)
    assert kernel.program("spin(500, waits=False)") == 0
    kernel.orders.begin_swap_out()
    kernel.await_residency(Residency.SWAPPING_OUT)
    assert exit_code(kernel.program) == 0


def test_a_process_may_exit_while_its_work_is_measured(a_paced_kernel: Any) -> None:
    kernel = a_paced_kernel
    kernel.order(Pace.MEASURE)
    assert kernel.program("spins('kernel', 100, 5000)") == 0
    assert exit_code(kernel.program) == 0


def test_what_runs_after_the_hook_s_end_waits_for_no_memory_that_nobody_brings_back(
    late: str, make_node: Callable[..., Any], make_orders: Callable[..., Any]
) -> None:
    """The destructor of a library that was loaded before CUDA began calls after the hook's threads have ended."""
    node = make_node(devices=1, memory="256MiB", strict=0)  # this driver answers to the very end
    outsider = node.outsider()
    outsider("init()")
    node.agent.residency_mode, node.agent.host_quota = ResidencyMode.VMM, 1 << 40
    agent = node.grant((outsider("uuid()"), 128 * MIB))
    program = subprocess.Popen(
        [late], env=node.hooked_env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert program.stdout.readline() == "held 0\n"
    with make_orders(agent, agent.process(program.pid), [8 * MIB]) as orders:
        assert orders.swap_out().outcome is MoveOutcome.DONE
        said, _ = program.communicate("\n", timeout=SECONDS)
    assert (program.returncode, said) == (0, f"late {OUT_OF_MEMORY}\n")
