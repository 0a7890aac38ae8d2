"""A cluster of two nodes and a gateway whose kernels are pods: the API double, node doubles, real parts of ours."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import warm_start
from api_double.server import ApiDouble
from api_double.store import RESOURCES
from cable import Cable
from node_double.containers import Image
from node_double.control import ControlDouble
from node_double.node import NodeDouble

from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.client.client import query
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, softgpu_state_path
from jupyter_aliquot.provisioner.kubernetes.kernel_pod import kernel_pod_name
from jupyter_aliquot.provisioner.kubernetes.permissions import PERMISSIONS
from jupyter_aliquot.provisioner.relay.wire.files import read_relay_records
from tests.system.conftest import Kernel, Server, start_server, wait_until

PODS = RESOURCES["pods"]
SIDECAR = ("python", "-m", "jupyter_aliquot.provisioner.kubernetes.tunnel.sidecar")
# The image's Python is the tests' own.
PYTHON_FIRST = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
IMAGES = {"relay:1": Image(SIDECAR), "box:1": Image(env=PYTHON_FIRST)}
CONFIGURATION = """
c.Aliquot.runtime = "kubernetes"
c.Aliquot.start_agent = False
c.Aliquot.agent_token_file = {token!r}
c.Aliquot.gateway_name = "pods"
c.Aliquot.state_dir = {state!r}
c.KernelPods.relay_image = "relay:1"
c.KernelPods.grace_seconds = 2
c.ImageCatalogue.images = [
    {{"name": "box", "image": "box:1", "display_name": "Box"}},
    {{"name": "missing", "image": "missing:1", "display_name": "Missing"}},
]
c.Limits.requests_per_second = 0
"""


# The nodes' agents prove themselves by their pods' tokens, and objects go with the gateway's Deployment.
AS_INSTALLED = """
c.Aliquot.agent_token_file = ""
c.Aliquot.agent_service_account = "aliquot-nodes/aliquot-agent"
c.KernelPods.deployment = "aliquot-gateway"
c.KernelPods.lease = "aliquot-gateway"
"""
NODES = ("gpu-a", "gpu-b")
_DEVICE = re.compile(rb"aliquot\0.{4}\0{3}.", re.DOTALL)


def token_of(node: str) -> str:
    return f"the-token-of-the-agent-of-{node}"


def review_of(node: str) -> dict[str, Any]:
    """Return the answer of a TokenReview of the token of a node's agent."""
    user = {"username": "system:serviceaccount:aliquot-nodes:aliquot-agent"}
    extra = {"authentication.kubernetes.io/node-name": [node]}
    return {"authenticated": True, "audiences": ["aliquot-gateway"], "user": {**user, "extra": extra}}


