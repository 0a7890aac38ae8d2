"""Kernels that together own four times the device keep their bytes.

Hook, agent and software GPU are real. test_leases decides which kernel waits; here the moves are
carried out.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import warm_start

from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.client.client import AgentClient
from jupyter_aliquot.gpu_hook.paths import PathError, RuntimeDir, shim_dir, softgpu_driver, softgpu_state_path

MIB = 1 << 20
CARD = 128 * MIB
OWN = 102 * MIB  # five of them own four cards
OUT_OF_MEMORY = 2
# Lines of a cell: "alloc N", "fill V", "count V" (its bytes that are V), "spin MS", "use DEVICE",
# "stop 0" (stops its own process).
CLIENT = """
import ctypes, os, signal, sys
cuda = ctypes.CDLL("libcuda.so.1")
u64, size = ctypes.c_uint64, ctypes.c_size_t
module, spin = ctypes.c_void_p(), ctypes.c_void_p()
image = (b".version 7.0\\n.target sm_70\\n.address_size 64\\n"
         b".visible .entry aliquot_spin(.param .u64 ns)\\n{\\n ret;\\n}\\n")
def check(code):
    assert code == 0, code
def use(device):
    context = ctypes.c_void_p()
    return cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) or cuda.cuCtxSetCurrent(context)
check(cuda.cuInit(0))
check(use(0))
check(cuda.cuModuleLoadData(ctypes.byref(module), image))
check(cuda.cuModuleGetFunction(ctypes.byref(spin), module, b"aliquot_spin"))
held = []
def count(value):
    found = 0
    for pointer, amount in held:
        copy = (ctypes.c_uint8 * amount)()
        check(cuda.cuMemcpyDtoH_v2(copy, pointer, size(amount)))
        found += bytes(copy).count(value)
    return found
def fill(value):
    for pointer, amount in held:
        check(cuda.cuMemsetD8_v2(pointer, ctypes.c_ubyte(value), size(amount)))
    return cuda.cuCtxSynchronize()
def alloc(amount):
    pointer = u64()
    code = cuda.cuMemAlloc_v2(ctypes.byref(pointer), size(amount))
    if code == 0:
        held.append((pointer, amount))
    return code
def work(milliseconds):
    duration = u64(milliseconds * 1000000)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(duration))
    check(cuda.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, None, arguments, None))
    return cuda.cuCtxSynchronize()
def stop(_):
    os.kill(os.getpid(), signal.SIGSTOP)
    return 0
print(0, flush=True)
for line in sys.stdin:
    word, number = line.split()
    cell = {"alloc": alloc, "fill": fill, "count": count, "spin": work, "use": use, "stop": stop}[word]
    print(cell(int(number)), flush=True)
"""


class AKernel:
    """One process, its reservation, and its relay's reports about its cells."""

    def __init__(self, node: Any, holder: Any, name: str, hundredths: int = 80) -> None:
        self.node, self.holder, self.name = node, holder, name
        env = {**os.environ, **holder.reserve(name, hundredths)["grant"]["env"]}
        env["LD_LIBRARY_PATH"] = env.pop("LD_LIBRARY_PATH_PREPEND")
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        node.helpers.append(self.process)
        self.tell_activity(0)
        self.answer()

    def cell(self, *lines: str) -> list[int]:
        """Run a cell, as far as the agent can tell, and wait for it."""
        self.begin(*lines)
        return self.end(len(lines))

    def begin(self, *lines: str) -> None:
        self.tell_activity(1)
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines))
        self.process.stdin.flush()

    def end(self, count: int = 1) -> list[int]:
        answers = [self.answer() for _ in range(count)]
        self.tell_activity(0)
        return answers

    def answer(self) -> int:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.node.log()
        return int(line)

    def tell_activity(self, work: int) -> None:
        said = self.holder.ask("activity", kernel_id=self.name, open=work, work=work, since=time.time())
        assert said["ok"], said

    @property
    def residency(self) -> dict[str, Any]:
        found: dict[str, Any] = self.node.kernel(self.name)["residency"]
        return found


@pytest.fixture
def a_card(an_idle_node: Any) -> Iterator[Callable[..., Any]]:
    """Start an agent over a software GPU of 256 MiB, of which four times as much may be reserved."""
    try:
        softgpu_driver()
    except PathError as error:
        pytest.skip(f"no software GPU: {error}")
    if not (shim_dir() / "libcuda.so.1").exists():
        pytest.skip(f"no hook at {shim_dir()}")

    def start(*more: str) -> Any:
        command = [
            sys.executable,
            "-m",
            "jupyter_aliquot.gpu_hook.agent",
            "--driver",
            "softgpu",
            "--softgpu-memory",
            str(CARD),
        ]
        command += ["--runtime-dir", str(an_idle_node.folder), "--log-file", str(an_idle_node.folder / "agent.log")]
        command += ["--overcommit", "4", "--swap-memory", "2GiB", "--swap-segment", "64MiB", "--swap-ring", "16MiB"]
        command += ["--lease-hold", "0.2", "--lease-quantum", "1", *more]
        an_idle_node.process = warm_start.start(warm_start.AGENT, command[1:])
        an_idle_node.until(an_idle_node.answers)
        return an_idle_node

    yield start
    remove_state(softgpu_state_path(RuntimeDir(an_idle_node.folder)))


