"""The words of a scheduler, which waiting users read, and its part in ResourceClaims."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from jupyter_aliquot.provisioner.kubernetes.client import ClusterClient, Collection
from jupyter_aliquot.provisioner.kubernetes.holding.claims import CLAIMS_PREFIX
from jupyter_aliquot.provisioner.kubernetes.states import PodPhase, pod_state, warning_text
from tests.provisioner.kubernetes.conftest import Cluster

from .asking import Object, condition, first_events, placed, refused, until, with_client
from .conftest import NODES, FakeNode
from .test_pods import a_kernel

# Nodes of a real cluster are made and lost in minutes.
PATIENCE_SECONDS = 240.0
GATED = "Scheduling is blocked due to non-empty scheduling gates"


def named(pod: Object, name: str) -> Object:
    return {**pod, "metadata": {**pod["metadata"], "name": name}}


def unplaced(one: Object) -> bool:
    return condition(one, "PodScheduled").get("status") == "False"


def test_a_node_without_a_slot_left_is_told_by_condition_and_event(a_cluster: Cluster, a_node: FakeNode) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        pods = a_cluster.collection("pods")
        for name in ("a", "b"):
            await client.create(pods, named(a_kernel(a_cluster, a_node.name), name))
            await until(client, pods, name, placed)
        await client.create(pods, named(a_kernel(a_cluster, a_node.name), "c"))
        found = await until(client, pods, "c", unplaced)
        told = condition(found, "PodScheduled")
        assert told["reason"] == "Unschedulable"
        assert "1 Insufficient aliquot.dev/kernel" in told["message"]
        state = pod_state(found)
        assert (state.phase, state.reason) == (
            PodPhase.SCHEDULING,
            f"No node has room for the pod: {told['message']}",
        )
        event = await scheduling_event(client, a_cluster.collection("events"), found)
        assert (event["type"], event["message"]) == ("Warning", told["message"])
        assert warning_text([event]) == "", "the pod's condition tells it, in words"

    with_client(a_cluster, act)


async def scheduling_event(client: ClusterClient, events: Collection, pod: Object) -> Object:
    """Return the scheduler's event of a pod that it cannot place."""
    listed, version = await client.list(events)
    for one in listed:
        if is_of(one, pod):
            return one
    while True:
        (event,) = await first_events(client, events, version, 1)
        if is_of(event["object"], pod):
            return dict(event["object"])
        version = event["object"]["metadata"]["resourceVersion"]


def is_of(event: Object, pod: Object) -> bool:
    return event["reason"] == "FailedScheduling" and event["involvedObject"]["uid"] == pod["metadata"]["uid"]


def test_a_node_that_is_not_there_or_is_closed_is_told(a_cluster: Cluster, a_node: FakeNode) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        pods = a_cluster.collection("pods")
        await client.create(pods, named(a_kernel(a_cluster, "no-such-node"), "elsewhere"))
        found = await until(client, pods, "elsewhere", unplaced)
        assert "node(s) didn't satisfy plugin(s) [NodeAffinity]" in condition(found, "PodScheduled")["message"]
        await client.patch(NODES, a_node.name, {"spec": {"unschedulable": True}})
        await client.create(pods, named(a_kernel(a_cluster, a_node.name), "closed"))
        found = await until(client, pods, "closed", unplaced)
        assert "node(s) were unschedulable" in condition(found, "PodScheduled")["message"]

    with_client(a_cluster, act)


def test_a_gate_is_told_as_such(a_cluster: Cluster, a_node: FakeNode) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        pods = a_cluster.collection("pods")
        told = named(a_kernel(a_cluster, a_node.name), "gated")
        told["spec"]["schedulingGates"] = [{"name": "aliquot.dev/test"}]
        await client.create(pods, told)
        found = await until(client, pods, "gated", unplaced)
        assert condition(found, "PodScheduled")["reason"] == "SchedulingGated"
        assert pod_state(found).reason == f"The pod waits for a gate of the cluster, as of a queue: {GATED}"
        await client.patch(pods, "gated", {"spec": {"schedulingGates": None}})
        await until(client, pods, "gated", placed)

    with_client(a_cluster, act)


