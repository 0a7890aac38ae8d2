"""The driver enforcer's calls on the software GPU's NVML, step by step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_aliquot.gpu_hook.agent.pages.agent_page import AgentSide
from jupyter_aliquot.gpu_hook.paths import PathError, softgpu_driver
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.gpu_hook.protocol import codec as protocol
from jupyter_aliquot.gpu_hook.protocol.codec import AgentPage

MIB = 1 << 20
NONE = 2**64 - 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sets memory limits")
def test_limits_are_set_resized_mended_and_cleared(tmp_path: Path) -> None:
    try:
        softgpu_driver()
    except PathError as error:
        pytest.skip(f"no software GPU: {error}")
    leaf = tmp_path / "leaf"
    leaf.mkdir()
    state = Path("/dev/shm") / f"aq-limits-{os.getpid()}"
    env = {**os.environ, "ALIQUOT_SOFTGPU_STATE": str(state), "ALIQUOT_SOFTGPU_MEMORY": "64MiB"}
    program = Path(__file__).with_name("run_driver_enforcer.py")
    try:
        done = subprocess.run(
            [sys.executable, str(program), str(leaf)], env=env, capture_output=True, text=True, timeout=60, check=False
        )
    finally:
        state.unlink(missing_ok=True)
    assert done.returncode == 0, done.stderr
    *steps, refusal = [json.loads(line) for line in done.stdout.splitlines()]
    set_, again, grown, shrunk, mended, cleared = steps
    assert set_ == again == [[], 8 * MIB, 8 * MIB]
    assert grown == [[], 16 * MIB, 16 * MIB]
    assert shrunk == [[], 4 * MIB, 4 * MIB]
    assert mended == [[f"gpu0: the limit was soft 0, hard {32 * MIB} instead of {4 * MIB} bytes"], 4 * MIB, 4 * MIB]
    assert cleared == [[], 0, NONE]
    assert refusal.startswith("nvmlDeviceGetMemoryLimits_v1 of GPU-")


def test_the_page_says_what_holds_the_limit() -> None:
    parts = (Part("GPU-00000000-0000-0000-0000-0000000000a0", 0, 50, MIB),)
    page = AgentSide(parts, 1, protocol.WorkloadClass.PRODUCTION)
    words = []
    for enforcer in (protocol.Enforcer.DRIVER, protocol.Enforcer.HOOK):
        page.set_enforcer(enforcer)
        word = os.pread(page.descriptor, 4, AgentPage.DEVICES + AgentPage.ENFORCER)
        words.append(int.from_bytes(word, sys.byteorder))
    page.close()
    assert words == [2, 0]
