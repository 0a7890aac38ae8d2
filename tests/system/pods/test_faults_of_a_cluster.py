"""Faults of a cluster: each is told in words, ends no kernel that still runs, and leaves no grant behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from api_double.store import RESOURCES, Failure
from node_double.node import now

from jupyter_aliquot.provisioner.kubernetes.kernel_pod import kernel_pod_name
from tests.system.conftest import Kernel, wait_until

from .conftest import PODS, Ring

QUOTAS = RESOURCES["resourcequotas"]


@pytest.fixture
def a_ring(the_ring: Ring) -> Iterator[Ring]:
    yield the_ring
    wait_until(the_ring.is_empty)


def told(kernel: Kernel) -> str:
    """Return why a kernel waits, or crashed last."""
    report = kernel.on_node() or {}
    crash = report.get("last_crash") or {}
    return str(crash.get("message") or report.get("reason") or "")


def end_of(ring: Ring, kernel: Kernel) -> str:
    listed = ring.server.call("GET", "/aliquot/api/v1/kernels")["kernels"]
    return next((str(one["reason"]) for one in listed if one["id"] == kernel.id), "")


def refuse_pods(resource: str, pod: dict[str, Any]) -> None:
    if resource == "pods":
        raise Failure(403, "Forbidden", 'admission webhook "images.example" denied the request: no such registry')


def test_an_api_that_is_away_ends_no_kernel_and_keeps_a_start_waiting(a_ring: Ring) -> None:
    kernel = a_ring.server.start("box.gpu-0.25")
    assert kernel.run("here = 42").status == "ok", a_ring.logs()
    a_ring.double.go_away()
    try:
        late = a_ring.server.start("box.gpu-0.25")
        wait_until(lambda: "The Kubernetes API does not answer" in told(late))
        assert kernel.run("print(here)").text == "42\n"
    finally:
        a_ring.double.come_back()
    assert late.run("print(1)").text == "1\n", a_ring.logs()
    assert kernel.run("print(here)").text == "42\n"
    for one in (kernel, late):
        one.end()


def test_a_gateway_that_starts_while_the_api_is_away_waits_for_its_kernels(a_ring: Ring) -> None:
    kernel = a_ring.server.start("box.gpu-0.25")
    assert kernel.run("here = 42").status == "ok", a_ring.logs()
    kernel.reconnect()

    def come_back() -> None:
        wait_until(lambda: any("pods=unseen" in one.read_text() for one in a_ring.folder.glob("gateway*.log")), 60)
        a_ring.double.come_back()

    returning = threading.Thread(target=come_back)

    def go_away() -> None:
        a_ring.double.go_away()
        returning.start()

    a_ring.restart(go_away)
    returning.join()
    again = Kernel(a_ring.server, kernel.id)
    assert again.run("print(here)").text == "42\n", a_ring.logs()
    again.end()


def test_a_gateway_on_another_machine_finds_its_kernel_by_the_pod_alone(a_ring: Ring) -> None:
    kernel = a_ring.server.start("box.gpu-0.25")
    assert kernel.run("here = 42").status == "ok", a_ring.logs()
    pod = a_ring.pod(kernel)["metadata"]["uid"]
    kernel.reconnect()

    a_ring.restart(a_ring.lose_gateways_machine)
    again = Kernel(a_ring.server, kernel.id)
    assert again.run("print(here)").text == "42\n", a_ring.logs()
    assert a_ring.pod(again)["metadata"]["uid"] == pod
    assert a_ring.granted() == {kernel.id}
    again.end()


def test_a_kernel_whose_pod_is_taken_says_by_what_and_starts_again(a_ring: Ring) -> None:
    kernel = a_ring.server.start("box.gpu-0.25")
    assert kernel.run("here = 42").status == "ok", a_ring.logs()
    a_ring.double.store.delete(PODS, "default", kernel_pod_name(kernel.id), {"gracePeriodSeconds": 0})
    wait_until(lambda: "its pod was deleted by another program" in told(kernel))
    kernel.reconnect()
    assert "NameError" in kernel.run("print(here)").error

    node = a_ring.nodes[a_ring.node_of(kernel)].node
    node.run_of(kernel_pod_name(kernel.id)).evict("Evicted", "The node was low on resource: memory. ")
    wait_until(lambda: "its node evicted it: The node was low on resource: memory" in told(kernel))
    kernel.reconnect()
    assert kernel.run("print(1)").text == "1\n", a_ring.logs()
    assert a_ring.granted() == {kernel.id}
    kernel.end()


def test_a_node_that_is_silent_keeps_its_kernel_and_one_that_loses_it_says_so(a_ring: Ring) -> None:
    kernel = a_ring.server.start("box.gpu-0.25")
    assert kernel.run("here = 42").status == "ok", a_ring.logs()
    node = a_ring.nodes[a_ring.node_of(kernel)].node
    node.cut()
    try:
        wait_until(lambda: not is_ready(a_ring, node.name))
        assert kernel.run("print(here)").text == "42\n"
        # The cluster's controller gives the pod up after its toleration.
        name = kernel_pod_name(kernel.id)
        taken = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "m"}
        taken["lastTransitionTime"] = now()  # a controller takes back an old one whose pod was not deleted
        status = {**a_ring.pod(kernel)["status"], "conditions": [taken]}
        a_ring.double.store.replace(PODS, "default", name, {"status": status}, "status")
        wait_until(lambda: "its node was not ready, or was closed for it" in told(kernel))
    finally:
        node.mend()
    kernel.reconnect()
    assert kernel.run("print(1)").text == "1\n", a_ring.logs()
    kernel.end()


def is_ready(ring: Ring, node: str) -> bool:
    conditions = ring.double.store.read(RESOURCES["nodes"], "", node)["status"]["conditions"]
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def test_a_kernel_that_takes_no_interrupt_is_ended_by_its_user(a_ring: Ring) -> None:
    kernel = a_ring.server.start("box.gpu-0.25")
    kernel.send("import ctypes; print('blocked', flush=True); ctypes.PyDLL(None).sleep(600)")  # it keeps the GIL
    kernel.wait_for_text("blocked")
    kernel.end()
    wait_until(lambda: a_ring.pod(kernel) == {})


def test_an_image_that_cannot_be_pulled_is_named_while_the_kernel_waits(a_ring: Ring) -> None:
    kernel = a_ring.server.start("missing.gpu-0.25")
    wait_until(lambda: "The image 'missing:1' cannot be fetched" in told(kernel))
    kernel.end()


@pytest.mark.parametrize(
    ("refusal", "want"),
    [
        ("quota", "The namespace's quota has no room"),
        ("webhook", "denied the request: no such registry"),
    ],
)
def test_a_pod_that_the_cluster_refuses_ends_the_start_in_words(a_ring: Ring, refusal: str, want: str) -> None:
    store = a_ring.double.store
    if refusal == "quota":
        store.create(QUOTAS, "default", {"metadata": {"name": "rq"}, "spec": {"hard": {"pods": "0"}}})
    else:
        store.admission.append(refuse_pods)
    try:
        kernel = a_ring.server.start("box.gpu-0.25")
        wait_until(lambda: want in end_of(a_ring, kernel))
    finally:
        if refusal == "quota":
            store.delete(QUOTAS, "default", "rq", {})
        store.admission.clear()


def test_a_busy_api_and_a_lost_answer_delay_a_start_alone(a_ring: Ring) -> None:
    busy = Failure(429, "TooManyRequests", "too many requests", retry_after=1)
    a_ring.double.failures.extend([busy, Failure(500, "InternalError", "etcd has no leader")])
    kernel = a_ring.server.start("box.gpu-0.25")
    assert kernel.run("print(1)").text == "1\n", a_ring.logs()
    kernel.end()
