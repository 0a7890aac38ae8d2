"""The accounting of a real kernel on a real agent, while gateways are killed, against the agent's own counters."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from typing import Any

from jupyter_aliquot.gpu_hook.client.client import query

WORK = """
import ctypes
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
def work(launches):
    for _ in range(launches):
        call(cu.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, 0, ((10_000_000,), (ctypes.c_uint64,)), 0))
        call(cu.cuCtxSynchronize())
    print("worked")
work(50)
"""


def agents_count(node: Any, kernel_id: str) -> float:
    """Return the GPU seconds that the agent has counted for the kernel."""
    kernels = query("status", runtime_dir=node.runtime.path)["kernels"]
    [device] = next(one["devices"] for one in kernels if one["kernel_id"] == kernel_id)
    return float(device["compute"]["own_seconds"])


def counted(gateway: Any, what: str = "working") -> float:
    """Return the GPU seconds of the accounting."""
    total: dict[str, Any] = gateway.call("GET", "/aliquot/api/v1/usage?by=size&from=2020-01-01&to=2100-01-01")["total"]
    return 3600.0 * float(total[what])


def test_killed_gateways_count_what_the_agent_counts_once(
    a_node: Any, open_tab: Any, eventually: Callable[..., Any]
) -> None:
    gateway = a_node.serve().wait_until_up()
    kernel_id = gateway.start_kernel("python3.gpu-0.25")

    def agrees(one: Any, at_least: float) -> bool:
        count = agents_count(a_node, kernel_id)
        return count >= at_least and abs(counted(one) - count) < 0.02

    tab = open_tab(gateway, kernel_id)
    assert "worked" in tab.run(WORK)
    # The agent's count of 0.5 s of work, and of 0.2 s after each restart, is a little less than that.
    eventually(partial(agrees, gateway, 0.25))
    for _ in range(2):
        held, worked = counted(gateway, "on_gpu"), agents_count(a_node, kernel_id)
        gateway.stop(signal.SIGKILL)
        gateway = a_node.succeed(gateway)
        tab = tab.reconnect(gateway)
        assert "worked" in tab.run("work(20)")
        eventually(partial(agrees, gateway, worked + 0.1))
        assert counted(gateway, "on_gpu") > held
