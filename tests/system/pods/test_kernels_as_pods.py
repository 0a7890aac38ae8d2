"""One gateway whose kernels are pods on two nodes, and a later one that finds them."""

from __future__ import annotations

from api_double.store import RESOURCES
from memory_cells import CHECK, FILL, GPU
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

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


def test_metrics_name_a_kernels_pod_and_the_accounting_counts_its_gpu_time(the_ring: Ring) -> None:
    kernel = the_ring.server.start("box.gpu-0.25")
    assert kernel.run(GPU + FILL.format(seed=1, mebibytes=32)).status == "ok", the_ring.logs()
    pod = the_ring.pod(kernel)["metadata"]
    used = "aliquot_kernel_memory_used_bytes"
    wait_until(lambda: sum(sample.value for sample in samples_of(the_ring, kernel.id, used)) >= 32 << 20)
    for name in (used, "aliquot_kernel_gpus"):
        [sample] = samples_of(the_ring, kernel.id, name)
        assert (sample.labels["namespace"], sample.labels["pod"]) == (pod["namespace"], pod["name"])
    assert kernel.on_node()["used_bytes"] >= 32 << 20
    wait_until(lambda: the_ring.server.call("GET", "/aliquot/api/v1/usage")["total"]["on_gpu"] > 0)
    kernel.end()


def samples_of(ring: Ring, kernel_id: str, metric: str) -> list[Sample]:
    families = [one for one in text_string_to_metric_families(ring.server.metrics()) if one.name == metric]
    return [sample for one in families for sample in one.samples if sample.labels.get("kernel") == kernel_id]


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
