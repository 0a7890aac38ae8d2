"""All parts, on each engine: a gateway, an agent, relays, and kernels of the image catalogue."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.containers.gateway_node import USER, ContainerNode, parts
else:
    from gateway_node import USER, ContainerNode, parts

# A notebook's use of CUDA, without a framework: a context, its amount of memory, an allocation.
GPU = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == cuda.cuCtxSetCurrent(context) == 0
def allocate(mib):
    pointer = ctypes.c_uint64()
    return cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mib << 20))
def memory():
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return total.value >> 20
"""


def test_a_kernel_of_the_catalogue_has_a_gpu_of_its_size_and_survives_gateway_and_agent(
    a_container_node: ContainerNode, open_tab: Callable[..., Any]
) -> None:
    gateway = a_container_node.gateway()
    kernel_id = gateway.start_kernel("pytorch.gpu-0.25")
    tab = open_tab(gateway, kernel_id)
    assert tab.run(f"{GPU}\nprint(memory(), allocate(900), allocate(200))") == "1024 0 2", "a quarter; out of memory"
    assert tab.run("import os; print(os.getuid(), os.environ['HOME'], os.getcwd())").split()[0] == str(USER)
    box = a_container_node.box(kernel_id)
    labels = box.attrs["Config"]["Labels"]
    assert labels["aliquot.dev/kernel-id"] == kernel_id
    assert labels["aliquot.dev/kernelspec"] == "pytorch.gpu-0.25"
    assert labels["aliquot.dev/gateway"]
    assert box.attrs["HostConfig"]["Memory"] > 0
    assert [k["interception"] for k in parts.query("status", runtime_dir=a_container_node.runtime.path)["kernels"]] == [
        "holds"
    ]

    cell = tab.execute("import time\nfor n in range(40):\n    print('line', n, flush=True)\n    time.sleep(0.05)")
    tab.wait_for_text("line 3\n")
    a_container_node.kill_agent()
    gateway.stop(signal.SIGKILL)
    a_container_node.start()
    after = a_container_node.next(gateway)
    assert after.kernel_ids() == {kernel_id}
    tab.reconnect(after)
    assert tab.text(cell) == "".join(f"line {n}\n" for n in range(40))
    assert tab.run("print(allocate(200), allocate(100))") == "2 0", "as before, by the new agent"
    assert a_container_node.box(kernel_id).id == box.id
    assert a_container_node.held() == {kernel_id: 25}

    after.call("DELETE", f"/api/kernels/{kernel_id}")
    parts.wait_until(
        lambda: (a_container_node.boxes(), a_container_node.held(), a_container_node.relays()) == ([], {}, {})
    )
    parts.wait_until(lambda: after.ended(kernel_id) is not None)
    assert after.ended(kernel_id)["code"] == "user"


def test_a_kernel_is_interrupted_and_restarted_and_its_lack_of_memory_is_said(
    a_container_node: ContainerNode, open_tab: Callable[..., Any]
) -> None:
    gateway = a_container_node.gateway()
    kernel_id = gateway.start_kernel("small")
    tab = open_tab(gateway, kernel_id)
    cell = tab.execute("import time\nprint('begun', flush=True)\ntime.sleep(600)")
    tab.wait_for_text("begun")
    gateway.call("POST", f"/api/kernels/{kernel_id}/interrupt")
    assert tab.find(cell, "execute_reply")["content"]["ename"] == "KeyboardInterrupt"
    first = a_container_node.box(kernel_id).id

    gateway.call("POST", f"/api/kernels/{kernel_id}/restart")
    assert tab.reconnect(gateway).run("print('again' if 'cell' not in dir() else 'still')") == "again"
    second = a_container_node.box(kernel_id).id
    assert second != first
    assert a_container_node.boxes() == [f"aliquot-{kernel_id}"]

    tab.execute("block = b'x' * (400 << 20)")
    parts.wait_until(lambda: a_container_node.box_id(kernel_id) not in ("", first, second))
    kernels = gateway.call("GET", "/aliquot/api/v1/kernels")["kernels"]
    (crash,) = [kernel["last_crash"] for kernel in kernels if kernel["id"] == kernel_id]
    assert crash["code"] == "oom"
    assert "of 128 MiB host memory" in crash["message"]
    gateway.call("DELETE", f"/api/kernels/{kernel_id}")
    parts.wait_until(lambda: (a_container_node.boxes(), a_container_node.relays()) == ([], {}))


def test_an_image_that_clears_its_environment_is_hooked_by_the_loaders_own_file(
    a_container_node: ContainerNode, open_tab: Callable[..., Any]
) -> None:
    a_container_node.add_config("c.KernelContainers.hook = 'preload'")
    gateway = a_container_node.gateway()
    tab = open_tab(gateway, gateway.start_kernel("bare.gpu-0.25"))
    assert tab.run("import os; print(os.environ.get('LD_LIBRARY_PATH'))") == "None"
    assert tab.run(f"{GPU}\nprint(memory(), allocate(900), allocate(200))") == "1024 0 2"
    (kernel,) = parts.query("status", runtime_dir=a_container_node.runtime.path)["kernels"]
    assert kernel["interception"] == "holds"
