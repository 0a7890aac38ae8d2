"""The agent runs before kernels, where its account permits it, and runs without that right, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.agent.base.precedence import NICENESS

PROGRAM = """
import os
from jupyter_aliquot.gpu_hook.agent.base.precedence import take_precedence
if {uid}:
    os.setgroups([])
    os.setgid({uid})
    os.setuid({uid})
take_precedence()
print(os.getpriority(os.PRIO_PROCESS, 0))
"""


def niceness(uid: int = 0) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(uid=uid)], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise a priority")
def test_an_agent_of_root_runs_before_kernels(a_folder: Path, an_idle_node: Any) -> None:
    assert niceness() == NICENESS
    assert niceness(65534) == os.getpriority(os.PRIO_PROCESS, 0), "an account without the right goes on as it is"
    command = [sys.executable, "-m", "jupyter_aliquot.gpu_hook.agent", "--driver", "softgpu"]
    command += ["--softgpu-memory", "256MiB", "--runtime-dir", str(a_folder), "--log-file", os.devnull]
    with subprocess.Popen(command) as agent:
        try:
            an_idle_node.until((a_folder / "agent.sock").exists)
            assert os.getpriority(os.PRIO_PROCESS, agent.pid) == NICENESS
        finally:
            agent.terminate()
