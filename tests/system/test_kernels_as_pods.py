"""One gateway whose kernels are pods on two nodes: the API double, node doubles, real agents, sidecars and kernels."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import warm_start
from api_double.server import ApiDouble
from api_double.store import RESOURCES
from cable import Cable
from memory_cells import CHECK, FILL, GPU
from node_double.containers import Image
from node_double.control import ControlDouble
from node_double.node import NodeDouble

from jupyter_aliquot.gpu_hook.agent.devices.softgpu_state import remove as remove_state
from jupyter_aliquot.gpu_hook.paths import RuntimeDir, native_dir, softgpu_state_path
from jupyter_aliquot.provisioner.kubernetes.kernel_pod import kernel_pod_name

from .conftest import Kernel, Server, start_server, wait_until

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
c.ImageCatalogue.images = [{{"name": "box", "image": "box:1", "display_name": "Box"}}]
c.Limits.requests_per_second = 0
"""


# It makes the software GPU, and uses it until its input ends, so that an agent takes it as it is.
MAKE_GPU = """
import ctypes, sys
assert ctypes.CDLL(sys.argv[1]).cuInit(0) == 0
print("made", flush=True)
sys.stdin.read()
"""


def software_gpu_of(run_dir: Path, number: int) -> subprocess.Popen[bytes]:
    """Make the software GPU of a runtime folder, with a UUID of its own.

    Software GPUs have their machine's UUIDs, and the nodes of this test are one machine.
    """
    state = softgpu_state_path(RuntimeDir(run_dir))
    state.parent.parent.mkdir(mode=0o700)
    state.parent.mkdir()
    env = {**os.environ, "ALIQUOT_SOFTGPU_STATE": str(state), "ALIQUOT_SOFTGPU_MEMORY": "1GiB"}
    words = [sys.executable, "-c", MAKE_GPU, str(native_dir() / "softgpu" / "libcuda.so.1")]
    maker = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert maker.stdout is not None
    assert maker.stdout.readline() == b"made\n"
    with state.open("r+b") as file:
        at = file.read(1 << 20).index(b"aliquot\0")
        file.seek(at + 8)
        file.write(bytes([number] * 4))
    return maker


class GpuNode:
    """A node of the cluster: the double's kubelet, and a real agent that is its device plugin and dials the gateway."""

    def __init__(self, double: ApiDouble, name: str, folder: Path, environment: dict[str, str], port: int) -> None:
        self.name, self.run_dir, self.cable = name, folder / name, Cable(port)
        self.node = NodeDouble(double.url, name, IMAGES)
        self.node.start()
        words = ["-m", "jupyter_aliquot.gpu_hook.agent", "--driver", "softgpu", "--softgpu-memory", "1GiB"]
        words += ["--overcommit", "1", "--node", name, "--runtime-dir", str(self.run_dir), "--kernel-slots", "4"]
        words += ["--kubelet", str(self.node.kubelet.folder), "--gateway", f"http://127.0.0.1:{self.cable.port}"]
        words += ["--token-file", str(folder / "token"), "--log-file", str(folder / f"{name}.log")]
        self.maker = software_gpu_of(self.run_dir, ord(name[-1]))
        self.agent = warm_start.start(warm_start.AGENT, words, env=environment)

    def close(self) -> None:
        self.node.close()
        self.agent.terminate()
        self.agent.wait(timeout=90)
        self.maker.communicate()
        self.cable.close()
        remove_state(softgpu_state_path(RuntimeDir(self.run_dir)))


