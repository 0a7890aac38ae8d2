"""CPUs and memory of the host that a kernelspec's name chooses, as the session form writes it, on real engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.containers.gateway_node import ContainerNode, parts
else:
    from gateway_node import ContainerNode, parts

# The limits that the kernel itself reads, in version 1 or 2 of control groups: memory, CPUs.
LIMITS = """
from pathlib import Path
groups = Path("/sys/fs/cgroup")
def read(*names):
    return next(((groups / name).read_text().split() for name in names if (groups / name).exists()), [])
quota = read("cpu.max") or read("cpu/cpu.cfs_quota_us") + read("cpu/cpu.cfs_period_us")
print(int(read("memory.max", "memory/memory.limit_in_bytes")[0]) >> 20, int(quota[0]) / int(quota[1]))
"""
# Two processes compute until the system has held the kernel back.
THROTTLED = """
import multiprocessing
def turn():
    while True:
        pass
def held_back():
    words = read("cpu.stat", "cpu/cpu.stat")
    return int(words[words.index("nr_throttled") + 1])
before, turning = held_back(), [multiprocessing.get_context("fork").Process(target=turn) for _ in range(2)]
for one in turning:
    one.start()
while held_back() == before:
    pass
for one in turning:
    one.kill()
print("held back")
"""


def test_a_kernel_has_the_cpus_and_memory_that_its_name_chooses_and_no_more(
    a_container_node: ContainerNode, open_tab: Callable[..., Any]
) -> None:
    a_container_node.add_config("c.HostLimits.most_cpus = 2\nc.HostLimits.most_memory = '2GiB'")
    gateway = a_container_node.gateway()
    query = "kernelspec=pytorch.gpu-0.25&cpus=0.5&ram=1GiB"
    name = gateway.call("GET", f"/aliquot/api/v1/session-options?{query}")["name"]
    assert name == "pytorch.gpu-0.25-0.5cpu-1ram"
    kernel_id = gateway.start_kernel(name)
    tab = open_tab(gateway, kernel_id)
    assert tab.run(LIMITS) == "1024 0.5"
    assert tab.run(THROTTLED) == "held back"

    before = a_container_node.box_id(kernel_id)
    tab.execute("block = b'x' * (1500 << 20)")
    parts.wait_until(lambda: a_container_node.box_id(kernel_id) not in ("", before))
    kernels = gateway.call("GET", "/aliquot/api/v1/kernels")["kernels"]
    [crash] = [kernel["last_crash"] for kernel in kernels if kernel["id"] == kernel_id]
    assert crash["code"] == "oom"
    assert "of 1 GiB host memory" in crash["message"]
    assert open_tab(gateway, kernel_id).run(LIMITS) == "1024 0.5", "the kernel that follows has the same"
    gateway.call("DELETE", f"/api/kernels/{kernel_id}")
    parts.wait_until(lambda: (a_container_node.boxes(), a_container_node.relays()) == ([], {}))
