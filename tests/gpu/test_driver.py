"""The hook on the machine's driver, without any framework: limit, sharing, kill -9, tools' views."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from typing import Any

import pytest

MIB = 1 << 20
OUT_OF_MEMORY = 2
NVML_TOTAL = """
import json, pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
print(json.dumps(pynvml.nvmlDeviceGetMemoryInfo(device).total))
"""
# A pool takes whole blocks from the device: the limit counts its reservation, so the last block may
# not fit.
ALLOCATE = {"cuMemAlloc": ("alloc", "free", 2 * MIB), "cuMemAllocAsync": ("alloc_async", "free_async", 64 * MIB)}
ALLOCATE["cuMemCreate"] = ("create", "release", 2 * MIB)


def largest(program: Any, allocate: str, free: str, most: int) -> int:
    """Return the largest allocation, found by bisection, to 2 MiB."""
    low, high = 0, most // (2 * MIB) + 1
    while high - low > 1:
        middle = (low + high) // 2
        code, pointer = program(f"{allocate}({middle * 2 * MIB})")
        assert code in (0, OUT_OF_MEMORY)
        if code == 0:
            assert program(f"{free}({pointer})") == 0
        low, high = (middle, high) if code == 0 else (low, middle)
    return low * 2 * MIB


def test_the_self_check_holds(a_kernel: Any) -> None:
    from jupyter_aliquot.gpu_hook import paths

    start = paths.native_dir() / "bin" / "aliquot-kernel-start"
    subprocess.run([str(start), "--", "true"], env=a_kernel.env, check=True, timeout=60)
    assert a_kernel.status()["interception"] == "holds"


def test_a_program_sees_its_quota(a_kernel: Any) -> None:
    program = a_kernel.program()
    assert program("begin()") == 0
    code, free, total = program("info()")
    assert (code, total) == (0, a_kernel.quota)
    assert 0 < free <= total
    assert program("total()") == [0, a_kernel.quota]


@pytest.mark.parametrize("family", ALLOCATE)
def test_the_largest_allocation_is_the_quota_less_the_context(family: str, a_kernel: Any) -> None:
    allocate, free, slack = ALLOCATE[family]
    program = a_kernel.program()
    assert program("begin()") == 0
    found = largest(program, allocate, free, 2 * a_kernel.quota)
    usable = a_kernel.usable()
    print(f"{family}: largest {found / MIB:.0f} MiB of {usable / MIB:.0f} MiB, quota {a_kernel.quota / MIB:.0f} MiB")
    assert usable - slack <= found <= a_kernel.quota


def test_a_refused_program_goes_on_after_freeing(a_kernel: Any) -> None:
    program, part = a_kernel.program(), a_kernel.quota * 6 // 10
    assert program("begin()") == 0
    code, first = program(f"alloc({part})")
    assert code == 0
    assert program(f"alloc({part})")[0] == OUT_OF_MEMORY
    assert program(f"free({first})") == 0
    assert program(f"alloc({part})")[0] == 0


def test_processes_share_one_quota(a_kernel: Any) -> None:
    part = a_kernel.quota * 6 // 10
    first, second = a_kernel.program(), a_kernel.program()
    assert [first("begin()"), second("begin()")] == [0, 0]
    code, pointer = first(f"alloc({part})")
    assert code == 0
    assert second(f"alloc({part})")[0] == OUT_OF_MEMORY
    assert second("info()")[1] <= a_kernel.quota - part
    assert first(f"free({pointer})") == 0
    assert second(f"alloc({part})")[0] == 0


def test_kill_minus_nine_gives_the_memory_back(a_kernel: Any) -> None:
    part = a_kernel.quota * 6 // 10
    first, second = a_kernel.program(), a_kernel.program()
    assert [first("begin()"), second("begin()")] == [0, 0]
    assert first(f"alloc({part})")[0] == 0
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait()
    deadline = time.monotonic() + 10  # the driver takes the dead process's device memory back in its own time
    while (code := second(f"alloc({part})")[0]) == OUT_OF_MEMORY and time.monotonic() < deadline:
        pass
    assert code == 0
    assert a_kernel.status()["devices"][0]["charged_bytes"] == part // (2 * MIB) * 2 * MIB + 2 * MIB * bool(
        part % (2 * MIB)
    )


def test_a_context_takes_what_is_told(a_kernel: Any) -> None:
    """The agent does not charge it, but samples it: it shows it apart."""
    outside = a_kernel.program(is_hooked=False)
    assert outside("begin()") == 0
    before = outside("info()")[1]
    inside = a_kernel.program()
    assert inside("begin()") == 0
    taken = before - outside("info()")[1]
    deadline = time.monotonic() + 5
    while (told := a_kernel.status()["devices"][0]["context_bytes"]) == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    print(f"context footprint: {taken / MIB:.0f} MiB by cuMemGetInfo, {told / MIB:.0f} MiB by the agent")
    assert a_kernel.status()["devices"][0]["charged_bytes"] == 0


def test_nvml_tells_the_quota(a_kernel: Any) -> None:
    assert a_kernel.run(NVML_TOTAL) == a_kernel.quota
    assert a_kernel.run(NVML_TOTAL, is_hooked=False) > a_kernel.quota


def test_nvidia_smi_tells_the_quota(a_kernel: Any) -> None:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("nvidia-smi is not installed")
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, env=a_kernel.env, capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout.split()[0]) == a_kernel.quota // MIB