@pytest.fixture
def kernels(a_card: Callable[..., Any], open_holder: Callable[[], Any]) -> Callable[..., list[AKernel]]:
    def start(*names: str, hundredths: int = 80, devices: int = 1, options: Sequence[str] = ()) -> list[AKernel]:
        node = a_card("--softgpu-devices", str(devices), *options)
        return [AKernel(node, open_holder(), name, hundredths) for name in names]

    return start


def test_kernels_that_own_four_cards_run_in_turn_and_keep_their_bytes(kernels: Callable[..., list[AKernel]]) -> None:
    many = kernels("a", "b", "c", "d", "e")
    for number, kernel in enumerate(many, 1):
        assert kernel.cell(f"alloc {OWN}", f"fill {number}") == [0, 0]
    for number, kernel in enumerate(many, 1):
        assert kernel.cell(f"count {number}") == [OWN], kernel.name
    assert sum(kernel.residency["swaps_out"] for kernel in many) >= len(many)


def test_two_that_are_busy_at_once_take_turns(kernels: Callable[..., list[AKernel]]) -> None:
    first, second = kernels("a", "b")
    assert first.cell(f"alloc {OWN}", "fill 1") == [0, 0]
    assert second.cell(f"alloc {OWN}", "fill 2") == [0, 0]
    cell = [line for _ in range(12) for line in ("spin 200", "fill 7")]
    first.begin(*cell, "count 7")
    second.begin(*cell, "count 7")
    assert first.end(len(cell) + 1)[-1] == second.end(len(cell) + 1)[-1] == OWN
    assert min(first.residency["swaps_out"], second.residency["swaps_out"]) >= 1


def test_growth_inside_a_cell_makes_an_idle_kernel_leave(kernels: Callable[..., list[AKernel]]) -> None:
    first, second = kernels("a", "b")
    assert first.cell(f"alloc {OWN}", "fill 1") == [0, 0]
    assert second.cell(f"alloc {20 * MIB}", "fill 2") == [0, 0]  # spare credit makes no kernel leave
    assert first.residency["state"] == "resident"
    assert second.cell(f"alloc {80 * MIB}", "fill 3", "count 3") == [0, 0, 100 * MIB]
    assert first.residency["state"] == "swapped"
    assert first.cell("count 1") == [OWN]


def test_a_kernel_swaps_out_when_asked_and_wakes_when_asked(kernels: Callable[..., list[AKernel]]) -> None:
    (kernel,) = kernels("a")
    assert kernel.cell(f"alloc {OWN}", "fill 9") == [0, 0]
    refused = kernel.holder.ask("swap_out", kernel_id="a")
    assert refused["code"] == "conflict"
    assert "busy" in refused["message"]
    kernel.node.until(lambda: kernel.holder.ask("swap_out", kernel_id="a")["ok"])
    kernel.node.until(lambda: kernel.residency["state"] == "swapped")
    assert kernel.residency["swapped_bytes"] == OWN
    assert kernel.holder.ask("wake", kernel_id="a")["ok"]
    kernel.node.until(lambda: kernel.residency["state"] == "resident")
    assert kernel.cell("count 9") == [OWN]


def test_who_waits_is_told_why_and_for_how_long(
    kernels: Callable[..., list[AKernel]], open_holder: Callable[[], Any]
) -> None:
    first, second = kernels("a", "b")
    watcher = open_holder()
    assert watcher.ask("watch", kernel_id="b")["ok"]
    assert first.cell(f"alloc {OWN}", "fill 1") == [0, 0]
    assert second.cell(f"alloc {OWN}", "fill 2") == [0, 0]
    first.begin(*["spin 200"] * 16)
    first.node.until(lambda: first.residency["state"] == "resident")
    second.begin("count 2")
    while (event := watcher.wait_for_event())["reason"] != "turn":
        assert event["event"] == "lease"
    assert event["kernel_id"] == "b"
    assert event["waits_seconds"] >= 0
    assert event["waiting_calls"] == 1
    assert second.end() == [OWN]
    first.end(16)


def stop_with_the_device(stopped: AKernel) -> None:
    """Let the kernel take most of the device in a cell, and stop itself in the same cell."""
    stopped.begin(f"alloc {OWN}", "fill 1", "stop 0")
    assert (stopped.answer(), stopped.answer()) == (0, 0), stopped.node.log()
    status = os.waitid(os.P_PID, stopped.process.pid, os.WSTOPPED | os.WNOWAIT)
    assert status is not None
    assert status.si_status == signal.SIGSTOP


