"""One gateway whose kernels are pods on two nodes, and a later one that finds them."""

from __future__ import annotations

from api_double.store import RESOURCES
from memory_cells import CHECK, FILL, GPU

from tests.system.conftest import Kernel, wait_until

from .conftest import Ring

PODS = RESOURCES["pods"]


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
