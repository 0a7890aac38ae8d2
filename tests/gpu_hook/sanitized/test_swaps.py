"""A process that works is swapped out and in, with sanitizers in hook and driver."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import MoveOutcome, ResidencyMode

CYCLES = Path(__file__).resolve().parents[1] / "hook" / "cycles.c"
MIB = 1 << 20
TIMES = 4 * int(os.environ.get("ALIQUOT_SOAK", "1"))


@pytest.mark.soak
@pytest.mark.timeout(300 + 15 * TIMES)
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_swaps_under_work_are_clean(
    sanitizer: str,
    build_with: Callable[[str], Any],
    compile_with: Callable[..., Path],
    make_machine: Callable[..., Any],
    swap_orders: ModuleType,
) -> None:
    build = build_with(sanitizer)
    program = compile_with(sanitizer, [CYCLES], str(build.softgpu / "libcuda.so.1"), "-lpthread")
    node = make_machine(build, 96 * MIB, devices=2, memory="256MiB")
    node.agent.residency_mode, node.agent.chunk, node.agent.ring = ResidencyMode.VMM, 4 * MIB, 16 * MIB
    env = {**node.hooked_env, "BUILTINS": node.hooked_env["ALIQUOT_BUILTINS"]}
    pipes: dict[str, Any] = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    with subprocess.Popen([str(program), "4", "1"], env=env, text=True, **pipes) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.communicate()[1]
            connection = node.agent.process(process.pid)
            with contextlib.closing(swap_orders.Orders(node.agent, connection, [256 * MIB])) as orders:
                for _ in range(TIMES):
                    moved = orders.swap_out()
                    assert moved.outcome is MoveOutcome.DONE, moved
                    orders.await_wake()
                    assert orders.swap_in().outcome is MoveOutcome.DONE
                _, complaints = process.communicate(timeout=100)
        finally:
            process.kill()
    assert (process.returncode, complaints) == (0, "")
