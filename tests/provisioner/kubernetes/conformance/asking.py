"""The questions of the conformance suite, in the words that its tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from jupyter_aliquot.provisioner.kubernetes.client import OPENED, ClusterClient, ClusterError, Collection
from tests.provisioner.kubernetes.conftest import PATIENCE_SECONDS, Cluster

T = TypeVar("T")
Object = dict[str, Any]


def with_client(
    cluster: Cluster, act: Callable[[ClusterClient, Collection], Awaitable[T]], seconds: float = PATIENCE_SECONDS
) -> T:
    """Return what *act* returns; it gets a client, and the ConfigMaps of the namespace."""

    async def run() -> T:
        client = cluster.client()
        try:
            return await asyncio.wait_for(act(client, cluster.collection()), seconds)
        finally:
            await client.close()

    return asyncio.run(run())


def a_map(name: str, **data: str) -> Object:
    return {"metadata": {"name": name, "labels": {"is": name}}, "data": data}


async def refused(work: Awaitable[object]) -> ClusterError:
    with pytest.raises(ClusterError) as found:
        await work
    return found.value


async def first_events(client: ClusterClient, of: Collection, version: str, count: int) -> list[Object]:
    events: list[Object] = []
    async for event in client.watch(of, version):
        if event["type"] in (OPENED, "BOOKMARK"):
            continue
        events.append(event)
        if len(events) == count:
            break
    return events


async def until(client: ClusterClient, of: Collection, name: str, claim: Callable[[Object], object]) -> Object:
    """Return the object of a name as soon as the claim holds for it. One that is gone is an empty object."""
    listed, version = await client.list(of)
    found = next((one for one in listed if one["metadata"]["name"] == name), {})
    if claim(found):
        return found
    async for event in client.watch(of, version):
        told = event["object"]
        if event["type"] in (OPENED, "BOOKMARK") or told["metadata"]["name"] != name:
            continue
        found = {} if event["type"] == "DELETED" else told
        if claim(found):
            return found
    raise AssertionError(f"the watch of {of.path} ended, and {name} is {found}")


def condition(told: Object, kind: str) -> Object:
    """Return a condition of an object; an empty one without it."""
    conditions = (told.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == kind), {})


def placed(pod: Object) -> bool:
    """Return whether the scheduler told that it placed a pod."""
    return bool(condition(pod, "PodScheduled").get("status") == "True")
