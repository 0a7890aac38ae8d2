"""A node agent with one compute controller, and a kernel on the same device for each load."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from jupyter_aliquot.gpu_hook import paths
from jupyter_aliquot.gpu_hook.client import client

PRODUCTION, OPPORTUNISTIC = "production", "opportunistic"
# This agent also offers the controllers of other systems.
AGENT = (sys.executable, str(Path(__file__).parents[1] / "compute_agent.py"))


class GpuNode:
    """The node under test. ``environments``: of the kernels' processes, by kernel."""

    def __init__(self, runtime: Path, device: str, environments: Mapping[str, Mapping[str, str]]) -> None:
        self._runtime = runtime
        self.device = device
        self.environments = environments

    def own_seconds(self, kernel_id: str) -> float:
        """Return the kernel's GPU time so far, without its neighbors', as the agent attributes it."""
        kernels = client.query("status", runtime_dir=self._runtime)["kernels"]
        (found,) = (kernel for kernel in kernels if kernel["kernel_id"] == kernel_id)
        compute = found["devices"][0].get("compute")
        return float(compute["own_seconds"]) if compute else 0.0


@contextmanager
def a_node(
    runtime: Path, driver: str, controller: str, kernels: Mapping[str, str], memory_bytes: int, env: Mapping[str, str]
) -> Iterator[GpuNode]:
    """Start a node agent with kernels.

    ``kernels``: class by name; each gets an equal share of the first device, and so much of its
    memory.
    """
    options = ["--driver", driver, "--controller", controller]
    if driver == "softgpu":
        options += ["--softgpu-memory", "8GiB", "--softgpu-devices", "1"]
    client.start_agent(runtime, arguments=options, exit_when_idle_seconds=30, seconds=60, command=AGENT)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as holder:  # the reservations live while this is open
        holder.connect(str(paths.RuntimeDir(runtime).agent_socket))
        answers = holder.makefile("rb")
        device = client.read_status(client.query("status", runtime_dir=runtime)).devices[0]
        placement = [{"uuid": device.uuid, "hundredths": 100 // len(kernels)}]
        environments = {}
        for number, (name, workload_class) in enumerate(kernels.items()):
            asked = {"id": number, "op": "reserve", "kernel_id": name, "owner": "bench", "label": "", "attributes": {}}
            asked |= {"hundredths": 100 // len(kernels), "memory_limit": memory_bytes, "placement": placement}
            holder.sendall(json.dumps({**asked, "workload_class": workload_class}).encode() + b"\n")
            answer = json.loads(answers.readline())
            if not answer.get("ok"):
                raise SystemExit(f"Requested a kernel, but the agent answered {answer}")
            environments[name] = environment_of(answer["grant"], env)
        try:
            yield GpuNode(runtime, device.name, environments)
        finally:
            answers.close()
    with suppress(client.AgentClientError):
        client.query("shutdown", runtime_dir=runtime)


def environment_of(grant: Mapping[str, Any], base: Mapping[str, str]) -> dict[str, str]:
    env = dict(base)
    for name, value in grant["env"].items():
        plain = name.removesuffix("_PREPEND")
        rest = os.environ.get(plain) if plain != name else None
        env[plain] = f"{value}:{rest}" if rest else value
    return env
