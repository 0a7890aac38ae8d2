"""Notebooks of a whole device each start beside each other, by default settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import warm_start

from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, softgpu_state_path

COUNT, DEVICES = 8, 2
NOTICE = "[Aliquot: "  # that a cell waits for memory
FILL = """
import ctypes, hashlib
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    assert code == 0, (name, code)
device, context, free, total = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
size, address = ctypes.c_size_t(total.value * 3 // 4 >> 21 << 21), ctypes.c_uint64()
call("cuMemAlloc_v2", ctypes.byref(address), size)
content = (hashlib.sha256(b"{number}").digest() * (size.value // 32))[:size.value]
call("cuMemcpyHtoD_v2", address, content, size)
print(size.value)
"""
VERIFY = """
found = ctypes.create_string_buffer(size.value)
call("cuMemcpyDtoH_v2", found, address, size)
print("unchanged" if found.raw == content else "changed")
"""


@pytest.fixture
def an_agent(a_folder: Path, an_environment: dict[str, str]) -> Iterator[object]:
    """An agent with two small software GPUs, and all else by default."""
    words = ["-m", "jupyter_aliquot.gpu_hook.agent", "--driver", "softgpu"]
    words += ["--softgpu-devices", str(DEVICES), "--softgpu-memory", "64MiB"]
    with (a_folder / "agent.log").open("w") as log:
        process = warm_start.start(warm_start.AGENT, words, env=an_environment, stdout=log, stderr=log)
    yield process
    process.terminate()
    process.wait(timeout=90)
    remove_state(softgpu_state_path(RuntimeDir(a_folder / "run")))


def words(outcome: Any) -> str:
    assert outcome.status == "ok", outcome
    return "".join(line for line in outcome.text.splitlines() if not line.startswith(NOTICE))


@pytest.mark.timeout(300)
def test_eight_notebooks_of_a_whole_device_share_two_by_default(a_server: Any, eventually: Any) -> None:
    kernels = [a_server.start("python3.gpu-1") for _ in range(COUNT)]
    eventually(lambda: a_server.status()["queue"]["length"] == 0)  # no kernel has ended: none waits for another
    status = a_server.status()
    assert [device["overcommit"] for device in status["devices"]] == [4.0] * DEVICES
    parts = [kernel.on_node()["devices"] for kernel in kernels]
    assert Counter(part["uuid"] for [part] in parts) == {d["uuid"]: COUNT // DEVICES for d in status["devices"]}
    used = sum(int(words(kernel.run(FILL.replace("{number}", str(n))))) for n, kernel in enumerate(kernels))
    assert used > 2 * sum(device["memory_bytes"] for device in status["devices"])
    assert [words(kernel.run(VERIFY)) for kernel in kernels] == ["unchanged"] * COUNT
    for kernel in kernels:
        kernel.end()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("server_options", [["--Aliquot.size_residency={'1-1g': 'managed'}"]])
def test_a_notebook_on_unified_memory_works_with_more_than_its_device(a_server: Any) -> None:
    kernel = a_server.start("python3.gpu-1-1g")
    size = words(kernel.run(FILL.replace("{number}", "1").replace("total.value * 3 // 4", "160 << 20 ")))
    [device, _] = a_server.status()["devices"]
    assert int(size) == 160 << 20 > 2 * device["memory_bytes"]
    assert words(kernel.run(VERIFY)) == "unchanged"
    [part] = kernel.on_node()["devices"]
    assert (part["memory_limit_bytes"], part["guaranteed_memory_bytes"]) == (1 << 30, device["memory_bytes"])
    with pytest.raises(a_server.refusal, match=r"Requested 0.5 GPU \(1.0 GiB\), but this node has"):
        a_server.call("POST", "/api/kernels", {"name": "python3.gpu-0.5-1g"})
    kernel.end()


@pytest.mark.timeout(300)
def test_a_ninth_waits_for_what_four_times_the_devices_cannot_hold(a_server: Any, eventually: Any) -> None:
    kernels = [a_server.start("python3.gpu-1") for _ in range(COUNT)]
    last = a_server.call("POST", "/api/kernels", {"name": "python3.gpu-0.5"})

    def waits() -> list[str]:
        return [
            k["wait_reason"]["code"] for k in a_server.status()["kernels"] if k["id"] == last["id"] and k["wait_reason"]
        ]

    eventually(lambda: waits() == ["gpu"] and a_server.status()["queue"]["length"] == 1)
    for kernel in kernels:
        kernel.end()