class Ring:
    """The cluster and its gateway."""

    def __init__(self, folder: Path, environment: dict[str, str], double: ApiDouble) -> None:
        self.folder, self.environment, self.double = folder, environment, double
        self.nodes: dict[str, GpuNode] = {}
        self._starts = 0
        self.server = self.serve()
        try:
            for name in ("gpu-a", "gpu-b"):
                self.nodes[name] = GpuNode(double, name, folder, environment, port_of(self.server))
            wait_until(self.is_ready)
        except BaseException:
            print(self.logs())
            self.close()
            raise

    def serve(self) -> Server:
        self._starts += 1
        told = [f"--config={self.folder / 'gateway.py'}", "--Aliquot.keep_kernels=always"]
        return start_server(self.folder, self.environment, f"gateway{self._starts}", *told, has_devices=False)

    def restart(self) -> None:
        """Stop the gateway, and start another that the agents reach."""
        self.server.stop()
        self.server = self.serve()
        for node in self.nodes.values():
            node.cable.target = port_of(self.server)
        wait_until(self.is_ready)

    def is_ready(self) -> bool:
        """Return whether both nodes are connected, and offer their slots to the scheduler."""
        known = {one["name"]: one["state"] for one in self.server.call("GET", "/aliquot/api/v1/nodes")["nodes"]}
        connected = all(known.get(name) == "connected" for name in self.nodes)
        return connected and all(
            node.node.kubelet.amounts().get("aliquot.dev/kernel", (0, 0))[1] == 4 for node in self.nodes.values()
        )

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


def port_of(server: Server) -> int:
    port = urlsplit(server.url).port
    assert port is not None
    return port


@pytest.fixture(scope="module")
def the_ring() -> Iterator[Ring]:
    folder = Path(tempfile.mkdtemp(prefix="aqs-", dir="/tmp"))
    double = ApiDouble()
    user = {"name": "gateway", "user": {}}
    cluster = {"name": "double", "cluster": {"server": double.url}}
    context = {"name": "here", "context": {"cluster": "double", "user": "gateway"}}
    told = {"clusters": [cluster], "users": [user], "contexts": [context], "current-context": "here"}
    (folder / "kubeconfig").write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **told}))
    (folder / "token").write_text("a-token-of-agents-of-this-test\n")
    paths = {"token": str(folder / "token"), "state": str(folder / "state")}
    (folder / "gateway.py").write_text(CONFIGURATION.format(**paths))
    environment = {
        **os.environ,
        "KUBECONFIG": str(folder / "kubeconfig"),
        "ALIQUOT_RUNTIME_DIR": str(folder / "run"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "IPYTHONDIR": str(folder / "ipython"),
    }
    with ControlDouble(double.url):
        ring = Ring(folder, environment, double)
        try:
            yield ring
        finally:
            ring.close()
    double.close()
    shutil.rmtree(folder, ignore_errors=True)


def test_cells_on_two_nodes_take_gpu_memory_and_a_third_kernel_waits_for_one(the_ring: Ring) -> None:
    first, second = the_ring.server.start("box.gpu-1"), the_ring.server.start("box.gpu-1")
    for seed, kernel in enumerate((first, second)):
        told = kernel.run(GPU + FILL.format(seed=seed, mebibytes=300))
        assert told.status == "ok", (told, the_ring.logs())
    assert {the_ring.node_of(first), the_ring.node_of(second)} == {"gpu-a", "gpu-b"}

    third = the_ring.server.start("box.gpu-1")
    wait_until(lambda: (third.on_node() or {}).get("state") == "queued")
    assert the_ring.pod(third) == {}
    ended = the_ring.node_of(first)
    first.end()
    assert third.run("print(1)").text == "1\n", the_ring.logs()
    assert the_ring.node_of(third) == ended
    assert second.run(CHECK).text.split()[1] == "True"
    for kernel in (second, third):
        kernel.end()
    wait_until(lambda: not the_ring.double.store.list(PODS, "default")[0])


def test_a_restarted_gateway_finds_its_kernel_by_its_pod(the_ring: Ring) -> None:
    kernel = the_ring.server.start("box.gpu-0.25")
    assert kernel.run("here = 42").status == "ok", the_ring.logs()
    pod = the_ring.pod(kernel)["metadata"]["uid"]
    kernel.reconnect()
    the_ring.restart()

    again = Kernel(the_ring.server, kernel.id)
    assert again.run("print(here)").text == "42\n", the_ring.logs()
    assert the_ring.pod(again)["metadata"]["uid"] == pod
    assert again.on_node()["state"] != "queued"
    again.end()