def test_who_waits_for_a_stopped_process_is_told_so_is_refused_and_gets_the_memory_once_it_continues(
    kernels: Callable[..., list[AKernel]], open_holder: Callable[[], Any]
) -> None:
    stopped, neighbour = kernels("a", "b", options=("--lease-answer", "1"))
    watcher = open_holder()
    assert watcher.ask("watch", kernel_id="b")["ok"]
    stop_with_the_device(stopped)
    assert neighbour.cell(f"alloc {20 * MIB}", "fill 2") == [0, 0]
    neighbour.begin(f"alloc {80 * MIB}")  # both are within their guarantee
    while watcher.wait_for_event()["reason"] != "stuck":
        assert stopped.residency["swaps_out"] == 0
    assert stopped.residency["silent_pids"] == [stopped.process.pid]
    assert neighbour.end() == [OUT_OF_MEMORY]
    stopped.process.send_signal(signal.SIGCONT)
    assert stopped.end() == [0]
    neighbour.node.until(lambda: not stopped.residency["silent_pids"])  # it has obeyed
    assert neighbour.cell(f"alloc {80 * MIB}", "fill 3", "count 3") == [0, 0, 100 * MIB]
    assert stopped.cell("count 1") == [OWN]


def test_who_waits_for_a_stopped_process_gets_the_memory_once_it_is_killed(
    kernels: Callable[..., list[AKernel]],
) -> None:
    stopped, neighbour = kernels("a", "b")
    stop_with_the_device(stopped)
    assert neighbour.cell(f"alloc {20 * MIB}", "fill 2") == [0, 0]
    neighbour.begin(f"alloc {80 * MIB}")
    neighbour.node.until(lambda: neighbour.residency["waits"])
    stopped.process.kill()
    assert neighbour.end() == [0]


def test_two_kernels_of_two_and_a_half_devices_both_finish(kernels: Callable[..., list[AKernel]]) -> None:
    """Each holds what the other needs: a whole device where the other has half."""
    many = kernels("a", "b", hundredths=250, devices=3)
    devices = [[device["index"] for device in kernel.node.kernel(kernel.name)["devices"]] for kernel in many]
    assert devices[0] != devices[1]
    grab = [f"use {device}\nalloc {(90, 90, 50)[device] * MIB}" for device in range(3)]
    cell = [line for lines in grab for line in lines.splitlines()]
    for number, kernel in enumerate(many, 1):
        kernel.begin(*cell, f"fill {number}", *["spin 100"] * 10, f"count {number}")
    for kernel in many:
        assert kernel.end(len(cell) + 12)[-1] == 230 * MIB


def test_a_client_sees_a_kernel_leave_and_come_back(kernels: Callable[..., list[AKernel]]) -> None:
    (kernel,) = kernels("a")
    assert kernel.cell(f"alloc {OWN}", "fill 9") == [0, 0]
    kernel.node.until(lambda: kernel.residency["idle_seconds"])

    async def watch() -> list[str]:
        async with await AgentClient.connect(kernel.node.folder) as client:
            seen = []
            await client.swap_out("a")
            async for event in client.watch("a"):
                if not seen or seen[-1] != event.state:
                    seen.append(event.state)
                if event.state == "swapped":
                    await client.hint("a")
                if event.state == "resident" and "swapped" in seen:
                    return seen
            return seen

    seen = asyncio.run(asyncio.wait_for(watch(), 60))
    assert [state for state in seen if state in ("swapped", "resident")][-2:] == ["swapped", "resident"]


def test_swapped_kernels_are_found_again_by_the_next_agent(
    kernels: Callable[..., list[AKernel]], a_card: Callable[..., Any], open_holder: Callable[[], Any]
) -> None:
    many = kernels("a", "b")
    for number, kernel in enumerate(many, 1):
        assert kernel.cell(f"alloc {OWN}", f"fill {number}") == [0, 0]
    node = many[0].node
    node.end(9)
    a_card()
    for number, kernel in enumerate(many, 1):
        kernel.holder = open_holder()
        assert kernel.cell(f"count {number}") == [OWN]


def test_what_a_killed_process_had_is_lent_when_the_driver_has_it_and_not_before(
    kernels: Callable[..., list[AKernel]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that has not taken the bytes back yet would refuse them.

    The call would run out of memory within its quota.
    """
    monkeypatch.setenv("ALIQUOT_SOFTGPU_TEARDOWN_MS", "800")
    first, second, third = kernels("a", "b", "c", hundredths=60)
    assert third.cell(f"alloc {20 * MIB}", "fill 3") == [0, 0]
    assert first.cell(f"alloc {40 * MIB}", "fill 1") == [0, 0]
    first.process.kill()
    start = time.monotonic()
    assert second.cell(f"alloc {40 * MIB}") == [0]
    assert time.monotonic() - start > 0.3
    assert third.residency["swaps_out"] == 0  # room that comes by itself evicts no kernel
    first.node.until(lambda: "event=freed kernel=a" in first.node.log())
