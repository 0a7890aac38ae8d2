"""kill -9 of the node agent, with a swapped kernel.

The next agent finds the kernel's bytes and its lease.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from swapping_node import a_swapping_node

SOAK = int(os.environ.get("ALIQUOT_SOAK", "1"))
HERE = Path(__file__).parent


@pytest.fixture
def a_ring(an_idle_node: Any) -> Iterator[Any]:
    """A node on the software GPU, with a ``start_agent`` of its own."""
    with a_swapping_node(an_idle_node) as node:
        yield node


def ask(process: subprocess.Popen[str], word: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


@pytest.mark.soak
@pytest.mark.timeout(300 + 30 * SOAK)
def test_a_swapped_kernel_outlives_its_agent(a_ring: Any, open_holder: Callable[[], Any]) -> None:
    holder = open_holder()
    env = {**os.environ, **holder.reserve(hundredths=100)["grant"]["env"]}
    env["LD_LIBRARY_PATH"] = env.pop("LD_LIBRARY_PATH_PREPEND")
    program = subprocess.Popen(
        [sys.executable, str(HERE / "swap_program.py"), "2"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    a_ring.helpers.append(program)
    assert program.stdout is not None
    assert program.stdout.readline().strip() == "ready"
    for _ in range(2 * SOAK):
        assert ask(program, "work") == "True"
        assert ask(program, "pause") == "True"
        swapped = swap_out(a_ring, open_holder())
        a_ring.end(signal.SIGKILL)
        a_ring.start_agent()
        a_ring.until(lambda want=swapped: residency(a_ring)["swapped_bytes"] == want, 60)
        assert residency(a_ring)["lease"] == "ended"
        assert a_ring.status()["host_copies"]["adopted_bytes"] >= swapped
        assert int(ask(program, "verify")) > 0  # its calls wake it
        assert residency(a_ring)["swapped_bytes"] == 0
        assert a_ring.status()["host_copies"]["adopted_bytes"] == 0
        assert ask(program, "go on") == "True"


def swap_out(node: Any, holder: Any) -> int:
    """Swap out as soon as the kernel is idle by its last call, too.

    Return the bytes that are out.
    """
    assert holder.ask("activity", kernel_id="k", open=0, work=0, since=time.time())["ok"]
    node.until(lambda: holder.ask("swap_out", kernel_id="k").get("ok"), 60)
    node.until(lambda: residency(node)["state"] == "swapped", 60)
    swapped: int = residency(node)["swapped_bytes"]
    assert swapped > 0
    return swapped


def residency(node: Any) -> dict[str, Any]:
    kernel = node.kernel()
    assert kernel is not None
    found: dict[str, Any] = kernel["residency"]
    return found
