"""The agent, the hook and the software GPU under kernels in real containers.

The containers are hardened, have another user, and their process has pid 1.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "system" / "agent_restart"))

if TYPE_CHECKING:
    from tests.containers.container_engines import HOST_FOLDERS, Engine
    from tests.system.agent_restart.agent_node import (
        MIB,
        WORKER,
        AgentNode,
        Kernel,
        problems,
        until,
        wait_for_charges,
        wait_for_rounds,
        work,
    )
else:
    from agent_node import (
        MIB,
        WORKER,
        AgentNode,
        Kernel,
        problems,
        until,
        wait_for_charges,
        wait_for_rounds,
        work,
    )
    from container_engines import HOST_FOLDERS, Engine

USER = "4321:4321"
# Goes past the hook: takes 32 MiB from the driver that its argument names.
UNHOOKED = """
import ctypes, sys, time
cuda = ctypes.CDLL(sys.argv[1])
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(32 << 20)) == 0
time.sleep(600)
"""


@pytest.fixture
def a_node(an_engine: Engine) -> Iterator[AgentNode]:
    """A node whose agent publishes the libraries, and writes the CDI specs for the engine."""
    with tempfile.TemporaryDirectory(prefix="aql-", dir="/tmp") as libraries:
        node = AgentNode("--cdi-dir", str(an_engine.cdi_dir), "--library-dir", libraries)
        node.start()
        yield node
        node.close()


Start = Callable[..., Any]


@pytest.fixture
def start(an_engine: Engine, a_node: AgentNode) -> Start:
    """Start workers in a container of their own; devices by CDI where possible, and their mounts."""

    def start_one(kernel: Kernel, hook: str = "shim", **env: str) -> Any:
        names = ["aliquot.dev/softgpu=0", f"aliquot.dev/hook={hook}"]
        mounts = [docker.types.Mount(folder, folder, "bind", read_only=True) for folder in HOST_FOLDERS]
        mounts.append(docker.types.Mount(str(kernel.folder), str(kernel.folder), "bind"))
        mounts.append(
            docker.types.Mount(kernel.grant["kernel_dir"], kernel.grant["kernel_dir"], "bind", read_only=True)
        )
        # Docker puts a device's mounts before its own, makes them read-only with the root, and
        # hides those that lie below a tmpfs of ours. Our mounts at the same places avoid both.
        mounts += edits(an_engine.cdi_dir, names)
        requests = [docker.types.DeviceRequest(driver="cdi", device_ids=names)] if an_engine.name == "docker" else []
        program = Path(kernel.environment["LD_LIBRARY_PATH"]).parent / "bin" / "aliquot-kernel-start"
        container = an_engine.client().containers.run(
            an_engine.image,
            [str(program), "--", sys.executable, str(WORKER), *kernel.sockets],
            environment={**kernel.environment, **env},
            mounts=mounts,
            device_requests=requests,
            user=USER,
            network_mode="none",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            read_only=True,
            tmpfs={"/tmp": "mode=1777"},
            detach=True,
        )
        a_node.at_end(lambda: container.remove(force=True))
        container.reload()
        a_node.bind(kernel.id, container.attrs["State"]["Pid"])
        try:
            kernel.accept()
        except OSError:
            pytest.fail(f"no worker came: {container.logs().decode()[-2000:]}\n{a_node.log()[-2000:]}")
        return container

    return start_one


def edits(folder: Path, names: list[str]) -> list[Any]:
    """Return the edits of these devices, as mounts."""
    found: dict[str, Any] = {}
    for kind, _, name in (device.partition("=") for device in names):
        spec = json.loads((folder / f"{kind.replace('/', '-')}.json").read_text())
        own = next(device["containerEdits"] for device in spec["devices"] if device["name"] == name)
        for mount in (*spec["containerEdits"]["mounts"], *own.get("mounts", ())):
            target, is_read_only = mount["containerPath"], "ro" in mount["options"]
            found[target] = docker.types.Mount(target, mount["hostPath"], "bind", read_only=is_read_only)
    return list(found.values())


def test_a_container_is_charged_refused_and_seen_like_any_kernel(a_node: AgentNode, start: Start) -> None:
    kernel, other = (Kernel(a_node, name, 25, worker_count=2) for name in ("k", "other"))
    containers = [start(each) for each in (kernel, other)]
    assert a_node.kernel("k")["interception"] == "holds"
    assert a_node.kernel("k")["absolute_paths"] == "covered"
    for each, amount in ((kernel, 50), (other, 70)):
        assert [worker.ask("hold", amount, 4) for worker in each.workers] == ["", ""]
    assert kernel.workers[0].ask("hold", 950, 0) == "cuMemAlloc_v2 answered 2"
    until(lambda: (kernel.record()["charged_bytes"], other.record()["charged_bytes"]) == (100 * MIB, 140 * MIB))
    until(lambda: a_node.used_bytes() == 240 * MIB)
    own = until(lambda: (found := kernel.workers[0].ask("processes"))[1:] and found)
    assert [amount for _, amount in own] == [50 * MIB] * 2
    assert sorted(pid for pid, _ in own) == sorted(worker.ask("tell")["pid"] for worker in kernel.workers)
    past = kernel.environment
    command = [sys.executable, "-c", UNHOOKED, past["ALIQUOT_REAL_CUDA"]]
    state = f"ALIQUOT_SOFTGPU_STATE={past['ALIQUOT_SOFTGPU_STATE']}"
    bare = ["env", "-i", state, "ALIQUOT_SOFTGPU_CONTEXT=0", *command]
    containers[0].client.api.exec_start(containers[0].client.api.exec_create(containers[0].id, bare)["Id"], detach=True)
    (found,) = until(lambda: a_node.kernel("k")["unhooked_processes"])
    assert (found["used_bytes"], found["why"]) == (32 * MIB, "not registered")
    status = a_node.status()
    assert status["foreign_processes"] == []
    assert all(not each["unhooked_processes"] for each in status["kernels"] if each["kernel_id"] == "other")
    containers[0].kill()
    until(lambda: a_node.used_bytes() == 140 * MIB)
    containers[1].kill()
    until(lambda: (a_node.status()["kernels"], a_node.used_bytes()) == ([], 0))


def test_containers_compute_while_their_agent_is_killed_and_it_knows_them_again(
    a_node: AgentNode, start: Start
) -> None:
    kernels = [Kernel(a_node, name, 25, worker_count=2) for name in ("k", "other")]
    containers = [start(kernel) for kernel in kernels]
    for amount, worker in enumerate(worker for kernel in kernels for worker in kernel.workers):
        assert worker.ask("hold", 100 + 10 * amount, 4 + amount) == ""
    before = [kernel.record() for kernel in kernels]
    for number in (signal.SIGKILL, signal.SIGTERM):
        work(kernels, True)
        wait_for_rounds(kernels, 5)
        a_node.end(number)
        wait_for_rounds(kernels, 8)
        a_node.start()
        wait_for_rounds(kernels, 5)
        work(kernels, False)
        wait_for_charges(kernels, before)
    assert problems(kernels) == []
    for kernel, want in zip(kernels, before, strict=True):
        assert kernel.record()["peak_bytes"] >= want["peak_bytes"]
    for kernel, container in zip(kernels, containers, strict=True):
        container.kill()
        a_node.release(kernel.id)
    until(lambda: (a_node.status()["kernels"], a_node.used_bytes()) == ([], 0))


def test_without_variables_of_the_loader_its_file_puts_the_hook_in_front(a_node: AgentNode, start: Start) -> None:
    kernel = Kernel(a_node, "k", 25, worker_count=2)
    start(kernel, hook="preload", LD_LIBRARY_PATH="", LD_AUDIT="")
    assert a_node.kernel("k")["interception"] == "holds"
    assert kernel.workers[1].ask("hold", 50, 0) == ""
    until(lambda: kernel.record()["charged_bytes"] == 50 * MIB)
    assert kernel.workers[0].ask("hold", 1000, 0) == "cuMemAlloc_v2 answered 2"
