"""The cluster takes a GPU back: its kernels and their contexts leave it, or they are warned and end, all parts real."""

from __future__ import annotations

from typing import Any

import pytest
from memory_cells import CHECK, FILL, GPU

from jupyter_aliquot.gpu_hook.client.client import query
from tests.system.conftest import Kernel, wait_until

from .conftest import PODS, GpuNode, Ring, a_ring

HOLDERS = """
c.HolderPods.most = 2
c.HolderPods.guaranteed = 2
c.HolderPods.grace_seconds = 60
"""
HELD = "--hold-softgpu"


def holder_on(ring: Ring, node: str) -> str:
    """Return the name of the holder on a node; empty without one."""
    pods = ring.double.store.list(PODS, "default")[0]
    holders = [one["metadata"] for one in pods if one["spec"].get("nodeName") == node and is_holder(one)]
    return next((str(one["name"]) for one in holders if "deletionTimestamp" not in one), "")


def is_holder(pod: dict[str, Any]) -> bool:
    return bool((pod["metadata"].get("labels") or {}).get("aliquot.dev/role") == "holder")


def is_there(ring: Ring, name: str) -> bool:
    return any(one["metadata"]["name"] == name for one in ring.double.store.list(PODS, "default")[0])


def on_agent(ring: Ring, kernel: Kernel, node: str) -> dict[str, Any]:
    told = query("status", runtime_dir=ring.nodes[node].run_dir)["kernels"]
    return next((one for one in told if one["kernel_id"] == kernel.id), {})


def take(ring: Ring, node: str) -> str:
    """Delete the holder on a node, as the cluster's scheduler or a drain does, and return its name."""
    name = holder_on(ring, node)
    ring.double.store.delete(PODS, "default", name, {})
    return name


def wait_for_gpu(kernel: Kernel) -> None:
    """Leave a cell that waits for the GPU. Its page goes: one that reads nothing for long is cut off."""
    kernel.send(CHECK)
    wait_until(lambda: kernel.model()["execution_state"] == "busy")
    kernel.reconnect()


def test_kernels_leave_a_gpu_that_is_taken_with_their_contexts_and_come_back_with_their_memory() -> None:
    with a_ring(HOLDERS, HELD) as ring:
        kernel = ring.server.start("box.gpu-0.5")
        assert kernel.run(GPU + FILL.format(seed=3, mebibytes=64)).status == "ok", ring.logs()
        node = ring.node_of(kernel)
        # Another holder would get the same card; here it goes to others for a while.
        ring.nodes[node].offer()
        name = take(ring, node)
        wait_until(lambda: not is_there(ring, name))
        told = on_agent(ring, kernel, node)
        assert told["residency"]["state"] == "checkpointed", (told, ring.logs())
        assert kernel.run("print(6 * 7)").text == "42\n", "cells that use no GPU run on"
        wait_for_gpu(kernel)
        wait_until(lambda: all(one["lost"] for one in query("status", runtime_dir=ring.nodes[node].run_dir)["devices"]))
        assert on_agent(ring, kernel, node)["residency"]["state"] == "checkpointed", ring.logs()
        assert "the cluster took back this kernel's GPU" in kernel.on_node()["reason"]

        ring.nodes[node].offer(*ring.nodes[node].gpus())
        assert kernel.run(CHECK).text.splitlines()[-1].split()[1] == "True", ring.logs()
        assert holder_on(ring, node)
        kernel.end()


@pytest.mark.soak(alone="starts one more cluster")
def test_kernels_leave_a_gpu_whose_holder_is_killed() -> None:
    """Kill it as an eviction by the node does, and the OOM killer: without a grace period."""
    with a_ring(HOLDERS, HELD) as ring:
        kernel = ring.server.start("box.gpu-0.5")
        assert kernel.run(GPU + FILL.format(seed=3, mebibytes=64)).status == "ok", ring.logs()
        node = ring.nodes[ring.node_of(kernel)]
        node.offer()
        name = holder_on(ring, node.name)
        run = node.node.run_of(name)
        run.kill(run.pod["spec"]["containers"][0]["name"])
        wait_until(lambda: not is_there(ring, name))
        wait_until(lambda: on_agent(ring, kernel, node.name)["residency"]["state"] == "checkpointed")
        assert kernel.run("print(6 * 7)").text == "42\n", "cells that use no GPU run on"
        wait_for_gpu(kernel)
        wait_until(lambda: "the cluster took back this kernel's GPU" in kernel.on_node()["reason"])

        node.offer(*node.gpus())
        assert kernel.run(CHECK).text.splitlines()[-1].split()[1] == "True", ring.logs()
        kernel.end()


def test_a_kernel_waits_for_its_own_gpu_while_another_one_of_its_node_is_free() -> None:
    four = HOLDERS.replace("= 2", "= 4")
    with a_ring(four, HELD, "--softgpu-devices", "2") as ring:
        kernel = ring.server.start("box.gpu-0.5")
        assert kernel.run(GPU + FILL.format(seed=3, mebibytes=64)).status == "ok", ring.logs()
        node = ring.nodes[ring.node_of(kernel)]
        (own,) = [one["uuid"] for one in on_agent(ring, kernel, node.name)["devices"]]
        assert len(node.gpus()) == 2
        node.offer(*(one for one in node.gpus() if one != own))
        name = wait_until(lambda: devices(node)[own]["holder"]).partition("/")[2]
        ring.double.store.delete(PODS, "default", name, {})
        wait_until(lambda: devices(node)[own]["lost"])
        wait_for_gpu(kernel)
        wait_until(lambda: "the same GPU again; it cannot move" in kernel.on_node()["reason"])
        others = [ring.server.start("box.gpu-1") for _ in range(3)]
        assert [one.run("print(1)").text for one in others] == ["1\n"] * 3, ring.logs()
        assert [ring.node_of(one) for one in others].count(node.name) == 1
        told = on_agent(ring, kernel, node.name)
        assert (told["residency"]["state"], [one["uuid"] for one in told["devices"]]) == ("checkpointed", [own])

        node.offer(*node.gpus())
        assert kernel.run(CHECK).text.splitlines()[-1].split()[1] == "True", ring.logs()


def devices(node: GpuNode) -> dict[str, Any]:
    return {one["uuid"]: one for one in query("status", runtime_dir=node.run_dir)["devices"]}


def test_a_kernel_that_cannot_leave_a_gpu_that_is_taken_is_warned_and_ends_in_time() -> None:
    with a_ring(HOLDERS, HELD, "--residency", "off") as ring:
        kernel = ring.server.start("box.gpu-0.5")
        assert kernel.run(GPU + FILL.format(seed=3, mebibytes=64)).status == "ok", ring.logs()
        node = ring.node_of(kernel)
        name = take(ring, node)
        warned = wait_until(lambda: (kernel.on_node() or {}).get("scheduled_termination"))
        assert warned, ring.logs()
        wait_until(lambda: not is_there(ring, name))
        listed = ring.server.call("GET", "/aliquot/api/v1/kernels")["kernels"]
        (ended,) = [one for one in listed if one["id"] == kernel.id]
        assert "the cluster took its GPU back, and it could not leave it" in ended["reason"], (ended, ring.logs())
        assert not ring.granted()
