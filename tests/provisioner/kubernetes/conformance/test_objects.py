"""Objects in general, as an API server keeps, changes and removes them."""

from __future__ import annotations

import asyncio

from jupyter_aliquot.provisioner.kubernetes.client import ClusterClient, Collection
from jupyter_aliquot.provisioner.kubernetes.holding.claims import CLAIMS_PREFIX
from jupyter_aliquot.provisioner.kubernetes.states import refusal_text
from tests.provisioner.kubernetes.conftest import Cluster

from .asking import a_map, first_events, refused, with_client


def test_a_created_object_is_read_listed_and_deleted(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        made = await client.create(maps, a_map("w", k="1"))
        assert (made["kind"], made["metadata"]["namespace"]) == ("ConfigMap", a_cluster.namespace)
        assert (await client.read(maps, "w"))["metadata"]["uid"] == made["metadata"]["uid"]
        found, version = await client.list(Collection(maps.prefix, maps.plural, maps.namespace, "is=w"))
        assert [one["metadata"]["name"] for one in found] == ["w"]
        assert int(version) >= int(made["metadata"]["resourceVersion"])
        await client.delete(maps, "w")
        await client.delete(maps, "w")  # a missing one is no error
        assert (await refused(client.read(maps, "w"))).code == 404

    with_client(a_cluster, act)


def test_a_name_that_is_taken_is_a_conflict(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        await client.create(maps, a_map("w"))
        error = await refused(client.create(maps, a_map("w")))
        assert (error.code, error.reason, str(error)) == (409, "AlreadyExists", 'configmaps "w" already exists')

    with_client(a_cluster, act)


def test_a_change_by_a_stale_version_is_a_conflict_and_one_without_wins(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        made = await client.create(maps, a_map("w", k="1"))
        await client.patch(maps, "w", {"data": {"k": "2"}})
        stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"k": "3"}}
        error = await refused(client.patch(maps, "w", stale))
        assert (error.code, error.reason) == (409, "Conflict")
        assert "the object has been modified; please apply your changes" in str(error)
        assert (await client.patch(maps, "w", {"data": {"l": "4"}}))["data"] == {"k": "2", "l": "4"}
        assert (await client.patch(maps, "w", {"data": {"l": None}}))["data"] == {"k": "2"}

    with_client(a_cluster, act)


def test_a_change_of_nothing_keeps_the_version(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        made = await client.create(maps, a_map("w", k="1"))
        again = await client.patch(maps, "w", {"data": {"k": "1"}})
        assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]

    with_client(a_cluster, act)


def test_a_deletion_of_another_uid_is_a_conflict(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        made = await client.create(maps, a_map("w"))
        error = await refused(client.delete(maps, "w", "00000000-0000-0000-0000-000000000000"))
        assert (error.code, error.reason) == (409, "Conflict")
        assert "the UID in the precondition" in str(error)
        await client.delete(maps, "w", made["metadata"]["uid"])

    with_client(a_cluster, act)


def test_a_missing_namespace_is_told(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        error = await refused(client.create(Collection(maps.prefix, maps.plural, "nons"), a_map("w")))
        assert (error.code, str(error)) == (404, 'namespaces "nons" not found')

    with_client(a_cluster, act)


def test_an_object_of_an_owner_that_is_gone_is_collected(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        _, version = await client.list(maps)
        owner = await client.create(maps, a_map("owner"))
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
        kid = a_map("kid")
        kid["metadata"]["ownerReferences"] = [reference]
        await client.create(maps, kid)
        await client.delete(maps, "owner")
        only = Collection(maps.prefix, maps.plural, maps.namespace, "is=kid")
        events = await first_events(client, only, version, 2)
        assert [one["type"] for one in events] == ["ADDED", "DELETED"]

    with_client(a_cluster, act)


def test_an_object_of_an_owner_with_another_uid_is_collected(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        _, version = await client.list(maps)
        await client.create(maps, a_map("owner"))
        kid = a_map("kid")
        wrong = "00000000-0000-0000-0000-000000000000"
        kid["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": wrong}]
        await client.create(maps, kid)
        only = Collection(maps.prefix, maps.plural, maps.namespace, "is=kid")
        assert [one["type"] for one in await first_events(client, only, version, 2)] == ["ADDED", "DELETED"]

    with_client(a_cluster, act)


def test_a_finalizer_holds_an_object_until_it_is_removed(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        held = a_map("w")
        held["metadata"]["finalizers"] = ["aliquot.dev/test"]
        await client.create(maps, held)
        await client.delete(maps, "w")
        found = await client.read(maps, "w")
        assert "deletionTimestamp" in found["metadata"]
        more = {"metadata": {"finalizers": ["aliquot.dev/test", "aliquot.dev/more"]}}
        error = await refused(client.patch(maps, "w", more))
        assert (error.code, "no new finalizers can be added" in str(error)) == (422, True)
        await client.patch(maps, "w", {"metadata": {"finalizers": None}})
        assert (await refused(client.read(maps, "w"))).code == 404

    with_client(a_cluster, act)


def test_a_resource_claims_spec_cannot_be_changed(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        claims = Collection(CLAIMS_PREFIX, "resourceclaims", a_cluster.namespace)
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
        await client.create(claims, {"metadata": {"name": "w"}, "spec": {"devices": {"requests": [request]}}})
        other = {"name": "gpu", "exactly": {"deviceClassName": "mig.nvidia.com"}}
        error = await refused(client.patch(claims, "w", {"spec": {"devices": {"requests": [other]}}}))
        assert (error.code, "field is immutable" in str(error)) == (422, True)
        await client.delete(claims, "w")
        assert (await refused(client.read(claims, "w"))).code == 404, "nothing uses it"

    with_client(a_cluster, act)


def test_a_version_of_the_future_is_told(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        path = f"{maps.path}?resourceVersion=999999999"
        error = await refused(asyncio.to_thread(client.blocking_call, "GET", path, {}, None, "application/json"))
        assert (error.code, error.reason, error.retry_after) == (504, "Timeout", 1.0)
        assert "Too large resource version: 999999999" in str(error)

    with_client(a_cluster, act)


def test_a_namespace_that_goes_takes_nothing_new(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        spaces, name = Collection("/api/v1", "namespaces", ""), f"{a_cluster.namespace}-going"
        await client.create(spaces, {"metadata": {"name": name, "finalizers": ["aliquot.dev/test"]}})
        await client.delete(spaces, name)
        try:
            error = await refused(client.create(Collection(maps.prefix, maps.plural, name), a_map("w")))
            assert (error.code, error.reason) == (403, "Forbidden")
            assert f"unable to create new content in namespace {name} because it is being terminated" in str(error)
            assert refusal_text(error).startswith("The namespace of the kernels is being deleted: ")
        finally:
            await client.patch(spaces, name, {"metadata": {"finalizers": None}})

    with_client(a_cluster, act)


def test_a_change_of_what_is_not_there_is_told(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        error = await refused(client.patch(maps, "w", {"data": {"k": "1"}}))
        assert (error.code, error.reason, str(error)) == (404, "NotFound", 'configmaps "w" not found')

    with_client(a_cluster, act)


def test_an_unknown_path_is_no_object(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        error = await refused(client.list(Collection("/apis/none.example/v1", "nothings", maps.namespace)))
        assert error.code == 404

    with_client(a_cluster, act)
