"""Pods as the gateway makes, resizes and deletes them, and the words of a server that refuses one."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from jupyter_aliquot.provisioner.kubernetes.client import ClusterClient, Collection
from jupyter_aliquot.provisioner.kubernetes.holding.holders import PlainQueueing, holder_pod
from jupyter_aliquot.provisioner.kubernetes.kernel_pod import KERNEL_CONTAINER, kernel_pod
from jupyter_aliquot.provisioner.kubernetes.protection import relay_secret
from jupyter_aliquot.provisioner.kubernetes.record import kernel_selector, read_kernel
from jupyter_aliquot.provisioner.kubernetes.states import PodPhase, pod_state, refusal_text, warning_text
from tests.provisioner.kubernetes.conftest import Cluster
from tests.provisioner.kubernetes.manifests import CLUSTER, KEYS, PLAN, POOL, RECORD

from .asking import Object, condition, first_events, placed, refused, until, with_client
from .conftest import FakeNode

NAMESPACES = Collection("/api/v1", "namespaces", "")
RESTRICTED = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}


def a_kernel(cluster: Cluster, node: str = "none", **changes: Any) -> Object:
    """Return a kernel's pod as the gateway makes it, in the test's namespace, with no volume of a user."""
    settings = replace(CLUSTER, namespace=cluster.namespace, owner=None, image_pull_secrets=())
    return kernel_pod(settings, RECORD, replace(PLAN, node=node, volumes=(), **changes))


async def restricted(client: ClusterClient, cluster: Cluster) -> None:
    await client.patch(NAMESPACES, cluster.namespace, RESTRICTED)


def test_pods_and_secrets_of_ours_are_taken_at_the_level_restricted(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        await restricted(client, a_cluster)
        told = a_kernel(a_cluster)
        made = await client.create(a_cluster.collection("pods"), told)
        assert read_kernel(made["metadata"]) == RECORD
        assert made["spec"]["schedulerName"] == "default-scheduler"
        (container,) = made["spec"]["containers"]
        assert container["resources"] == told["spec"]["containers"][0]["resources"]
        settings = replace(CLUSTER, namespace=a_cluster.namespace, owner=None)
        await client.create(a_cluster.collection("pods"), holder_pod(settings, POOL, "ml-1", PlainQueueing()))
        secret = relay_secret(settings, RECORD, KEYS)
        kept = await client.create(a_cluster.collection("secrets"), secret)
        assert kept["data"] == secret["data"], "a start that is tried again knows its own Secret by its data"

    with_client(a_cluster, act)


def test_a_pod_that_may_harm_its_node_is_refused_at_that_level(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        await restricted(client, a_cluster)
        told = a_kernel(a_cluster)
        told["spec"]["containers"][0]["securityContext"]["privileged"] = True
        told["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
        error = await refused(client.create(a_cluster.collection("pods"), told))
        assert (error.code, error.reason) == (403, "Forbidden")
        assert 'violates PodSecurity "restricted:latest": privileged' in str(error)
        assert refusal_text(error).startswith("The cluster refused the kernel's pod: ")

    with_client(a_cluster, act)


def test_a_name_that_is_no_name_of_a_pod_is_refused(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        told = a_kernel(a_cluster)
        told["metadata"]["name"] = "BAD_name"
        error = await refused(client.create(a_cluster.collection("pods"), told))
        assert (error.code, error.reason) == (422, "Invalid")
        assert 'Pod "BAD_name" is invalid: metadata.name: Invalid value: "BAD_name"' in str(error)
        assert refusal_text(error).startswith("The cluster refused the kernel's pod: ")

    with_client(a_cluster, act)


def test_a_quota_without_room_is_told_in_its_own_words(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        pods, quotas = a_cluster.collection("pods"), a_cluster.collection("resourcequotas")
        await client.create(quotas, {"metadata": {"name": "rq"}, "spec": {"hard": {"pods": "1"}}})
        await until(client, quotas, "rq", lambda one: (one.get("status") or {}).get("hard"))
        first, second = a_kernel(a_cluster), a_kernel(a_cluster)
        second["metadata"]["name"] = "second"
        await client.create(pods, first)
        error = await refused(client.create(pods, second))
        assert (error.code, error.reason) == (403, "Forbidden")
        want = 'pods "second" is forbidden: exceeded quota: rq, requested: pods=1, used: pods=1, limited: pods=1'
        assert str(error) == want
        assert refusal_text(error).startswith("The namespace's quota has no room for the kernel")

    with_client(a_cluster, act)


def test_kernels_are_found_by_their_gateways_labels_and_by_their_node(a_cluster: Cluster, a_node: FakeNode) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        pods = a_cluster.collection("pods")
        made = await client.create(pods, a_kernel(a_cluster, a_node.name))
        await client.create(pods, {**a_kernel(a_cluster), "metadata": {"name": "of-another"}})
        found, _ = await client.list(a_cluster.collection("pods", kernel_selector(RECORD.gateway)))
        assert [one["metadata"]["uid"] for one in found] == [made["metadata"]["uid"]]
        await until(client, pods, made["metadata"]["name"], placed)
        there, _ = await client.list(replace(pods, fields=f"spec.nodeName={a_node.name}"))
        assert [one["metadata"]["uid"] for one in there] == [made["metadata"]["uid"]]

    with_client(a_cluster, act)


def test_the_warnings_of_a_pod_are_found_by_its_uid(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        made = await client.create(a_cluster.collection("pods"), a_kernel(a_cluster))
        uid, events = made["metadata"]["uid"], a_cluster.collection("events")
        about = {"kind": "Pod", "namespace": a_cluster.namespace, "name": made["metadata"]["name"]}
        for name, of in (("mine", uid), ("anothers", "00000000-0000-0000-0000-000000000000")):
            told = {"type": "Warning", "reason": "FailedMount", "message": f"of {name}"}
            told |= {"metadata": {"name": name}, "involvedObject": {**about, "uid": of}}
            await client.create(events, {**told, "lastTimestamp": "2026-01-01T00:00:00Z"})
        found, _ = await client.list(replace(events, fields=f"involvedObject.uid={uid}"))
        told = [one for one in found if one["reason"] == "FailedMount"]
        assert warning_text(told) == "The cluster says (FailedMount): of mine"

    with_client(a_cluster, act)


def with_amounts(pod: Object, **amounts: str) -> Object:
    """Return the change of a pod's containers with other amounts for the kernel's, as the gateway sends it."""
    containers = copy.deepcopy(pod["spec"]["containers"])
    for one in containers:
        if one["name"] == KERNEL_CONTAINER:
            one["resources"] = {kind: {**one["resources"][kind], **amounts} for kind in ("requests", "limits")}
    return {"spec": {"containers": containers}}


def test_cpu_and_memory_follow_by_the_subresource_alone(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        pods = a_cluster.collection("pods")
        made = await client.create(pods, a_kernel(a_cluster))
        name = made["metadata"]["name"]
        change = with_amounts(made, cpu="3500m", memory="9Gi")
        error = await refused(client.patch(pods, name, change))
        assert (error.code, error.reason) == (422, "Invalid")
        assert "spec: Forbidden: pod updates may not change fields other than" in str(error)
        resized = await client.patch(pods, name, change, "resize")
        (container,) = resized["spec"]["containers"]
        assert container["resources"]["limits"] == {"aliquot.dev/kernel": "1", "cpu": "3500m", "memory": "9Gi"}
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert resized["metadata"]["generation"] == made["metadata"]["generation"] + 1

    with_client(a_cluster, act)


def test_a_pod_without_limits_gets_some_by_a_resize(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        pods = a_cluster.collection("pods")
        made = await client.create(pods, a_kernel(a_cluster, cpus=None, memory=None))
        resized = await client.patch(
            pods, made["metadata"]["name"], with_amounts(made, cpu="2", memory="4Gi"), "resize"
        )
        limits = resized["spec"]["containers"][0]["resources"]["limits"]
        assert limits == {"aliquot.dev/kernel": "1", "cpu": "2", "memory": "4Gi"}

    with_client(a_cluster, act)


def test_more_than_its_node_has_is_refused(a_cluster: Cluster, a_node: FakeNode) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        pods = a_cluster.collection("pods")
        made = await client.create(pods, a_kernel(a_cluster, a_node.name))
        name = made["metadata"]["name"]
        bound = await until(client, pods, name, placed)
        error = await refused(client.patch(pods, name, with_amounts(bound, cpu="1000"), "resize"))
        assert (error.code, error.reason) == (403, "Forbidden")
        want = "node didn't have enough allocatable resources: cpu, requested: 1000010, allocatable: 16000"
        assert str(error) == f'pods "{name}" is forbidden: {want}'

    with_client(a_cluster, act)


def test_a_running_pod_is_resized_on_a_node_that_tells_its_amounts_alone(a_cluster: Cluster, a_node: FakeNode) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        pods = a_cluster.collection("pods")
        name = (await client.create(pods, a_kernel(a_cluster, a_node.name)))["metadata"]["name"]
        bound = await until(client, pods, name, placed)
        (told,) = bound["spec"]["containers"]
        status: Object = {"name": told["name"], "image": told["image"], "imageID": "", "ready": True, "restartCount": 0}
        status["state"] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        change = with_amounts(bound, cpu="3500m")
        await client.patch(pods, name, {"status": {"phase": "Running", "containerStatuses": [status]}}, "status")
        error = await refused(client.patch(pods, name, change, "resize"))
        assert (error.code, error.reason) == (422, "Invalid")
        assert "spec: Forbidden: Pod running on node without support for resize" in str(error)
        status["resources"] = {kind: told["resources"][kind] for kind in ("requests", "limits")}
        await client.patch(pods, name, {"status": {"containerStatuses": [status]}}, "status")
        resized = await client.patch(pods, name, change, "resize")
        assert resized["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "3500m"

    with_client(a_cluster, act)


def test_a_bound_pod_ends_after_its_grace_period_and_at_once_without_one(a_cluster: Cluster, a_node: FakeNode) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        pods = a_cluster.collection("pods")
        made = await client.create(pods, a_kernel(a_cluster, a_node.name, grace_seconds=45))
        name, uid = made["metadata"]["name"], made["metadata"]["uid"]
        bound = await until(client, pods, name, placed)
        assert pod_state(bound).phase is PodPhase.STARTING
        await client.delete(pods, name, uid)
        leaving = await client.read(pods, name)
        assert leaving["metadata"]["deletionGracePeriodSeconds"] == 45
        assert pod_state(leaving).phase is PodPhase.ENDING
        await client.delete(pods, name, uid)
        assert (await client.read(pods, name))["metadata"]["deletionTimestamp"] == leaving["metadata"][
            "deletionTimestamp"
        ], "a second deletion does not prolong it"
        error = await refused(client.delete(pods, name, "00000000-0000-0000-0000-000000000000", 0))
        assert (error.code, error.reason) == (409, "Conflict"), "it is of another pod of that name"
        await client.delete(pods, name, uid, 0)
        assert (await refused(client.read(pods, name))).code == 404
        kinds = [one["type"] for one in await events_to_the_end(client, pods, bound["metadata"]["resourceVersion"])]
        assert kinds == [*["MODIFIED"] * (len(kinds) - 1), "DELETED"]

    with_client(a_cluster, act)


async def events_to_the_end(client: ClusterClient, of: Collection, version: str) -> list[Object]:
    """Return the events of the only object until it is gone."""
    events: list[Object] = []
    while not events or events[-1]["type"] != "DELETED":
        events += await first_events(client, of, version, 1)
        version = events[-1]["object"]["metadata"]["resourceVersion"]
    return events


def test_a_pod_that_no_node_has_or_that_has_ended_goes_at_once(a_cluster: Cluster, a_node: FakeNode) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        pods = a_cluster.collection("pods")
        name = (await client.create(pods, a_kernel(a_cluster)))["metadata"]["name"]
        await client.delete(pods, name)
        assert (await refused(client.read(pods, name))).code == 404
        await client.create(pods, a_kernel(a_cluster, a_node.name))
        await until(client, pods, name, placed)
        await client.patch(pods, name, {"status": {"phase": "Succeeded"}}, "status")
        await client.delete(pods, name)
        assert (await refused(client.read(pods, name))).code == 404

    with_client(a_cluster, act)


def test_a_secret_goes_with_its_pod(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        pods, secrets = a_cluster.collection("pods"), a_cluster.collection("secrets")
        made = await client.create(pods, a_kernel(a_cluster))
        secret = relay_secret(replace(CLUSTER, namespace=a_cluster.namespace, owner=None), RECORD, KEYS)
        owner = {"apiVersion": "v1", "kind": "Pod"} | {one: made["metadata"][one] for one in ("name", "uid")}
        secret["metadata"]["ownerReferences"] = [owner]
        name = (await client.create(secrets, secret))["metadata"]["name"]
        await client.delete(pods, made["metadata"]["name"])
        await until(client, secrets, name, lambda one: not one)

    with_client(a_cluster, act)


def test_an_eviction_marks_the_pod_with_its_reason(a_cluster: Cluster, a_node: FakeNode) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        pods = a_cluster.collection("pods")
        name = (await client.create(pods, a_kernel(a_cluster, a_node.name)))["metadata"]["name"]
        await until(client, pods, name, placed)
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        await client.post(f"{pods.path}/{name}/eviction", eviction)
        found = await client.read(pods, name)
        assert "deletionTimestamp" in found["metadata"]
        assert condition(found, "DisruptionTarget")["reason"] == "EvictionByEvictionAPI"
        state = pod_state(found)
        want = "the cluster evicted it: an administrator or a program drained its node (Eviction API: evicting)"
        assert (state.phase, state.reason) == (PodPhase.EVICTED, want)

    with_client(a_cluster, act)
