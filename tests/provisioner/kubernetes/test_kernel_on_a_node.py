"""A kernel's pod on the node double: the real agent is its device plugin, the real hook is in the kernel."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import warm_start
from api_double.server import ApiDouble
from node_double.cluster import ApiClient
from node_double.containers import Image
from node_double.control import ControlDouble
from node_double.node import NodeDouble

from jupyter_aliquot.gpu_hook.client.client import AgentClient, AgentClientError, query
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, softgpu_state_path
from jupyter_aliquot.provisioner.grants.codec import agent_grant
from jupyter_aliquot.provisioner.kubernetes.kernel_pod import granted_environment, kernel_pod, kernel_pod_name
from jupyter_aliquot.provisioner.kubernetes.protection import relay_secret
from jupyter_aliquot.provisioner.kubernetes.record import KernelRecord
from jupyter_aliquot.provisioner.kubernetes.settings import Cluster, PodPlan
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Request

from .manifests import KEYS

Found = TypeVar("Found")
NODE, PATIENCE_SECONDS = "gpu-1", 120.0
MIB = 1 << 20
RELAY = "import os, socket; s = socket.create_server((os.environ['IP'], 8787)); [s.accept() for _ in iter(int, 1)]"
# It prints the memory of the GPU that it sees, and stays until it is told to end.
KERNEL = """
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
device, context, size = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t()
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
assert cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device) == 0
print(size.value, flush=True)
time.sleep(600)
"""


def until(claim: Callable[[], Found]) -> Found:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := claim()):
        assert time.monotonic() < deadline, "the claim did not come true in time"
        time.sleep(0.02)
    return found


class Ring:
    """API double, scheduler, node double, and the node's agent with one software GPU."""

    def __init__(self, double: ApiDouble, node: NodeDouble, run_dir: Path) -> None:
        self.double, self.node, self.run_dir, self.api = double, node, run_dir, ApiClient(double.url)
        self.cluster = Cluster("default", "a-gateway", "relay:1")

    def status(self) -> dict[str, Any]:
        try:
            return query("status", runtime_dir=self.run_dir, seconds=60)
        except AgentClientError:
            return {"kernels": [], "devices": []}

    def kernel(self, kernel_id: str) -> dict[str, Any]:
        return next((one for one in self.status()["kernels"] if one["kernel_id"] == kernel_id), {})

    def slots(self) -> int:
        node = self.api.call("GET", f"/api/v1/nodes/{NODE}")
        return int(node["status"]["allocatable"].get("aliquot.dev/kernel", "0"))

    async def grant(self, kernel_id: str, hundredths: int, limit: int) -> KernelRecord:
        """Reserve as a gateway does; the connection is closed when the pod has its slot."""
        client = await AgentClient.connect(self.run_dir, seconds=60)
        pod = f"{self.cluster.namespace}/{kernel_pod_name(kernel_id)}"
        answer = await client.reserve(
            kernel_id, owner="ada", hundredths=hundredths, memory_limit=limit, attributes={"pod": pod}
        )
        request = Request(GpuShare(hundredths), Bytes(limit))
        record = KernelRecord(kernel_id, "ada", self.cluster.gateway, request, grant=agent_grant(answer))
        self.create(record)
        await asyncio.to_thread(until, lambda: self.kernel(kernel_id).get("pids"))
        await client.close()
        return record

    def create(self, record: KernelRecord) -> None:
        assert record.grant is not None
        plan = PodPlan(
            "kernel:1", ("python", "-c", KERNEL), NODE, env=granted_environment(record.grant), grace_seconds=1
        )
        pod = kernel_pod(self.cluster, replace(record), plan)
        # The double's processes share loopback, so the relay listens at its pod's address.
        pod["spec"]["initContainers"][0]["env"] = [
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        ]
        self.api.call("POST", "/api/v1/namespaces/default/secrets", relay_secret(self.cluster, record, KEYS))
        self.api.call("POST", "/api/v1/namespaces/default/pods", pod)

    def output(self, record: KernelRecord) -> str:
        return (self.node.run_of(kernel_pod_name(record.kernel_id)).folder / "kernel.log").read_text()


