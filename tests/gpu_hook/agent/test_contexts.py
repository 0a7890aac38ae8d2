"""The memory of contexts counts.

The agent measures it at its start, subtracts it from each kernel's memory, and programs see that.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import warm_start

from jupyter_aliquot.gateway.status.usage import kernel_usage
from jupyter_aliquot.gateway.terminal.tables import warnings
from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.agent.ledger.contexts import ContextCosts
from jupyter_aliquot.gpu_hook.client.client import read_status
from jupyter_aliquot.gpu_hook.paths import PathError, RuntimeDir, softgpu_driver, softgpu_state_path
from jupyter_aliquot.gpu_hook.placement.placement import Part
from jupyter_aliquot.provisioner.resources import Bytes

MIB, GIB = 1 << 20, 1 << 30
# Makes a context, reports free and total memory, then obeys: takes so many MiB and reports the
# driver's answer.
CLIENT = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
print(free.value >> 20, total.value >> 20, flush=True)
for line in sys.stdin:
    print(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(line) << 20)), flush=True)
"""
OUT_OF_MEMORY = 2


class ANodeWithContexts:
    """A node of software GPUs with their own contexts, and programs of its kernels."""

    def __init__(self, node: Any, open_holder: Callable[[], Any]) -> None:
        self.node, self._open_holder = node, open_holder
        self._environ = {name: value for name, value in os.environ.items() if name != "ALIQUOT_SOFTGPU_CONTEXT"}

    def start(self, memory: str, *options: str) -> None:
        command = [
            sys.executable,
            "-m",
            "jupyter_aliquot.gpu_hook.agent",
            "--driver",
            "softgpu",
            "--softgpu-memory",
            memory,
        ]
        command += ["--runtime-dir", str(self.node.folder), "--log-file", str(self.node.folder / "agent.log"), *options]
        self.node.process = warm_start.start(warm_start.AGENT, command[1:], env=self._environ)
        self.node.until(self.node.answers)
        self.holder = self._open_holder()

    def grant(self, kernel_id: str, hundredths: int = 50, **fields: Any) -> dict[str, str]:
        env = dict(self.holder.reserve(kernel_id, hundredths, **fields)["grant"]["env"])
        env["LD_LIBRARY_PATH"] = env.pop("LD_LIBRARY_PATH_PREPEND")
        return env

    def program(self, grant: dict[str, str]) -> AProgram:
        return AProgram(self.process(grant))

    def process(self, grant: dict[str, str]) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        command, env = [sys.executable, "-c", CLIENT], {**self._environ, **grant}
        process = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.node.helpers.append(process)
        return process


