"""The double's faults and a pod's life in it: what a test of the gateway may order, and no real server does at will."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from api_double.server import ApiDouble
from api_double.store import RESOURCES, Failure

from jupyter_aliquot.provisioner.kubernetes.client import (
    ClusterAwayError,
    ClusterClient,
    ClusterError,
    Collection,
    find_configuration,
)
from jupyter_aliquot.provisioner.kubernetes.states import refusal_text

from .conformance.asking import a_map, refused, with_client
from .conftest import Cluster

PODS, QUOTAS = RESOURCES["pods"], RESOURCES["resourcequotas"]


def a_pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "kernel", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def test_a_watch_from_before_a_compaction_is_too_old(a_double: ApiDouble, on_double: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        _, version = await client.list(maps)
        await client.create(maps, a_map("w"))
        a_double.store.compact()

        async def watch() -> None:
            async for _ in client.watch(maps, version):
                pass

        error = await refused(watch())
        assert (error.code, error.reason) == (410, "Expired")
        assert str(error).startswith(f"too old resource version: {version} (")

    with_client(on_double, act)


def test_a_watch_in_which_nothing_happens_has_bookmarks(a_double: ApiDouble, on_double: Cluster) -> None:
    a_double.bookmark_seconds = 0.02

    async def act(client: ClusterClient, maps: Collection) -> None:
        _, before = await client.list(maps)
        await client.create(on_double.collection("pods"), a_pod("p"))
        marks = []
        async for event in client.watch(maps, before):
            marks += [event["object"]] if event["type"] == "BOOKMARK" else []
            if len(marks) == 2:
                break
        assert [one["kind"] for one in marks] == ["ConfigMap"] * 2
        assert int(marks[-1]["metadata"]["resourceVersion"]) > int(before), "what it was not told, it need not ask for"

    with_client(on_double, act)


def test_a_busy_server_says_when_to_come_again(a_double: ApiDouble, on_double: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        a_double.failures.append(Failure(429, "TooManyRequests", "too many requests", retry_after=7))
        error = await refused(client.list(maps))
        assert (error.code, error.retry_after) == (429, 7.0)
        assert len(a_double.requests) == 1, "the client does not wait and try again by itself"
        assert "busy" in refusal_text(error)

    with_client(on_double, act)


def test_a_server_that_is_away_is_told_as_such(a_double: ApiDouble, on_double: Cluster) -> None:
    a_double.close()
    error = with_client(on_double, lambda client, maps: refused(client.list(maps)))
    assert isinstance(error, ClusterAwayError)
    assert "does not answer" in refusal_text(error)


def test_rights_and_tokens_are_asked_for(a_double: ApiDouble, on_double: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        a_double.allowed = [("list", "pods")]
        error = await refused(client.list(maps))
        assert (error.code, error.reason) == (403, "Forbidden")
        assert "lacks a right" in refusal_text(error)
        a_double.token = "right"
        assert (await refused(client.list(maps))).code == 401

    with_client(on_double, act)


def test_a_quota_and_an_admission_webhook_refuse_in_their_own_words(a_double: ApiDouble, on_double: Cluster) -> None:
    def refuse(resource: str, told: dict[str, Any]) -> None:
        if resource == "pods" and told["metadata"]["name"] == "bad":
            raise Failure(403, "Forbidden", 'admission webhook "policy.example" denied the request: no such image')

    a_double.store.admission.append(refuse)
    a_double.store.create(QUOTAS, "default", {"metadata": {"name": "rq"}, "spec": {"hard": {"pods": "1"}}})

    async def act(client: ClusterClient, maps: Collection) -> None:
        pods = on_double.collection("pods")
        webhook = await refused(client.create(pods, a_pod("bad")))
        assert refusal_text(webhook).startswith("The cluster refused the kernel's pod: admission webhook")
        await client.create(pods, a_pod("first"))
        quota = await refused(client.create(pods, a_pod("second")))
        assert refusal_text(quota).startswith("The namespace's quota has no room")

    with_client(on_double, act)


def test_a_bound_pod_ends_after_its_grace_period(a_double: ApiDouble, on_double: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        pods = on_double.collection("pods")
        await client.create(pods, a_pod("p"))
        target = {"target": {"kind": "Node", "name": "n"}}
        path = f"{pods.path}/p/binding"
        await asyncio.to_thread(client.blocking_call, "POST", path, {}, target, "application/json")
        again = asyncio.to_thread(client.blocking_call, "POST", path, {}, target, "application/json")
        assert "already assigned" in str(await refused(again))
        await client.delete(pods, "p")
        assert (await client.read(pods, "p"))["metadata"]["deletionGracePeriodSeconds"] == 30
        a_double.store.end_grace("default", "p")
        assert (await refused(client.read(pods, "p"))).code == 404

    with_client(on_double, act)


def test_a_pod_that_no_node_has_ends_at_once(a_double: ApiDouble, on_double: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        pods = on_double.collection("pods")
        await client.create(pods, a_pod("p"))
        await client.delete(pods, "p")
        assert (await refused(client.read(pods, "p"))).code == 404

    with_client(on_double, act)


def test_resources_change_by_the_subresource_alone(a_double: ApiDouble, on_double: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        pods = on_double.collection("pods")
        await client.create(pods, a_pod("p"))
        change = {"spec": {"containers": [{"name": "kernel", "resources": {"requests": {"cpu": "2"}}}]}}
        assert (await refused(client.patch(pods, "p", change))).code == 422
        resized = await client.patch(pods, "p", change, "resize")
        assert resized["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2"}}
        assert resized["spec"]["containers"][0]["image"] == "i", "all else is left as it was"
        assert resized["metadata"]["generation"] == 2

    with_client(on_double, act)


def test_an_eviction_marks_the_pod(a_double: ApiDouble, on_double: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        pods = on_double.collection("pods")
        await client.create(pods, a_pod("p", nodeName="n"))
        path = f"{pods.path}/p/eviction"
        await asyncio.to_thread(client.blocking_call, "POST", path, {}, {"metadata": {"name": "p"}}, "application/json")
        found = await client.read(pods, "p")
        assert [one["reason"] for one in found["status"]["conditions"]] == ["EvictionByEvictionAPI"]
        assert "deletionTimestamp" in found["metadata"]

    with_client(on_double, act)


@pytest.mark.parametrize(
    ("kind", "body", "want"),
    [
        ("application/merge-patch+json", {"data": {"a": None, "b": "2"}}, {"b": "2"}),
        ("application/strategic-merge-patch+json", {"data": {"b": "2"}}, {"a": "1", "b": "2"}),
        ("application/json-patch+json", [{"op": "add", "path": "/data/b", "value": "2"}], {"a": "1", "b": "2"}),
        ("application/json-patch+json", [{"op": "test", "path": "/data/a", "value": "9"}], 422),
        ("application/json", {}, 415),
    ],
)
def test_each_kind_of_patch_does_what_it_says(on_double: Cluster, kind: str, body: Any, want: Any) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        await client.create(maps, a_map("w", a="1"))
        work = asyncio.to_thread(client.blocking_call, "PATCH", f"{maps.path}/w", {}, body, kind)
        if isinstance(want, int):
            assert (await refused(work)).code == want
        else:
            assert (await work)["data"] == want

    with_client(on_double, act)


def test_no_configuration_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ClusterError, match="Set KUBECONFIG"):
        find_configuration()
