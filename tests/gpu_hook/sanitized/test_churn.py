"""Contexts, streams, graphs and threads that come and go while launches wait, under sanitizers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.protocol.codec import HookPage

HERE = Path(__file__).parent
ROUNDS, DEVICES = 4 * int(os.environ.get("ALIQUOT_SOAK", "1")), 2


@pytest.mark.soak(alone="a minute under a sanitizer")
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_what_ends_while_launches_wait_is_clean(
    sanitizer: str,
    build_with: Callable[[str], Any],
    compile_with: Callable[..., Path],
    make_machine: Callable[..., Any],
    tight_pace: Any,
) -> None:
    build = build_with(sanitizer)
    program = compile_with(sanitizer, [HERE / "churn.c"], str(build.softgpu / "libcuda.so.1"), "-lpthread")
    node = make_machine(build, 1 << 40, DEVICES)
    env = {**node.hooked_env, "ASAN_OPTIONS": "detect_leaks=0"}  # the software GPU keeps what is left of a context
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with (
        tight_pace.TightPace(node.agent) as pace,
        subprocess.Popen([str(program), str(ROUNDS)], env=env, text=True, **pipes) as process,
    ):
        try:
            kernel = node.agent.process(process.pid)
            assert process.stdout is not None
            launched = process.stdout.readline()
            assert launched, process.communicate()[1]
            for device in range(DEVICES):
                at = HookPage.DEVICES + device * HookPage.DEVICE_BYTES + HookPage.IN_FLIGHT
                node.agent.wait_for(lambda at=at: kernel.hook_page[at : at + 4] == bytes(4))
            _, complaints = process.communicate("\n", timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, complaints
    assert complaints == ""
    assert int(launched) > 100 * ROUNDS
    assert pace.waits
