"""A restarted gateway finds its kernels on their pods alone, and ends none that it merely cannot see."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

from api_double.server import ApiDouble

from jupyter_aliquot.gpu_hook.waiting import end_task
from jupyter_aliquot.provisioner.kubernetes.adoption import find_kernels, gone_kernels
from jupyter_aliquot.provisioner.kubernetes.kernel_pod import kernel_pod
from jupyter_aliquot.provisioner.kubernetes.record import RECORD_ANNOTATION, KernelRecord, kernel_selector
from jupyter_aliquot.provisioner.kubernetes.states import PodPhase
from jupyter_aliquot.provisioner.kubernetes.watch import ResourceWatch

from .conftest import PATIENCE_SECONDS, Cluster, until
from .manifests import CLUSTER, PLAN, RECORD

HERE = replace(CLUSTER, namespace="default", owner=None)


def a_record(kernel_id: str, **changes: Any) -> KernelRecord:
    assert RECORD.grant is not None
    return replace(RECORD, kernel_id=kernel_id, grant=replace(RECORD.grant, kernel_id=kernel_id), **changes)


def a_pod(record: KernelRecord, name: str = "", created: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    pod = kernel_pod(HERE, record, PLAN)
    pod["metadata"].update(uid=f"uid-of-{name or record.kernel_id}", creationTimestamp=created)
    if name:
        pod["metadata"]["name"] = name
    return pod


def test_kernels_of_this_gateway_are_found_with_grant_owner_and_session() -> None:
    other = a_record("k2", gateway="another")
    found = find_kernels([a_pod(a_record("k1")), a_pod(other)], RECORD.gateway)
    assert list(found.kernels) == ["k1"]
    kernel = found.kernels["k1"]
    assert kernel.record == a_record("k1")
    assert (kernel.uid, kernel.state.phase) == ("uid-of-k1", PodPhase.SCHEDULING)
    assert found.problems == ()


def test_a_pod_that_cannot_be_read_is_told_and_hides_no_other() -> None:
    damaged = a_pod(a_record("k2"))
    damaged["metadata"]["annotations"][RECORD_ANNOTATION] = "{"
    found = find_kernels([damaged, a_pod(a_record("k1"))], RECORD.gateway)
    assert list(found.kernels) == ["k1"]
    [problem] = found.problems
    assert "leaves the pod as it is" in problem


def test_of_two_pods_of_one_kernel_the_older_one_counts() -> None:
    record = a_record("k1")
    young = a_pod(record, "young", "2026-01-02T00:00:00Z")
    found = find_kernels([young, a_pod(record, "old")], RECORD.gateway)
    assert found.kernels["k1"].pod == "old"
    assert "young" in found.problems[0]


def test_no_kernel_is_gone_for_a_gateway_that_cannot_see() -> None:
    found = find_kernels([a_pod(a_record("k1"))], RECORD.gateway)
    assert gone_kernels(["k1", "k2"], found, is_current=True) == ("k2",)
    assert gone_kernels(["k1", "k2"], found, is_current=False) == ()


def test_a_new_gateway_adopts_what_the_last_one_left(a_double: ApiDouble, on_double: Cluster) -> None:
    """The ring without a kubelet: create by one client, find by another that knows the gateway's name alone."""

    async def left_behind() -> None:
        client = on_double.client()
        pods = on_double.collection("pods")
        for kernel_id in ("k1", "k2"):
            await client.create(pods, kernel_pod(HERE, a_record(kernel_id), PLAN))
        await client.create(pods, kernel_pod(HERE, a_record("k3", gateway="another"), PLAN))
        await client.close()

    async def found_again() -> None:
        client = on_double.client()
        pods = on_double.collection("pods", kernel_selector(RECORD.gateway))
        watch = ResourceWatch(client, pods, asyncio.sleep, lambda: 1.0, logging.getLogger("test"))
        task = asyncio.create_task(watch.run())
        await until(lambda: watch.is_current)
        found = find_kernels(watch.objects.values(), RECORD.gateway)
        assert {one: kernel.record for one, kernel in found.kernels.items()} == {
            "k1": a_record("k1"),
            "k2": a_record("k2"),
        }
        a_double.go_away()
        await until(lambda: not watch.is_current)
        again = find_kernels(watch.objects.values(), RECORD.gateway)
        assert gone_kernels(["k1", "k2"], again, is_current=watch.is_current) == ()
        await end_task(task)
        await client.close()

    asyncio.run(asyncio.wait_for(left_behind(), PATIENCE_SECONDS))
    asyncio.run(asyncio.wait_for(found_again(), PATIENCE_SECONDS))