def test_a_pod_is_bound_once(a_cluster: Cluster, a_node: FakeNode) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        pods = a_cluster.collection("pods")
        await client.create(pods, named(a_kernel(a_cluster, a_node.name), "a"))
        await until(client, pods, "a", placed)
        target = {"apiVersion": "v1", "kind": "Node", "name": a_node.name}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": target}
        error = await refused(client.post(f"{pods.path}/a/binding", binding))
        assert (error.code, error.reason) == (409, "Conflict")
        assert f'pod a is already assigned to node "{a_node.name}"' in str(error)

    with_client(a_cluster, act)


def test_a_taint_evicts_with_its_reason(a_cluster: Cluster, a_node: FakeNode) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        pods = a_cluster.collection("pods")
        await client.create(pods, named(a_kernel(a_cluster, a_node.name), "a"))
        await until(client, pods, "a", placed)
        taint = {"key": "aliquot.dev/test", "effect": "NoExecute"}
        before = (await client.read(NODES, a_node.name))["spec"].get("taints") or []
        await client.patch(NODES, a_node.name, {"spec": {"taints": [*before, taint]}})
        found = await until(client, pods, "a", lambda one: condition(one, "DisruptionTarget"))
        assert condition(found, "DisruptionTarget")["reason"] == "DeletionByTaintManager"
        state = pod_state(found)
        assert state.phase is PodPhase.EVICTED
        assert state.reason.startswith("the cluster evicted it: its node was not ready, or was closed for it (")

    with_client(a_cluster, act)


def test_the_pods_of_a_node_that_is_gone_are_ended_and_removed(a_cluster: Cluster, a_node: FakeNode) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        pods = a_cluster.collection("pods")
        await client.create(pods, named(a_kernel(a_cluster, a_node.name), "a"))
        found = await until(client, pods, "a", placed)
        seen: list[Object] = []
        await client.delete(NODES, a_node.name)
        assert (await client.list(replace(NODES, fields=f"metadata.name={a_node.name}")))[0] == []
        async for event in client.watch(pods, found["metadata"]["resourceVersion"]):
            if event["type"] in ("MODIFIED", "DELETED"):
                seen.append(event["object"])
            if event["type"] == "DELETED":
                break
        last = seen[-1]
        assert condition(last, "DisruptionTarget")["reason"] == "DeletionByPodGC"
        assert last["status"]["phase"] == "Failed"
        assert pod_state(last).reason.startswith("the cluster evicted it: its node is gone (")

    with_client(a_cluster, act, PATIENCE_SECONDS)


# ---- ResourceClaims

CLASSES, SLICES = Collection(CLAIMS_PREFIX, "deviceclasses", ""), Collection(CLAIMS_PREFIX, "resourceslices", "")
_FINALIZER = "resource.kubernetes.io/delete-protection"


@pytest.fixture
def a_device(a_cluster: Cluster, a_node: FakeNode) -> Iterator[str]:
    """One device on the node, of a class of its own, whose name this is."""
    name = f"{a_cluster.namespace}.aliquot.dev"
    pool = {"name": a_node.name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": name, "nodeName": a_node.name, "pool": pool, "devices": [{"name": "gpu-0"}]}
    selectors = [{"cel": {"expression": f'device.driver == "{name}"'}}]

    async def make(client: ClusterClient, _: Collection) -> None:
        await client.create(CLASSES, {"metadata": {"name": name}, "spec": {"selectors": selectors}})
        await client.create(SLICES, {"metadata": {"name": name}, "spec": spec})

    async def remove(client: ClusterClient, _: Collection) -> None:
        await client.delete(SLICES, name)
        await client.delete(CLASSES, name)

    with_client(a_cluster, make)
    yield name
    with_client(a_cluster, remove)


def a_claim(name: str, device_class: str) -> Object:
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}


