"""Find the kernels of an earlier gateway by their pods, in this process alone; the API double is another's."""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import resource
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from api_double.server import ApiDouble
from api_double.store import RESOURCES
from kubernetes.client import Configuration

from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.kubernetes.kernel_pod import kernel_pod
from jupyter_aliquot.provisioner.kubernetes.pods.runtime import PodRuntime
from jupyter_aliquot.provisioner.kubernetes.protection import relay_secret
from jupyter_aliquot.provisioner.kubernetes.record import KernelRecord
from jupyter_aliquot.provisioner.kubernetes.settings import Cluster, PodPlan, PodSettings
from jupyter_aliquot.provisioner.kubernetes.tunnel.keys import make_keys
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request

CLUSTER = Cluster("default", "g", "relay:1")
GIB = 1 << 30


def fill(double: ApiDouble, kernels: int, nodes: int) -> None:
    """Put the pods and Secrets of running kernels there."""
    request, keys = Request(GpuShare(10), Bytes(GIB)), make_keys("a-key")
    for number in range(kernels):
        kernel_id, node = f"k{number}", f"node-{number % nodes}"
        quota = Quota(f"GPU-{node}", 0, GpuShare(10), Bytes(GIB), Bytes(GIB))
        grant = Grant(kernel_id, f"user-{number % 1000}", request, node, (quota,), f"/run/aliquot/{kernel_id}", ())
        record = KernelRecord(kernel_id, grant.owner, "g", request, "a.ipynb", "python3.gpu-0.1", grant=grant)
        pod = kernel_pod(CLUSTER, record, PodPlan("box:1", ("python", "-m", "ipykernel_launcher"), node))
        pod["spec"]["nodeName"] = node
        running = [{"name": "kernel", "state": {"running": {}}}]
        # An address at which nothing listens: tunnels try again meanwhile, as at a node that is away.
        pod["status"] = {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": running}
        double.store.create(RESOURCES["pods"], "default", pod)
        double.store.create(RESOURCES["secrets"], "default", relay_secret(CLUSTER, record, keys))


def serve(told: Connection, kernels: int, nodes: int) -> None:
    """Be the API server until the other end is closed."""
    double = ApiDouble()
    double.store._collect = lambda: None  # type: ignore[method-assign]  # a walk over all objects at each creation
    fill(double, kernels, nodes)
    told.send(double.url)
    told.recv()


async def find(url: str) -> tuple[int, float]:
    """Return how many kernels are found, and the seconds that it took."""
    configuration = Configuration()
    configuration.host = url
    with tempfile.TemporaryDirectory(prefix="aqr-") as folder:
        runtime = PodRuntime(
            PodSettings(CLUSTER), RuntimeDir(Path(folder)), logging.getLogger("none"), lambda: configuration
        )
        began = time.perf_counter()
        found = await runtime.find()
        took = time.perf_counter() - began
        await runtime.stop()
    return sum(one.is_running for one in found), took


def main() -> None:
    kernels, nodes = map(int, sys.argv[1:])
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, kernels, nodes), daemon=True)
    server.start()
    found, took = asyncio.run(find(ours.recv()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    server.terminate()
    print(json.dumps({"found": found, "seconds": took, "bytes": peak}))


if __name__ == "__main__":
    main()
