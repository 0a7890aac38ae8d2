"""Watches: their order, their resumption, bookmarks, and the end of a version that the server has forgotten."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from jupyter_aliquot.provisioner.kubernetes.client import GONE, OPENED, ClusterClient, Collection
from jupyter_aliquot.provisioner.kubernetes.watch import ResourceWatch
from tests.provisioner.kubernetes.conftest import Cluster

from .asking import Object, a_map, first_events, refused, with_client

OLDEST = "1"  # a version that each server has forgotten


def test_a_watch_tells_each_change_after_its_version(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        _, version = await client.list(maps)
        await client.create(maps, a_map("w", k="1"))
        await client.patch(maps, "w", {"data": {"k": "2"}})
        await client.delete(maps, "w")
        only = Collection(maps.prefix, maps.plural, maps.namespace, "is=w")
        events = await first_events(client, only, version, 3)
        assert [one["type"] for one in events] == ["ADDED", "MODIFIED", "DELETED"]
        versions = [int(one["object"]["metadata"]["resourceVersion"]) for one in events]
        assert versions == sorted(set(versions))
        again = await first_events(client, only, str(versions[0]), 2)
        assert [one["type"] for one in again] == ["MODIFIED", "DELETED"]

    with_client(a_cluster, act)


def test_an_object_that_stops_matching_is_deleted_for_the_watch(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        _, version = await client.list(maps)
        await client.create(maps, a_map("w"))
        await client.patch(maps, "w", {"metadata": {"labels": {"is": "another"}}})
        only = Collection(maps.prefix, maps.plural, maps.namespace, "is=w")
        events = await first_events(client, only, version, 2)
        assert [one["type"] for one in events] == ["ADDED", "DELETED"]

    with_client(a_cluster, act)


def test_a_version_that_is_forgotten_is_told(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        await client.create(maps, a_map("w"))
        a_cluster.forget()
        error = await refused(first_events(client, maps, OLDEST, 1))
        assert (error.code, error.reason) == (GONE, "Expired")
        assert str(error).startswith("too old resource version: 1 (")

    with_client(a_cluster, act)


def test_our_watch_lists_again_when_its_version_is_forgotten(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        await client.create(maps, a_map("w"))
        a_cluster.forget()
        only = Collection(maps.prefix, maps.plural, maps.namespace, "is=w")
        watch = ResourceWatch(client, only, asyncio.sleep, lambda: 0.0, logging.getLogger("test"))
        gone = a_map("gone")
        gone["metadata"] |= {"uid": "an-old-uid", "resourceVersion": OLDEST}
        watch.take_list([gone], OLDEST)
        names: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

        def note(before: Object | None, after: Object | None) -> None:
            kind = "deleted" if after is None else "changed" if before is not None else "added"
            told = after or before or {}
            names.put_nowait((kind, told["metadata"]["name"]))

        watch.listen(note)
        running = asyncio.ensure_future(watch.run())
        try:
            assert {await names.get(), await names.get()} == {("deleted", "gone"), ("added", "w")}
            assert watch.lists == 2
            await client.patch(maps, "w", {"data": {"k": "1"}})
            assert await names.get() == ("changed", "w")
            await client.delete(maps, "w")
            assert await names.get() == ("deleted", "w")
            assert watch.lists == 2, "it watches on from the new list"
        finally:
            running.cancel()

    with_client(a_cluster, act)


def blocking_watch(client: ClusterClient, path: str, version: str, seconds: int) -> list[Any]:
    """Return the events of a watch until the server ends it."""
    query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version, "timeoutSeconds": str(seconds)}
    response = client.open("GET", path, query, None, "application/json", 60.0)
    return [json.loads(line) for line in b"".join(response.stream()).splitlines() if line]


def test_a_watch_ends_in_its_time_after_a_bookmark(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        _, version = await client.list(maps)
        await client.create(maps, a_map("w"))
        told = await asyncio.to_thread(blocking_watch, client, maps.path, version, 3)
        assert "BOOKMARK" in {one["type"] for one in told}
        bookmark = next(one["object"] for one in told if one["type"] == "BOOKMARK")
        assert bookmark["kind"] == "ConfigMap"
        at = bookmark["metadata"]["resourceVersion"]
        assert int(at) > int(version)
        await client.delete(maps, "w")
        events = await first_events(client, Collection(maps.prefix, maps.plural, maps.namespace, "is=w"), at, 1)
        assert [one["type"] for one in events] == ["DELETED"], "a bookmark's version is one to resume from"

    with_client(a_cluster, act)


def test_a_watch_answers_before_there_is_an_event(a_cluster: Cluster) -> None:
    async def act(client: ClusterClient, maps: Collection) -> None:
        _, version = await client.list(maps)
        async for event in client.watch(maps, version):
            assert event["type"] == OPENED
            break

    with_client(a_cluster, act)