def users(claim: Object) -> list[str]:
    return sorted(one["name"] for one in (claim.get("status") or {}).get("reservedFor") or ())


def is_free(claim: Object) -> bool:
    return not (claim.get("status") or {}).get("allocation") and not claim["metadata"].get("finalizers")


def test_two_pods_share_a_claim_and_its_device_is_free_after_both(
    a_cluster: Cluster, a_node: FakeNode, a_device: str
) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        pods, claims = a_cluster.collection("pods"), Collection(CLAIMS_PREFIX, "resourceclaims", a_cluster.namespace)
        await client.create(claims, a_claim("shared", a_device))
        for name in ("a", "b"):
            await client.create(pods, named(a_kernel(a_cluster, a_node.name, claims=("shared",)), name))
            await until(client, pods, name, placed)
        found = await until(client, claims, "shared", lambda one: users(one) == ["a", "b"])
        (result,) = found["status"]["allocation"]["devices"]["results"]
        want = {"request": "gpu", "driver": a_device, "pool": a_node.name, "device": "gpu-0"}
        assert {name: result[name] for name in want} == want
        assert found["metadata"]["finalizers"] == [_FINALIZER]
        await client.delete(pods, "a", grace_seconds=0)
        await until(client, claims, "shared", lambda one: users(one) == ["b"])
        await client.delete(pods, "b", grace_seconds=0)
        await until(client, claims, "shared", is_free)

    with_client(a_cluster, act)


def test_a_device_that_is_taken_is_told_and_given_when_it_is_free(
    a_cluster: Cluster, a_node: FakeNode, a_device: str
) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        pods, claims = a_cluster.collection("pods"), Collection(CLAIMS_PREFIX, "resourceclaims", a_cluster.namespace)
        for name in ("first", "second"):
            await client.create(claims, a_claim(name, a_device))
            await client.create(pods, named(a_kernel(a_cluster, a_node.name, claims=(name,)), name))
            await until(client, pods, name, lambda one: condition(one, "PodScheduled"))
        waiting = condition(await client.read(pods, "second"), "PodScheduled")
        assert (waiting["status"], waiting["reason"]) == ("False", "Unschedulable")
        assert "1 cannot allocate all claims" in waiting["message"]
        await client.delete(pods, "first", grace_seconds=0)
        await until(client, pods, "second", placed)

    with_client(a_cluster, act)


def test_a_claim_in_use_outlives_its_deletion_until_its_last_pod_is_gone(
    a_cluster: Cluster, a_node: FakeNode, a_device: str
) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        pods, claims = a_cluster.collection("pods"), Collection(CLAIMS_PREFIX, "resourceclaims", a_cluster.namespace)
        await client.create(claims, a_claim("shared", a_device))
        await client.create(pods, named(a_kernel(a_cluster, a_node.name, claims=("shared",)), "a"))
        await until(client, pods, "a", placed)
        await client.delete(claims, "shared")
        assert "deletionTimestamp" in (await client.read(claims, "shared"))["metadata"]
        await client.delete(pods, "a", grace_seconds=0)
        await until(client, claims, "shared", lambda one: not one)

    with_client(a_cluster, act)


def test_a_pod_waits_for_a_claim_that_is_not_there_without_a_word(
    a_cluster: Cluster, a_node: FakeNode, a_device: str
) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        pods, claims = a_cluster.collection("pods"), Collection(CLAIMS_PREFIX, "resourceclaims", a_cluster.namespace)
        await client.create(pods, named(a_kernel(a_cluster, a_node.name, claims=("late",)), "early"))
        # A later pod is placed: the scheduler has looked at the early one.
        await client.create(pods, named(a_kernel(a_cluster, a_node.name), "later"))
        await until(client, pods, "later", placed)
        assert condition(await client.read(pods, "early"), "PodScheduled") == {}
        await client.create(claims, a_claim("late", a_device))
        await until(client, pods, "early", placed)

    with_client(a_cluster, act)
