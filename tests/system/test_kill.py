"""kill -9 at random moments of processes that allocate and free as fast as they can: nothing leaks, and soon."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from aliquot.gpu_hook.client import query

CHURN = """
import ctypes, random
cuda = ctypes.CDLL("libcuda.so.1")
device, context = ctypes.c_int(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0 and cuda.cuCtxSetCurrent(context) == 0
held = []
print("on", flush=True)
while True:
    pointer = ctypes.c_uint64()
    bytes_wanted = random.choice([512, 100_000, 3 << 20, 64 << 20])
    if cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(bytes_wanted)) == 0:
        held.append(pointer)
    if len(held) > 20:
        cuda.cuMemFree_v2(held.pop(random.randrange(len(held))))
"""
SOAK = int(os.environ.get("ALIQUOT_SOAK", "1"))
KILLS = 10 if SOAK == 1 else 50 * SOAK
RETURN_SECONDS = 1.0


@pytest.mark.soak
@pytest.mark.timeout(120 * SOAK)
def test_a_killed_process_returns_every_byte_within_a_second(an_agent: object, a_folder: Path, eventually) -> None:
    run, dice = a_folder / "run", random.Random(11)
    grant = query("reserve", runtime_dir=run, kernel_id="k", owner="me", hundredths=50, memory_limit=None,
                  workload_class="production", label="churn")["grant"]  # fmt: skip
    keeper = subprocess.Popen(["sleep", "3600"])
    stat = Path(f"/proc/{keeper.pid}/stat").read_text().rsplit(")", 1)[1].split()
    query("bind", runtime_dir=run, kernel_id="k", pid=keeper.pid, start_time_ticks=int(stat[19]))
    variables = dict(grant["env"])
    variables["LD_LIBRARY_PATH"] = variables.pop("LD_LIBRARY_PATH_PREPEND")
    slowest = 0.0
    try:
        for _ in range(KILLS):
            command = [sys.executable, "-S", "-c", CHURN]
            churner = subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE)
            assert churner.stdout is not None
            assert churner.stdout.readline() == b"on\n"
            time.sleep(dice.random() * 0.05)  # the moment of the kill is what varies, nothing waits for it
            os.kill(churner.pid, signal.SIGKILL)
            killed = time.monotonic()
            churner.communicate()
            while (status := query("status", runtime_dir=run)) and (
                status["devices"][0]["charged_bytes"] or status["kernels"][0]["devices"][0]["lent_bytes"]
            ):
                assert time.monotonic() - killed < RETURN_SECONDS
            slowest = max(slowest, time.monotonic() - killed)
    finally:
        keeper.kill()
        keeper.wait()
    device = query("status", runtime_dir=run)["devices"][0]
    assert device["charged_bytes"] == 0
    eventually(lambda: query("status", runtime_dir=run)["devices"][0]["used_bytes"] == 0, 5)
    print(f"{KILLS} kills, the slowest return took {slowest * 1e3:.0f} ms")
