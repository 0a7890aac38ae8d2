"""Leases, the documents of replicas, and the questions about rights and tokens."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from jupyter_aliquot.gateway.nodes.service_accounts import AUDIENCE, ServiceAccountTokens
from jupyter_aliquot.gateway.nodes.tokens import TokenRefusedError
from jupyter_aliquot.provisioner.kubernetes.client import ClusterClient, Collection
from jupyter_aliquot.provisioner.kubernetes.documents import Documents
from jupyter_aliquot.provisioner.kubernetes.lease import Leadership
from jupyter_aliquot.provisioner.kubernetes.settings import Cluster as Settings
from tests.provisioner.kubernetes.conftest import Cluster

from .asking import placed, refused, until, with_client
from .conftest import FakeNode
from .test_pods import a_kernel


def a_replica(cluster: Cluster, name: str) -> Leadership:
    return Leadership(cluster.configuration, cluster.namespace, "gateway", name)


def leases(cluster: Cluster) -> Collection:
    return Collection("/apis/coordination.k8s.io/v1", "leases", cluster.namespace)


def test_another_replica_leads_when_the_first_renews_no_more(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        for name in ("a", "b"):
            await asyncio.to_thread(a_replica(a_cluster, name).acquire)
            assert (await client.read(leases(a_cluster), "gateway"))["spec"]["holderIdentity"] == name

    with_client(a_cluster, act)


def test_a_lease_that_another_replica_changed_is_a_conflict(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        of = leases(a_cluster)
        made = await client.create(of, {"metadata": {"name": "gateway"}, "spec": {"holderIdentity": "a"}})
        await client.patch(of, "gateway", {"spec": {"holderIdentity": "b"}})
        stale = {**made, "spec": {"holderIdentity": "c"}}
        put = asyncio.to_thread(client.blocking_call, "PUT", f"{of.path}/gateway", {}, stale, "application/json")
        error = await refused(put)
        assert (error.code, error.reason) == (409, "Conflict")
        want = 'Operation cannot be fulfilled on leases.coordination.k8s.io "gateway": the object has been modified'
        assert str(error).startswith(want)
        assert (await client.read(of, "gateway"))["spec"]["holderIdentity"] == "b"

    with_client(a_cluster, act)


def test_a_time_that_is_none_is_refused(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        told = {"metadata": {"name": "gateway"}, "spec": {"renewTime": "7"}}
        error = await refused(client.create(leases(a_cluster), told))
        assert (error.code, error.reason) == (400, "BadRequest")

    with_client(a_cluster, act)


def test_documents_are_written_changed_read_and_removed(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        documents = Documents(client, Settings(a_cluster.namespace, "gateway", "relay:1"), "record")
        for key, text in (("a", "1"), ("b", "2"), ("a", "3")):
            await asyncio.to_thread(documents.write, key, text)
        assert await asyncio.to_thread(documents.read) == {"a": "3", "b": "2"}
        for _ in range(2):
            await asyncio.to_thread(documents.remove, "a")
        assert await asyncio.to_thread(documents.read) == {"b": "2"}

    with_client(a_cluster, act)


def test_the_server_tells_its_version_and_ones_own_rights(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        version = await client.get("/version")
        assert (version["major"], int(version["minor"]) >= 34) == ("1", True)
        attributes = {"namespace": a_cluster.namespace, "verb": "create", "resource": "pods", "group": ""}
        asked = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        told = {**asked, "spec": {"resourceAttributes": attributes}}
        answer = await client.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", told)
        assert answer["status"]["allowed"] is True

    with_client(a_cluster, act)


def test_a_token_that_is_none_is_refused_in_words(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, _: Collection) -> None:
        tokens = ServiceAccountTokens("aliquot-nodes/aliquot-agent", client)
        with pytest.raises(TokenRefusedError, match=r"does not know the agent's token: .*invalid bearer token"):
            await tokens.allowed_nodes("no-token")

    with_client(a_cluster, act)


async def ask_on(tokens: ServiceAccountTokens, token: str) -> None:
    """Ask for the nodes of a token until it is refused: the server remembers for 10 s that it knew one."""
    while True:
        await tokens.allowed_nodes(token)
        await asyncio.sleep(0.2)


def test_a_token_of_a_pod_names_its_node(a_cluster: Cluster, a_node: FakeNode) -> None:
    if a_cluster.double is not None:
        pytest.skip("the double makes no tokens: its tests say what each is")

    async def act(client: ClusterClient, _: Collection) -> None:
        pods, accounts = a_cluster.collection("pods"), a_cluster.collection("serviceaccounts")
        await client.create(accounts, {"metadata": {"name": "agent"}})
        told: dict[str, Any] = a_kernel(a_cluster, a_node.name)
        told["spec"]["serviceAccountName"] = "agent"
        made = await client.create(pods, told)
        name = made["metadata"]["name"]
        await until(client, pods, name, placed)
        pod = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": made["metadata"]["uid"]}
        account = f"{a_cluster.namespace}/agent"
        known = ServiceAccountTokens(account, client)

        async def token(audience: str) -> str:
            spec = {"audiences": [audience], "expirationSeconds": 3600, "boundObjectRef": pod}
            request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
            return str((await client.post(f"{accounts.path}/agent/token", request))["status"]["token"])

        its = await token(AUDIENCE)
        assert await known.allowed_nodes(its) == {a_node.name}
        with pytest.raises(TokenRefusedError, match="does not know the agent's token"):
            await known.allowed_nodes(await token("another"))
        with pytest.raises(TokenRefusedError, match="agents are another/agent"):
            await replace(known, account="another/agent").allowed_nodes(its)
        await client.delete(pods, name, grace_seconds=0)
        with pytest.raises(TokenRefusedError, match="does not know the agent's token"):
            await ask_on(known, its)

    with_client(a_cluster, act)