class GpuNode:
    """A node of the cluster: the double's kubelet, and a real agent that is its device plugin and dials the gateway."""

    def __init__(
        self, double: ApiDouble, name: str, folder: Path, environment: dict[str, str], port: int, *options: str
    ) -> None:
        self.name, self.run_dir, self.cable = name, folder / name, Cable(port)
        self.node = NodeDouble(double.url, name, IMAGES)
        self.node.start()
        words = ["-m", "jupyter_aliquot.gpu_hook.agent", "--driver", "softgpu", "--softgpu-memory", "1GiB"]
        words += ["--overcommit", "1", "--node", name, "--runtime-dir", str(self.run_dir), "--kernel-slots", "4"]
        words += ["--kubelet", str(self.node.kubelet.folder), "--gateway", f"http://127.0.0.1:{self.cable.port}"]
        (folder / f"{name}.token").write_text(token_of(name))
        words += ["--token-file", str(folder / f"{name}.token"), "--log-file", str(folder / f"{name}.log")]
        self._start_agent = partial(warm_start.start, warm_start.AGENT, [*words, *options], env=environment)
        self.agent = self._start_agent()
        if "--gpu-claims" in options:
            self.publish(double)
        elif "--hold-softgpu" in options:
            self.offer(*self.gpus())

    def replace_agent(self) -> None:
        """Kill the agent, and start the next one."""
        self.agent.kill()
        self.agent.wait(30)
        self.agent = self._start_agent()

    def publish(self, double: ApiDouble) -> None:
        """Publish the software GPU as NVIDIA's DRA driver does."""
        pool = {"name": self.name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpu.nvidia.com", "nodeName": self.name, "pool": pool, "devices": [{"name": "gpu-0"}]}
        told = {"metadata": {"name": f"{self.name}-gpus"}, "spec": spec}
        double.store.create(RESOURCES["resourceslices"], "", told)

    def offer(self, *uuids: str) -> None:
        """Offer these software GPUs to the cluster, as NVIDIA's device plugin does, and no other."""
        self.node.kubelet.offer("nvidia.com/gpu", uuids)

    def gpus(self) -> tuple[str, ...]:
        """Return the devices' UUIDs, which their shared state has once the driver runs."""
        state = softgpu_state_path(RuntimeDir(self.run_dir))
        found = wait_until(lambda: state.exists() and _DEVICE.findall(state.read_bytes()[: 1 << 20]))
        return tuple(f"GPU-{uuid.UUID(bytes=one)}" for one in found)

    def close(self) -> None:
        self.node.close()
        self.agent.terminate()
        self.agent.wait(timeout=90)
        self.cable.close()
        remove_state(softgpu_state_path(RuntimeDir(self.run_dir)))


class Ring:
    """The cluster and its gateway."""

    def __init__(
        self, folder: Path, environment: dict[str, str], double: ApiDouble, agent_options: tuple[str, ...] = ()
    ) -> None:
        self.folder, self.environment, self.double = folder, environment, double
        self.nodes: dict[str, GpuNode] = {}
        self._starts = 0
        self.server = self.serve()
        try:
            for name in NODES:
                self.nodes[name] = GpuNode(double, name, folder, environment, port_of(self.server), *agent_options)
            wait_until(self.is_ready)
        except BaseException:
            print(self.logs())
            self.close()
            raise

    def serve(self, *options: str, run: str = "run", before: str = "") -> Server:
        """Start a gateway whose relays are in the folder *run*. *before*: code that its process runs first."""
        self._starts += 1
        told = [f"--config={self.folder / 'gateway.py'}", "--Aliquot.keep_kernels=always", *options]
        environment = {**self.environment, "ALIQUOT_RUNTIME_DIR": str(self.folder / run)}
        name = f"gateway{self._starts}"
        return start_server(self.folder, environment, name, *told, has_devices=False, before=before)

    def restart(self, meanwhile: Callable[[], None] = lambda: None, *options: str, before: str = "") -> None:
        """Stop the gateway, call *meanwhile*, and start another that the agents reach."""
        self.server.stop()
        meanwhile()
        self.follow(self.serve(*options, before=before))

    def follow(self, server: Server) -> None:
        """Have the agents reach another gateway."""
        self.server = server
        for node in self.nodes.values():
            node.cable.target = port_of(server)
        wait_until(self.is_ready)

    def is_ready(self) -> bool:
        """Return whether both nodes are connected, and offer their slots to the scheduler."""
        known = {one["name"]: one["state"] for one in self.server.call("GET", "/aliquot/api/v1/nodes")["nodes"]}
        connected = all(known.get(name) == "connected" for name in self.nodes)
        return connected and all(
            node.node.kubelet.amounts().get("aliquot.dev/kernel", (0, 0))[1] == 4 for node in self.nodes.values()
        )

    def lose_gateways_machine(self, run: str = "run", state: str = "state") -> None:
        """Lose all that a stopped gateway left on its machine: relays, their folders, and its state."""
        runtime = RuntimeDir(self.folder / run)
        for pid in (*relay_hosts(runtime), *(relay.pid for relay in read_relay_records(runtime))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(runtime.path)
        shutil.rmtree(self.folder / state)

    @property
    def runtime(self) -> RuntimeDir:
        """The folder of the gateway's relays."""
        return RuntimeDir(self.folder / "run")

    def granted(self) -> set[str]:
        """Return the kernels that have grants at the nodes' agents."""
        agents = [query("status", runtime_dir=node.run_dir) for node in self.nodes.values()]
        return {kernel["kernel_id"] for agent in agents for kernel in agent["kernels"]}

    def documents(self, kind: str) -> list[dict[str, Any]]:
        """Return the documents of a kind that the gateway keeps in the cluster."""
        maps = self.double.store.list(RESOURCES["configmaps"], "default")[0]
        return [one for one in maps if one["metadata"]["labels"]["aliquot.dev/role"] == kind]

    def newest_log(self) -> list[Path]:
        """Return the log of the gateway that was started last."""
        return list(self.folder.glob(f"gateway{self._starts}.log"))

    def is_empty(self) -> bool:
        """Return whether neither a pod nor a grant is left."""
        return not self.double.store.list(PODS, "default")[0] and not self.granted()

    def pod(self, kernel: Kernel) -> dict[str, Any]:
        name = kernel_pod_name(kernel.id)
        return next((one for one in self.double.store.list(PODS, "default")[0] if one["metadata"]["name"] == name), {})

    def node_of(self, kernel: Kernel) -> str:
        return str(self.pod(kernel).get("spec", {}).get("nodeName", ""))

    def logs(self) -> str:
        """Return what all parts wrote, for a test that fails."""
        files = sorted(self.folder.glob("*.log"))
        told = [f"== {file.name}\n{file.read_text(errors='replace')[-6000:]}" for file in files]
        return "\n".join([*told, *(node.node.logs() for node in self.nodes.values())])

    def close(self) -> None:
        self.server.stop()
        for node in self.nodes.values():
            node.close()


def relay_hosts(runtime: RuntimeDir) -> list[int]:
    """Return the pid of a folder's relay host, if one was started there."""
    lock = runtime.relay_lock
    return [int(lock.read_text().split()[0])] if lock.exists() else []


def port_of(server: Server) -> int:
    port = urlsplit(server.url).port
    assert port is not None
    return port


@pytest.fixture(scope="session")
def the_ring() -> Iterator[Ring]:
    with a_ring() as ring:
        yield ring


@contextmanager
def a_cluster(*others: tuple[str, str]) -> Iterator[tuple[ApiDouble, Path, dict[str, str]]]:
    """Run a cluster without nodes; give its folder, and the environment of a gateway. *others*: more permissions."""
    folder = Path(tempfile.mkdtemp(prefix="aqs-", dir="/tmp"))
    double = ApiDouble()
    double.allowed = [(verb, one.resource) for one in PERMISSIONS for verb in one.verbs]
    double.allowed += others
    user = {"name": "gateway", "user": {}}
    cluster = {"name": "double", "cluster": {"server": double.url}}
    context = {"name": "here", "context": {"cluster": "double", "user": "gateway"}}
    told = {"clusters": [cluster], "users": [user], "contexts": [context], "current-context": "here"}
    (folder / "kubeconfig").write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **told}))
    double.reviews.tokens = {token_of(name): review_of(name) for name in NODES}
    double.store.create(RESOURCES["deployments"], "default", {"metadata": {"name": "aliquot-gateway"}})
    environment = {
        **os.environ,
        "KUBECONFIG": str(folder / "kubeconfig"),
        "ALIQUOT_RUNTIME_DIR": str(folder / "run"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "IPYTHONDIR": str(folder / "ipython"),
    }
    with ControlDouble(double.url):
        yield double, folder, environment
    double.close()
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def a_ring(configuration: str = "", *agent_options: str) -> Iterator[Ring]:
    """Run a cluster and its gateway, with this configuration beside the usual one. The benchmark uses it, too."""
    claims = [("create", "resourceclaims")] if "device_class" in configuration else []  # as the overlays grant
    groups = [("create", "podgroups"), ("patch", "podgroups")] if "'kai'" in configuration else []
    with a_cluster(*claims, *groups) as (double, folder, environment):
        (folder / "token").write_text("a-token-of-agents-of-this-test\n")
        known = [f"{name} {token_of(name)}\n" for name in NODES]
        (folder / "tokens").write_text("".join([(folder / "token").read_text(), *known]))
        paths = {"token": str(folder / "tokens"), "state": str(folder / "state")}
        (folder / "gateway.py").write_text(CONFIGURATION.format(**paths) + configuration)
        ring = Ring(folder, environment, double, agent_options)
        try:
            yield ring
        finally:
            ring.close()
