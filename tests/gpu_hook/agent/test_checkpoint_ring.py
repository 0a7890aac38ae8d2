"""Agent, hook, checkpointer and software GPU together.

An unwanted kernel leaves its devices, and comes back.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import warm_start

from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.paths import PathError, RuntimeDir, softgpu_driver, softgpu_state_path

MIB = 1 << 20
_FUTEX = {"x86_64": "202", "aarch64": "98"}
# A large block that is swapped, and a small one that only a checkpoint takes off the device.
CLIENT = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
blocks = []
for size in (64 << 20, 512 << 10):
    pointer, data = ctypes.c_uint64(), os.urandom(size)
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
    assert cuda.cuMemcpyHtoD_v2(pointer, data, ctypes.c_size_t(size)) == 0
    blocks.append((pointer, data))
print("ready", flush=True)
for line in sys.stdin:
    if line.strip() != "look":
        print("asks", flush=True)
        print(getattr(cuda, line.strip())(ctypes.byref(ctypes.c_uint64())), flush=True)
        continue
    whole = True
    for pointer, data in blocks:
        back = ctypes.create_string_buffer(len(data))
        assert cuda.cuMemcpyDtoH_v2(back, pointer, ctypes.c_size_t(len(data))) == 0
        whole = whole and back.raw == data
    print(whole, flush=True)
"""


class ARing:
    """One node whose agent checkpoints at once, one kernel, one process of it."""

    def __init__(self, node: Any, open_holder: Callable[[], Any]) -> None:
        self.node = node
        self._open_holder = open_holder
        self.start()
        self.client = subprocess.Popen(
            [sys.executable, "-c", CLIENT],
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.client.stdout is not None
        assert self.client.stdout.readline() == "ready\n"

    def start(self) -> None:
        """Start an agent, and a connection that holds the kernel."""
        command = [
            sys.executable,
            "-m",
            "jupyter_aliquot.gpu_hook.agent",
            "--driver",
            "softgpu",
            "--softgpu-memory",
            "1GiB",
        ]
        log = self.node.folder / "agent.log"
        command += ["--runtime-dir", str(self.node.folder), "--log-file", str(log), "--checkpoint-after", "0.1"]
        self.node.process = warm_start.start(warm_start.AGENT, command[1:])
        self.node.until(self.node.answers)
        self.holder = self._open_holder()
        self.grant = self.holder.reserve(hundredths=50)["grant"]

    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, **self.grant["env"]}
        environment["LD_LIBRARY_PATH"] = environment.pop("LD_LIBRARY_PATH_PREPEND")
        return environment

    def state(self) -> str:
        kernel = self.node.kernel()
        return str(kernel["residency"]["state"]) if kernel else "gone"

    def used(self) -> int:
        return int(self.node.status()["devices"][0]["used_bytes"])

    def save(self) -> None:
        """Let the kernel be idle, so that it is swapped out, then checkpointed.

        The test reports its idleness as its relay would.
        """
        assert self.holder.ask("activity", kernel_id="k", open=0, work=0, since=0.0)["ok"]
        self.node.until(lambda: self.holder.ask("swap_out", kernel_id="k")["ok"] or None, 30)
        self.node.until(lambda: self.state() == "checkpointed" or None, 30)

    def look(self) -> str:
        self.tell("look")
        return self.answer()

    def tell(self, word: str) -> None:
        assert self.client.stdin is not None
        self.client.stdin.write(f"{word}\n")
        self.client.stdin.flush()

    def answer(self) -> str:
        assert self.client.stdout is not None
        return self.client.stdout.readline().strip()

    @property
    def is_waiting(self) -> bool:
        """Return whether the first thread of the kernel sleeps on a futex."""
        number = Path(f"/proc/{self.client.pid}/syscall").read_text().split()[0]
        return number == _FUTEX[os.uname().machine]


@pytest.fixture
def a_ring(an_idle_node: Any, open_holder: Callable[[], Any]) -> Iterator[ARing]:
    try:
        softgpu_driver()
    except PathError as error:
        pytest.skip(f"no software GPU: {error}")
    ring = ARing(an_idle_node, open_holder)
    yield ring
    ring.client.kill()
    ring.client.communicate()
    remove_state(softgpu_state_path(RuntimeDir(an_idle_node.folder)))


def test_a_kernel_that_stays_swapped_is_checkpointed_and_its_next_call_brings_it_back(a_ring: ARing) -> None:
    a_ring.save()
    a_ring.node.until(lambda: a_ring.used() == 0 or None, 30)
    assert a_ring.look() == "True"
    # calls go on a moment before the agent's report
    a_ring.node.until(lambda: a_ring.state() == "resident" or None, 30)
    a_ring.save()
    assert a_ring.holder.ask("wake", kernel_id="k")["ok"]
    a_ring.node.until(lambda: a_ring.state() == "resident" or None, 30)
    assert a_ring.look() == "True"


@pytest.mark.parametrize("question", ["cuCtxGetDevice", "cuCtxGetCurrent", "cuCtxSynchronize"])
def test_a_passing_call_of_a_checkpointed_kernel_waits_until_another_wants_it(a_ring: ARing, question: str) -> None:
    """The driver holds each call of a checkpointed process, and this one asks for no restore."""
    a_ring.save()
    a_ring.tell(question)
    assert a_ring.answer() == "asks"
    a_ring.node.until(lambda: a_ring.is_waiting or None, 30)
    assert a_ring.state() == "checkpointed"
    assert a_ring.node.kernel()["residency"]["waits"] is None
    assert a_ring.holder.ask("wake", kernel_id="k")["ok"]
    assert a_ring.answer() == "0"
    assert a_ring.look() == "True"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_the_next_agent_restores_what_the_last_one_saved(a_ring: ARing, number: int) -> None:
    a_ring.save()
    a_ring.node.end(number)
    a_ring.start()
    assert a_ring.state() == "checkpointed"
    assert a_ring.look() == "True"


def test_a_kernel_that_is_wanted_before_its_process_is_back_waits_for_it(a_ring: ARing) -> None:
    """A restore of no process would be done at once, and leave the contexts where they are."""
    a_ring.save()
    a_ring.node.end(signal.SIGTERM)
    a_ring.client.send_signal(signal.SIGSTOP)
    a_ring.start()
    assert a_ring.holder.ask("wake", kernel_id="k")["ok"]
    a_ring.node.until(lambda: a_ring.node.kernel()["residency"]["waits"] is not None or None, 30)
    assert a_ring.state() == "checkpointed"
    a_ring.client.send_signal(signal.SIGCONT)
    a_ring.node.until(lambda: a_ring.state() == "resident" or None, 30)
    assert a_ring.look() == "True"


def test_a_kernel_that_ends_while_checkpointed_leaves_nothing(a_ring: ARing) -> None:
    a_ring.save()
    a_ring.client.kill()
    a_ring.client.communicate()
    a_ring.node.until(lambda: a_ring.state() != "checkpointed" or None, 30)
    a_ring.node.until(lambda: a_ring.used() == 0 or None, 30)
