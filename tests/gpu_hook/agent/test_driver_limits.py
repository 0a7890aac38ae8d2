"""The driver's own limits, set by the agent on the software GPU: they hold for a process that no hook sees."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_aliquot.gpu_hook.agent.base.processes import start_time_ticks
from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.agent.enforcers.cgroups import find_hierarchy
from jupyter_aliquot.gpu_hook.paths import PathError, RuntimeDir, softgpu_driver, softgpu_state_path

MIB = 1 << 20
QUOTA = 512 * MIB
# A kernel: waits for a line, runs the program in it, and lives until its stdin ends.
KERNEL = "import subprocess, sys; sys.stdin.readline(); subprocess.run(sys.argv[1:]); sys.stdin.read()"
# Without a hook: takes 32 MiB at a time until a call fails, and reports the amount and the error.
GREEDY = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
context, pointer, taken = ctypes.c_void_p(), ctypes.c_uint64(), 0
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
while not (error := cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(32 << 20))):
    taken += 32 << 20
print(taken, error, flush=True)
"""
# Reads, or sets, the limits of a cgroup: LIBRARY FOLDER [SOFT HARD].
LIMITS = """
import ctypes, os, sys
u64 = ctypes.c_ulonglong
class Limits(ctypes.Structure): _fields_ = [("path", ctypes.c_char_p), ("soft", u64), ("hard", u64), ("used", u64)]
nvml, device = ctypes.CDLL(sys.argv[1]), ctypes.c_void_p()
limits = Limits(os.fsencode(sys.argv[2]), *map(int, sys.argv[3:]))
assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
call = nvml.nvmlDeviceSetMemoryLimits_v1 if sys.argv[3:] else nvml.nvmlDeviceGetMemoryLimits_v1
assert call(device, ctypes.byref(limits)) == 0
print(limits.soft, limits.hard)
"""


@pytest.fixture
def a_limited_node(an_idle_node: Any) -> Iterator[Any]:
    """Start an agent on the software GPU with 1 GiB, whose enforcer is the driver."""
    hierarchy = find_hierarchy(may_be_version_1=True)
    reason = "no cgroup hierarchy is mounted" if hierarchy is None else hierarchy.unavailable()
    if os.geteuid() != 0 or reason:
        pytest.skip(f"the driver's limits cannot be set here: {reason or 'that needs root'}")
    try:
        softgpu_driver()
    except PathError as error:
        pytest.skip(f"no software GPU: {error}")
    command = [
        sys.executable,
        "-m",
        "jupyter_aliquot.gpu_hook.agent",
        "--driver",
        "softgpu",
        "--softgpu-memory",
        "1GiB",
    ]
    command += ["--enforcer", "driver", "--runtime-dir", str(an_idle_node.folder)]
    an_idle_node.process = subprocess.Popen([*command, "--log-file", str(an_idle_node.folder / "agent.log")])
    an_idle_node.until(an_idle_node.answers)
    yield an_idle_node
    remove_state(softgpu_state_path(RuntimeDir(an_idle_node.folder)))


class AKernel:
    """A bound process of kernel ``k`` with half of the device.

    At first it shares a cgroup with the test.
    """

    def __init__(self, node: Any, holder: Any) -> None:
        self.holder = holder
        grant = holder.reserve()["grant"]
        self.env = grant["env"]
        state = f"ALIQUOT_SOFTGPU_STATE={self.env['ALIQUOT_SOFTGPU_STATE']}"
        self._bare = ["env", "-i", state, "ALIQUOT_SOFTGPU_CONTEXT=0", sys.executable, "-c"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", KERNEL, *self._bare, GREEDY, self.env["ALIQUOT_REAL_CUDA"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        node.helpers.append(self.process)
        ticks = start_time_ticks(self.process.pid)
        assert holder.ask("bind", kernel_id="k", pid=self.process.pid, start_time_ticks=ticks)["ok"]
        node.until(lambda: node.kernel()["enforcement"] == "holds")
        hierarchy = find_hierarchy(may_be_version_1=True)
        assert hierarchy is not None
        leaf = hierarchy.folder_of(self.process.pid)
        assert leaf is not None
        self.leaf: Path = leaf

    def go(self) -> list[int]:
        """Let it run its greedy child; return the child's memory, and the error that stopped it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return [int(word) for word in self.process.stdout.readline().split()]

    def limits(self, *wanted: int) -> list[int]:
        """Return the limits in force on its cgroup, or set others, as another program may."""
        command = [*self._bare, LIMITS, self.env["ALIQUOT_REAL_NVML"], str(self.leaf), *map(str, wanted)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return [int(word) for word in done.stdout.split()]


@pytest.fixture
def a_kernel(a_limited_node: Any, open_holder: Callable[[], Any]) -> AKernel:
    return AKernel(a_limited_node, open_holder())


def test_a_process_without_the_hook_gets_out_of_memory_at_the_quota(a_limited_node: Any, a_kernel: AKernel) -> None:
    assert a_kernel.leaf.name == "aliquot-k"
    assert a_kernel.limits() == [QUOTA, QUOTA]
    want_out_of_memory = 2
    assert a_kernel.go() == [QUOTA, want_out_of_memory]
    assert a_limited_node.status()["enforcer"] == "driver"


def test_a_limit_that_somebody_changed_is_mended_and_told(a_limited_node: Any, a_kernel: AKernel) -> None:
    assert a_limited_node.kernel()["limit_drifts"] == 0
    a_kernel.limits(0, 1024 * MIB)
    a_limited_node.until(lambda: a_limited_node.kernel()["limit_drifts"] == 1)
    assert a_kernel.limits() == [QUOTA, QUOTA]
    assert "event=limit_drifted kernel=k enforcer=driver" in a_limited_node.log()
    assert a_limited_node.kernel()["enforcement"] == "holds"


def test_the_limit_and_the_cgroup_go_with_the_kernel(a_limited_node: Any, a_kernel: AKernel) -> None:
    assert a_kernel.leaf.is_dir()
    a_kernel.process.communicate("")
    a_kernel.holder.ask("release", kernel_id="k")
    a_limited_node.until(lambda: not a_kernel.leaf.exists())
    assert "event=limit_not_removed" not in a_limited_node.log()


def test_a_kernel_without_a_process_is_pending(a_limited_node: Any, open_holder: Callable[[], Any]) -> None:
    holder = open_holder()
    assert holder.reserve()["ok"]
    assert a_limited_node.kernel()["enforcement"] == "pending"