class AProgram:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.free, self.total = map(int, self._line().split())

    def take(self, amount: int) -> int:
        """Allocate so many MiB; return the CUresult."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{amount}\n")
        self.process.stdin.flush()
        return int(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@pytest.fixture
def a_machine(an_idle_node: Any, open_holder: Callable[[], Any]) -> Iterator[ANodeWithContexts]:
    try:
        softgpu_driver()
    except PathError as error:
        pytest.skip(f"no software GPU: {error}")
    yield ANodeWithContexts(an_idle_node, open_holder)
    remove_state(softgpu_state_path(RuntimeDir(an_idle_node.folder)))


@pytest.mark.parametrize(("memory", "want"), [("16GiB", 300 * MIB), ("8GiB", 300 * MIB), ("2GiB", 74 * MIB)])
def test_the_agent_measures_a_context_and_the_software_gpus_costs_as_a_cards(
    a_machine: ANodeWithContexts, memory: str, want: int
) -> None:
    a_machine.start(memory)
    assert [device["context_bytes"] for device in a_machine.node.status()["devices"]] == [want]
    assert "event=contexts_measured" in a_machine.node.log()


def test_two_halves_that_take_all_they_are_shown_fit_together(a_machine: ANodeWithContexts) -> None:
    """If their contexts did not count, the two would displace each other for ever."""
    a_machine.start("2GiB")
    one, other = (a_machine.program(a_machine.grant(name)) for name in ("one", "other"))
    for program in (one, other):
        assert (program.free, program.total) == (1024 - 74, 1024)
        assert program.take(program.free) == 0
    for kernel_id in ("one", "other"):
        kernel = a_machine.node.kernel(kernel_id)
        assert (kernel["residency"]["swaps_out"], kernel["residency"]["state"]) == (0, "resident")
    (device,) = a_machine.node.status()["devices"]
    assert device["charged_bytes"] == 2 * (1024 - 74) * MIB


def test_each_process_of_a_kernel_counts(a_machine: ANodeWithContexts) -> None:
    a_machine.start("2GiB")
    grant = a_machine.grant("k")
    first, second = a_machine.program(grant), a_machine.program(grant)
    assert second.free == 1024 - 2 * 74
    assert first.take(1024 - 74) == OUT_OF_MEMORY
    second.process.communicate("")
    a_machine.node.until(lambda: first.take(1024 - 74) == 0)


def test_a_swapped_out_kernel_keeps_its_context_on_the_gpu(a_machine: ANodeWithContexts) -> None:
    """Else the status would call its context the memory of others."""
    a_machine.start("2GiB")
    node = a_machine.node
    assert a_machine.program(a_machine.grant("k")).take(100) == 0
    node.until(lambda: node.device()["context_bytes"] == 74 * MIB)
    node.until(lambda: a_machine.holder.ask("swap_out", kernel_id="k")["ok"])
    node.until(lambda: node.device()["swapped_bytes"] == 100 * MIB)
    assert a_machine.program(a_machine.grant("other")).take(50) == 0
    node.until(lambda: node.device("other")["context_bytes"] == 74 * MIB)  # by a later audit
    assert node.device()["swapped_bytes"] == 100 * MIB
    assert node.device()["context_bytes"] == 74 * MIB


@pytest.mark.parametrize(
    ("taken", "want"), [(700, 700 + 74 - 512), (450, 450 + 74 - 512), (400, 0)], ids=["much", "by its context", "not"]
)
def test_what_a_kernel_has_over_a_lowered_limit_contains_its_contexts(
    a_machine: ANodeWithContexts, taken: int, want: int
) -> None:
    a_machine.start("2GiB")
    node = a_machine.node
    program = a_machine.program(a_machine.grant("k"))
    assert program.take(taken) == 0
    assert node.device()["over_bytes"] == 0
    assert a_machine.holder.ask("resize", kernel_id="k", hundredths=25, memory_limit=None)["ok"]
    node.until(lambda: node.device()["over_bytes"] == want * MIB)
    assert program.take(100) == OUT_OF_MEMORY
    (kernel,) = read_status(node.status()).kernels
    assert kernel_usage(kernel)["over_limit_bytes"] == want * MIB
    said = [line for line in warnings(read_status(node.status())) if "over its memory limit" in line]
    assert said == (
        [
            f"kernel k: {Bytes(want * MIB)} over its memory limit, contexts included; its allocations fail until "
            "it uses less"
        ]
        if want
        else []
    )


def test_kernels_of_which_one_fills_the_gpu_take_turns_with_their_contexts(a_machine: ANodeWithContexts) -> None:
    """The first leaves for the context of the second, and comes back when that context has left."""
    a_machine.start("2GiB", "--lease-hold", "0.1")
    node = a_machine.node

    def rest(kernel_id: str) -> None:
        assert a_machine.holder.ask("activity", kernel_id=kernel_id, open=0, work=0, since=0.0)["ok"]

    full = a_machine.program(a_machine.grant("full", 100))
    assert full.take(full.free - 2) == 0
    rest("full")
    small = a_machine.program(a_machine.grant("small", 25))
    assert node.device("full")["swapped_bytes"] == (full.free - 2) * MIB
    assert small.take(small.free - 4) == 0
    rest("small")
    assert full.take(2) == 0
    assert node.kernel("small")["residency"]["state"] == "checkpointed"
    rest("full")
    assert a_machine.holder.ask("activity", kernel_id="small", open=1, work=1, since=time.time())["ok"]
    assert small.take(2) == 0
    assert "event=no_room" not in node.log()


def test_an_allocation_waits_for_room_that_contexts_took_a_moment_ago(a_machine: ANodeWithContexts) -> None:
    """The looks at the device do not show these contexts yet."""
    a_machine.start("2GiB", "--lease-hold", "0.1")
    idle = a_machine.program(a_machine.grant("idle", 100))
    assert idle.take(900) == 0
    assert a_machine.holder.ask("activity", kernel_id="idle", open=0, work=0, since=0.0)["ok"]
    for name in ("one", "two"):
        a_machine.program(a_machine.grant(name, 25))
    assert a_machine.program(a_machine.grant("large", 75)).take(1000) == 0
    assert a_machine.node.device("idle")["swapped_bytes"] == 900 * MIB


def test_a_context_beside_a_program_of_no_kernel_is_out_of_memory(a_machine: ANodeWithContexts) -> None:
    a_machine.start("2GiB", "--lease-hold", "0.1")
    grant = a_machine.grant("coming", 25)
    outsider = a_machine.program({"ALIQUOT_HOOK": "off", **grant})
    assert outsider.take(outsider.free) == 0
    process = a_machine.process(grant)
    assert process.communicate("")[1].splitlines()[-1].startswith("AssertionError")


def test_a_size_that_a_context_alone_fills_is_refused_in_words(a_machine: ANodeWithContexts) -> None:
    a_machine.start("2GiB")
    refused = a_machine.holder.reserve("k", 3)
    assert refused["code"] == "never_fits"
    assert refused["message"] == (
        "Requested 0.03 GPU with 60 MiB of gpu0, but a process's context alone takes 74 MiB there. Choose a larger size"
    )
    assert a_machine.holder.reserve("k", 4)["ok"]
    assert a_machine.holder.ask("resize", kernel_id="k", hundredths=3, memory_limit=None)["code"] == "never_fits"


def test_what_the_driver_shows_of_processes_corrects_the_measure_when_three_looks_agree() -> None:
    costs, key = ContextCosts(most_bytes=1000), ("k", "GPU-a")
    costs.note_measured({"GPU-a": 300})
    assert costs.counted("k", "GPU-a", 2) == 600
    for seen, want in ((900, 600), (5000, 600), (800, 800), (700, 700), (400, 600)):
        costs.note_seen({key: seen})
        assert costs.counted("k", "GPU-a", 2) == want
    for _ in range(3):
        costs.note_seen({key: 10_000})
    assert costs.counted("k", "GPU-a", 2) == 2000, "at most so much a process"
    assert costs.counted("k", "GPU-a", 0) == 0
    costs.note_seen({})
    assert costs.counted("k", "GPU-a", 1) == 300
    assert costs.why_too_small([Part("GPU-b", 0, 1, 4 << 20)]) == ""


def test_what_was_seen_of_other_processes_of_a_kernel_is_forgotten() -> None:
    costs, key = ContextCosts(), ("k", "GPU-a")
    for _ in range(3):
        costs.note_seen({key: 900}, {key: frozenset({1, 2})})
    assert costs.counted("k", "GPU-a", 2) == 900
    for want in (0, 0, 400):
        costs.note_seen({key: 400}, {key: frozenset({1})})
        assert costs.counted("k", "GPU-a", 1) == want