@pytest.fixture(scope="module")
def a_ring() -> Iterator[Ring]:
    double = ApiDouble()
    run_dir = Path(tempfile.mkdtemp(prefix="aqr-"))
    images = {"relay:1": Image(("python", "-c", RELAY)), "kernel:1": Image()}
    with ControlDouble(double.url), NodeDouble(double.url, NODE, images) as node:
        words = ["-m", "jupyter_aliquot.gpu_hook.agent", "--driver", "softgpu", "--softgpu-memory", "1GiB"]
        words += ["--runtime-dir", str(run_dir), "--kubelet", str(node.kubelet.folder), "--kernel-slots", "4"]
        agent = warm_start.start(warm_start.AGENT, [*words, "--log-file", str(run_dir / "agent.log")])
        ring = Ring(double, node, run_dir)
        try:
            until(lambda: ring.slots() == 4)
            yield ring
        finally:
            agent.terminate()
            agent.wait(60)
            shutil.rmtree(softgpu_state_path(RuntimeDir(run_dir)).parents[1], ignore_errors=True)
            shutil.rmtree(run_dir, ignore_errors=True)
    double.close()


def test_kernel_in_a_pod_sees_its_share_and_is_held_by_its_pod_alone(a_ring: Ring) -> None:
    record = asyncio.run(asyncio.wait_for(a_ring.grant("first", 25, 256 * MIB), PATIENCE_SECONDS))
    until(lambda: a_ring.output(record))

    assert int(a_ring.output(record)) == 256 * MIB, a_ring.node.logs()
    pod = a_ring.api.call("GET", f"/api/v1/namespaces/default/pods/{kernel_pod_name('first')}")
    assert pod["status"]["phase"] == "Running"
    assert a_ring.kernel("first")["attributes"] == {"pod": f"default/{kernel_pod_name('first')}"}

    # The connection that reserved it is closed since; the pod's end ends the reservation.
    a_ring.api.call("DELETE", f"/api/v1/namespaces/default/pods/{kernel_pod_name('first')}", {})
    until(lambda: not a_ring.kernel("first"))


def test_two_kernels_of_a_node_have_slots_of_their_own(a_ring: Ring) -> None:
    records = [
        asyncio.run(asyncio.wait_for(a_ring.grant(name, 25, limit * MIB), PATIENCE_SECONDS))
        for name, limit in (("one", 128), ("two", 512))
    ]
    for record in records:
        until(lambda record=record: a_ring.output(record))  # type: ignore[misc]

    assert [int(a_ring.output(record)) // MIB for record in records] == [128, 512]
    given = [a_ring.node.kubelet.given()["default", kernel_pod_name(name), "kernel"] for name in ("one", "two")]
    assert len({slots["aliquot.dev/kernel"] for slots in given}) == 2
    for name in ("one", "two"):
        a_ring.api.call("DELETE", f"/api/v1/namespaces/default/pods/{kernel_pod_name(name)}", {})
    until(lambda: not a_ring.kernel("one") and not a_ring.kernel("two"))
    assert a_ring.slots() == 4


def test_kernel_runs_on_through_a_restart_of_the_kubelet(a_ring: Ring) -> None:
    record = asyncio.run(asyncio.wait_for(a_ring.grant("steady", 25, 256 * MIB), PATIENCE_SECONDS))
    kubelet = a_ring.node.kubelet
    kubelet.restart()
    # The node's status may be of before. A kubelet fails a pod whose plugin has not registered again.
    until(lambda: kubelet.amounts()["aliquot.dev/kernel"] == (4, 4))
    until(lambda: a_ring.slots() == 4)

    again = asyncio.run(asyncio.wait_for(a_ring.grant("after", 25, 128 * MIB), PATIENCE_SECONDS))
    until(lambda: a_ring.output(again))
    assert a_ring.kernel("steady")["pids"]
    assert a_ring.node.run_of(kernel_pod_name(record.kernel_id)).is_alive()
