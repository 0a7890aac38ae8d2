"""A new notebook is placed away from a kernel that was measured to use all of its GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import warm_start

from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, softgpu_state_path

WORK = """
import ctypes, time
from cuda.bindings import driver as cu
def call(answer):
    error, *values = answer
    assert error == cu.CUresult.CUDA_SUCCESS, error
    return values[0] if values else None
call(cu.cuInit(0))
call(cu.cuCtxSetCurrent(call(cu.cuDevicePrimaryCtxRetain(call(cu.cuDeviceGet(0))))))
PTX = b'''.version 7.0
.target sm_70
.address_size 64
.visible .entry aliquot_spin(.param .u64 nanoseconds)
{
 ret;
}
'''
spin = call(cu.cuModuleGetFunction(call(cu.cuModuleLoadData(PTX)), b"aliquot_spin"))
def work(launches, milliseconds, pause):
    for _ in range(launches):
        call(cu.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, 0, ((milliseconds * 1_000_000,), (ctypes.c_uint64,)), 0))
        if pause:
            call(cu.cuCtxSynchronize())
            time.sleep(pause)
    call(cu.cuCtxSynchronize())
"""
HEAVY = WORK + "work(60, 100, 0)"  # six seconds without a pause
LIGHT = WORK + "work(20, 5, 0.3)"


@pytest.fixture
def an_agent(a_folder: Path, an_environment: dict[str, str]) -> Iterator[object]:
    """An agent with two software GPUs, which are not overcommitted."""
    words = ["-m", "jupyter_aliquot.gpu_hook.agent", "--driver", "softgpu", "--overcommit", "1"]
    words += ["--softgpu-devices", "2", "--softgpu-memory", "1GiB"]
    with (a_folder / "agent.log").open("w") as log:
        process = warm_start.start(warm_start.AGENT, words, env=an_environment, stdout=log, stderr=log)
    yield process
    process.terminate()
    process.wait(timeout=90)
    remove_state(softgpu_state_path(RuntimeDir(a_folder / "run")))


def work(kernel: Any, code: str) -> str:
    """Return ``ok``, or the error of a cell."""
    outcome = kernel.run(code)
    return outcome.error or str(outcome.status)


def device_of(kernel: Any) -> dict[str, Any]:
    [device] = (kernel.on_node() or {}).get("devices") or [{}]
    return dict(device)


def place_of(kernel: Any) -> str:
    """Return the name of its GPU; empty while it has none."""
    device = device_of(kernel)
    return f"gpu{device['index']}" if device else ""


@pytest.mark.timeout(300)
def test_a_notebook_is_placed_away_from_a_heavy_neighbor(a_server: Any, eventually: Callable[..., Any]) -> None:
    heavy, light = (a_server.start("python3.gpu-0.6") for _ in range(2))
    places = [eventually(lambda one=kernel: place_of(one)) for kernel in (heavy, light)]
    assert places == ["gpu0", "gpu1"], "each has a GPU of its own"
    for kernel, code in ((heavy, HEAVY), (light, LIGHT)):
        assert work(kernel, code) == "ok"
    loads = [eventually(lambda one=kernel: device_of(one)["load"]) for kernel in (heavy, light)]
    assert [load["alone"] for load in loads] == [True, True]
    assert loads[0]["gpu"] > 0.5 > 0.3 > loads[1]["gpu"]

    newcomer = a_server.start("python3.gpu-0.25")
    place = eventually(lambda: place_of(newcomer))
    assert place == "gpu1", "the first GPU has as much room, and the heavy kernel"

    assert work(newcomer, LIGHT) == "ok"
    speeds = eventually(lambda: (found := _speeds(a_server))[1] and found)
    assert speeds[0] is None, "one kernel alone"
    assert speeds[1]["low"] <= speeds[1]["mean"] <= speeds[1]["high"]
    for kernel in (heavy, light, newcomer):
        kernel.end()


def _speeds(server: Any) -> list[Any]:
    return [device["predicted_speed"] for device in server.status()["devices"]]
