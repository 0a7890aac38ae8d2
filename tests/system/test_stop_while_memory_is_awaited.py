"""*Stop* while a cell waits for GPU memory: REST, agent, hook and kernel together.

The GPU has room for one of two.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import warm_start

from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.client.client import AgentClientError, query
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, softgpu_state_path

MOST_SECONDS = 1.0
DEADLINE_SECONDS = 90.0
GPU = """
import ctypes, pathlib, signal, threading, time
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert (cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or cuda.cuCtxSetCurrent(context)) == 0
def take():
    return cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(600 << 20))
def use():
    return cuda.cuCtxSetCurrent(context) or cuda.cuMemsetD8_v2(pointer, 7, ctypes.c_size_t(1 << 20))
def until(path):
    while not pathlib.Path(path).exists():
        use()
        time.sleep(0.02)
def read():
    byte = ctypes.c_uint8()
    assert cuda.cuMemcpyDtoH_v2(ctypes.byref(byte), pointer, ctypes.c_size_t(1)) == 0
    return byte.value
"""
HEARD = "codes = []\nprint('begins', flush=True)\ncodes.append({call})\ntime.sleep(60)"
# The signal comes, but not to the thread that waits: another one takes it, and Python notices it
# after the call.
NOT_HEARD = (
    "codes = []\nbefore = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\nprint('begins', flush=True)\n"
    "try:\n    codes.append({call})\n    time.sleep(60)\n"
    "finally:\n    signal.pthread_sigmask(signal.SIG_SETMASK, before)"
)


@pytest.fixture
def an_agent(a_folder: Path, an_environment: dict[str, str], eventually: Callable[..., Any]) -> Iterator[object]:
    """A node agent that overcommits its one GPU of 1 GiB by a factor of two.

    A kernel loses it only when it is idle.
    """
    options = ["--overcommit", "2", "--lease-hold", "0", "--lease-quantum", "3600"]
    words = ["-m", "jupyter_aliquot.gpu_hook.agent", "--driver", "softgpu", "--softgpu-memory", "1GiB", *options]
    with (a_folder / "agent.log").open("w") as log:
        process = warm_start.start(warm_start.AGENT, words, env=an_environment, stdout=log, stderr=log)

    def answers() -> bool:
        try:
            return bool(query("status", runtime_dir=a_folder / "run"))
        except AgentClientError:
            return False

    eventually(answers)
    yield process
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=DEADLINE_SECONDS)
    remove_state(softgpu_state_path(RuntimeDir(a_folder / "run")))


class Node:
    """The agent's own report of each kernel."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    def residency(self, kernel: Any) -> dict[str, Any]:
        kernels = query("status", runtime_dir=self._run_dir)["kernels"]
        return next(dict(each["residency"]) for each in kernels if each["kernel_id"] == kernel.id)

    def is_idle(self, kernel: Any, seconds: float = 0) -> bool:
        found = self.residency(kernel)["idle_seconds"]
        return found is not None and found >= seconds


@pytest.fixture
def node(an_agent: object, a_folder: Path) -> Node:
    return Node(a_folder / "run")


def keep_busy(kernel: Any, over: Path) -> None:
    """Use the GPU in a thread, so that the kernel keeps it until *over* exists."""
    kernel.run(f"work = threading.Thread(target=until, args=({str(over)!r},)); work.start()")


def last_words(kernel: Any, code: str, count: int) -> list[str]:
    """Return the output of *code*, after the line that reports a wait."""
    return list(kernel.run(code).text.split()[-count:])


def stop_while_it_waits(kernel: Any, code: str, waits: Callable[[], object], eventually: Callable[..., Any]) -> None:
    """Run *code*, interrupt it by REST once it waits, and check that it stops.

    KeyboardInterrupt must come within a second.
    """
    cell = kernel.send(code)
    kernel.wait_for_text("begins")
    eventually(waits)
    start = time.monotonic()
    kernel.server.call("POST", f"/api/kernels/{kernel.id}/interrupt")
    outcome = kernel.outcome(cell)
    seconds = time.monotonic() - start
    print(f"KeyboardInterrupt {seconds:.3f} s after the request")
    assert "KeyboardInterrupt" in outcome.error
    assert seconds <= MOST_SECONDS
    eventually(lambda: not waits())


