"""A node on the software GPU that swaps, whose agent a test ends and starts again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import warm_start

from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.paths import PathError, RuntimeDir, shim_dir, softgpu_driver, softgpu_state_path

OPTIONS = ["--softgpu-memory", "512MiB", "--swap-memory", "512MiB", "--swap-segment", "64MiB", "--lease-hold", "0.1"]


@contextmanager
def a_swapping_node(node: Any, *options: str) -> Iterator[Any]:
    """Give an idle node an agent with these options too, and a ``start_agent`` that starts the next one."""
    try:
        softgpu_driver()
    except PathError as error:
        pytest.skip(f"no software GPU: {error}")
    if not (shim_dir() / "libcuda.so.1").exists():
        pytest.skip(f"no hook at {shim_dir()}")

    def start_agent() -> None:
        command = [sys.executable, "-m", "jupyter_aliquot.gpu_hook.agent", "--driver", "softgpu", *OPTIONS, *options]
        command += ["--runtime-dir", str(node.folder), "--log-file", str(node.folder / "agent.log")]
        node.process = warm_start.start(warm_start.AGENT, command[1:])
        node.until(node.answers, 60)

    start_agent()
    node.start_agent = start_agent
    yield node
    remove_state(softgpu_state_path(RuntimeDir(node.folder)))
