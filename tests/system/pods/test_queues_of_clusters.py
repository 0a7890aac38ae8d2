"""Holders through the cluster's queues: Kueue's label and gate, KAI's queue and its PodGroup."""

from __future__ import annotations

from typing import Any

import pytest
from api_double.store import RESOURCES

from tests.system.conftest import wait_until

from .conftest import PODS, Ring, a_ring

HOLDERS = """
c.HolderPods.most = 2
c.HolderPods.guaranteed = 2
c.HolderPods.queueing = {queueing!r}
c.HolderPods.queue = "team"
"""
GATE = "kueue.x-k8s.io/admission"


def holders(ring: Ring) -> list[dict[str, Any]]:
    found = ring.double.store.list(PODS, "default")[0]
    return [one for one in found if (one["metadata"].get("labels") or {}).get("aliquot.dev/role") == "holder"]


@pytest.mark.parametrize(
    "queueing", ["kueue", pytest.param("kai", marks=pytest.mark.soak(alone="starts one more cluster"))]
)
def test_kernels_run_on_gpus_of_holders_that_the_queue_admitted(queueing: str) -> None:
    with a_ring(HOLDERS.format(queueing=queueing), "--hold-softgpu") as ring:
        kernel = ring.server.start("box.gpu-0.25")
        assert kernel.run("print(6 * 7)").text == "42\n", ring.logs()
        if queueing == "kueue":
            assert {one["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] for one in holders(ring)} == {"team"}
            assert {one["spec"]["schedulerName"] for one in holders(ring)} == {"default-scheduler"}
        else:
            (group,) = ring.double.store.list(RESOURCES["podgroups"], "default")[0]
            assert group["spec"] == {"minMember": 2, "queue": "team"}
            assert {one["metadata"]["annotations"]["pod-group-name"] for one in holders(ring)} == {
                group["metadata"]["name"]
            }
            assert {one["spec"]["schedulerName"] for one in holders(ring)} == {"kai-scheduler"}
        assert len(holders(ring)) == 2
        kernel.end()


def test_a_holder_that_its_queue_holds_back_waits_and_kernels_run_once_it_is_admitted() -> None:
    def hold_back(resource: str, told: dict[str, Any]) -> None:
        if resource == "pods" and "kueue.x-k8s.io/queue-name" in (told["metadata"].get("labels") or {}):
            told["spec"]["schedulingGates"] = [{"name": GATE}]  # as Kueue's webhook does

    with a_ring(HOLDERS.format(queueing="kueue"), "--hold-softgpu") as ring:
        ring.double.store.admission.append(hold_back)
        name = holders(ring)[0]["metadata"]["name"]
        ring.double.store.delete(PODS, "default", name, {})  # nothing is on its GPU: another one takes its place
        gated = wait_until(lambda: [one for one in holders(ring) if one["spec"].get("schedulingGates")])
        assert [one["spec"].get("nodeName") for one in gated] == [None]
        wait_until(lambda: name not in [one["metadata"]["name"] for one in holders(ring)])
        kernels = [ring.server.start("box.gpu-1") for _ in range(2)]
        wait_until(lambda: [(one.on_node() or {}).get("state") for one in kernels].count("queued") == 1)
        ring.double.store.admission.clear()
        admitted = {**gated[0], "spec": {**gated[0]["spec"], "schedulingGates": []}}
        admitted["metadata"].pop("resourceVersion")
        ring.double.store.replace(PODS, "default", gated[0]["metadata"]["name"], admitted)
        for kernel in kernels:
            assert kernel.run("print(1)").text == "1\n", ring.logs()
            kernel.end()