@pytest.mark.parametrize("code", [HEARD, NOT_HEARD], ids=["the thread is interrupted", "the agent tells it"])
def test_stop_ends_a_wait_for_a_kernels_own_memory_and_copies_nothing_back(
    code: str, node: Node, a_server: Any, a_folder: Path, eventually: Callable[..., Any]
) -> None:
    first, second, over = a_server.start("python3.gpu-1"), a_server.start("python3.gpu-1"), a_folder / "over"
    assert last_words(first, GPU + "print(take(), use())", 2) == ["0", "0"]
    eventually(lambda: node.is_idle(first))
    assert last_words(second, GPU + "print(take(), use())", 2) == ["0", "0"]
    keep_busy(second, over)
    eventually(lambda: node.residency(first)["state"] == "swapped")
    stop_while_it_waits(first, code.format(call="use()"), lambda: node.residency(first)["waits"], eventually)
    over.touch()
    eventually(lambda: node.is_idle(second, 2.0))
    found = node.residency(first)
    assert (found["state"], found["swaps_in"]) == ("swapped", 0), "nothing is copied back"
    assert last_words(first, "print(read())", 1) == ["7"]
    assert node.residency(first)["swaps_in"] == 1
    for kernel in (first, second):
        kernel.end()


def told_that_more_is_awaited(kernel: Any) -> object:
    """Return REST's report of the wait of a kernel that is on its GPU."""
    report = kernel.on_node()
    assert report["state"] == "on_gpu"
    return report["residency"]["queued"]


@pytest.mark.parametrize("code", [HEARD, NOT_HEARD], ids=["the thread is interrupted", "the agent tells it"])
def test_stop_ends_an_allocation_that_waits_for_room_and_withdraws_its_wish(
    code: str, node: Node, a_server: Any, a_folder: Path, eventually: Callable[..., Any]
) -> None:
    first, second, over = a_server.start("python3.gpu-1"), a_server.start("python3.gpu-1"), a_folder / "over"
    assert last_words(second, GPU + "print(take(), use())", 2) == ["0", "0"]
    keep_busy(second, over)
    first.run(GPU)
    want_bytes = first.used_bytes()
    stop_while_it_waits(first, code.format(call="take()"), lambda: told_that_more_is_awaited(first), eventually)
    assert first.used_bytes() == want_bytes
    over.touch()
    eventually(lambda: node.is_idle(second, 2.0))
    assert node.residency(second)["swaps_out"] == 0, "what is not wanted any more moves no other kernel"
    assert last_words(first, "print(take(), use())", 2) == ["0", "0"]
    for kernel in (first, second):
        kernel.end()


def test_an_interrupt_is_told_until_the_cell_that_it_is_for_has_ended(
    a_server: Any, a_folder: Path, eventually: Callable[..., Any]
) -> None:
    kernel, over = a_server.start("python3.gpu-0.5"), a_folder / "over"
    kernel.run("import pathlib, signal, time\nbefore = signal.signal(signal.SIGINT, signal.SIG_IGN)")
    cell = kernel.send(f"print('begins', flush=True)\nwhile not pathlib.Path({str(over)!r}).exists(): time.sleep(0.02)")
    kernel.wait_for_text("begins")
    assert kernel.on_node()["interrupted_at"] is None
    a_server.call("POST", f"/api/kernels/{kernel.id}/interrupt")
    eventually(lambda: kernel.on_node()["interrupted_at"])
    over.touch()
    kernel.outcome(cell)
    eventually(lambda: kernel.on_node()["interrupted_at"] is None)
    kernel.end()
