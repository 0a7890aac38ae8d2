"""Threads that use everything at once while their launches are measured and held back, under sanitizers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import AgentPage, Gate, HookPage, Pace

HERE = Path(__file__).parent
MIB = 1 << 20
ROUNDS = 200  # the page has the launches whose timing events were read before the end


@pytest.mark.parametrize(("sanitizer", "queue"), [("address,undefined", 0), ("thread", 0), ("thread", 3)])
def test_threads_whose_launches_wait_are_clean(
    sanitizer: str,
    queue: int,
    build_with: Callable[[str], Any],
    compile_with: Callable[..., Path],
    make_machine: Callable[..., Any],
) -> None:
    build = build_with(sanitizer)
    libraries = [str(build.softgpu / name) for name in ("libcuda.so.1", "libnvidia-ml.so.1")]
    program = compile_with(sanitizer, [HERE / "threads.c"], *libraries, "-lpthread")
    node = make_machine(build, 12 * MIB)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    env = {**node.hooked_env, "ALIQUOT_SOFTGPU_QUEUE": str(queue)}
    node.agent.gate, node.agent.pace = Gate.PACED, Pace.TIME  # from its first launch, which waits for what is allowed
    with subprocess.Popen([str(program), str(ROUNDS)], env=env, text=True, **pipes) as process:
        kernel = node.agent.process(process.pid)
        node.agent.write(kernel, 0, AgentPage.ALLOWED, 1 << 62)
        node.agent.write(kernel, 0, AgentPage.ALLOWED_WITH_BUSY_PEERS, 1 << 62)
        for offset, value in ((AgentPage.IN_FLIGHT_CAP, 3), (AgentPage.BATCH, 50)):
            node.agent.write_half(0, offset, value)
        _, complaints = process.communicate(timeout=250)
    assert process.returncode == 0, complaints
    assert complaints == ""
    assert kernel.word(0, HookPage.LAUNCHES) > 0
    assert kernel.word(0, HookPage.OCCUPIED) > 0
