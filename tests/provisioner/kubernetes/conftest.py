"""An API server and a namespace of its own for each test: the double, or a real server by ALIQUOT_KUBECONFIG."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from api_double.fixtures import a_double, configuration_of
from api_double.server import ApiDouble
from kubernetes.client import Configuration
from kubernetes.config import load_kube_config

from jupyter_aliquot.provisioner.kubernetes.client import ClusterClient, Collection

__all__ = ["a_double"]

Run = Callable[[Coroutine[Any, Any, Any]], Any]
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Cluster:
    """A namespace on a server, and how to reach it."""

    configuration: Configuration
    namespace: str
    double: ApiDouble | None = None

    def client(self) -> ClusterClient:
        return ClusterClient(self.configuration)

    def collection(self, plural: str = "configmaps", selector: str = "") -> Collection:
        return Collection("/api/v1", plural, self.namespace, selector)

    def forget(self) -> None:
        """Have the server forget its first versions, which a real one has already."""
        if self.double is not None:
            self.double.store.compact()


@pytest.fixture
def on_double(a_double: ApiDouble) -> Cluster:
    """The namespace ``default`` of the double."""
    return Cluster(configuration_of(a_double), "default", a_double)


@pytest.fixture
def a_cluster() -> Iterator[Cluster]:
    """A new namespace: of the real server that ALIQUOT_KUBECONFIG names, else of the double.

    A developer's own KUBECONFIG has the tests do nothing in that cluster.
    """
    name = f"aliquot-test-{uuid.uuid4().hex[:8]}"
    file = os.environ.get("ALIQUOT_KUBECONFIG")
    double = None if file else ApiDouble()
    configuration = Configuration() if double is None else configuration_of(double)
    if file:
        load_kube_config(file, client_configuration=configuration)
    client = ClusterClient(configuration)
    client.blocking_call("POST", "/api/v1/namespaces", {}, {"metadata": {"name": name}}, "application/json")
    if double is None:
        _await_account(client, name)
    yield Cluster(configuration, name, double)
    client.blocking_call("DELETE", f"/api/v1/namespaces/{name}", {}, {}, "application/json")
    asyncio.run(client.close())
    if double is not None:
        double.close()


def _await_account(client: ClusterClient, namespace: str) -> None:
    """Wait for a new namespace's ServiceAccount ``default``, without which it takes no pod."""

    async def look() -> None:
        async for event in client.watch(Collection("/api/v1", "serviceaccounts", namespace), "0"):
            if event["type"] == "ADDED" and event["object"]["metadata"]["name"] == "default":
                return

    asyncio.run(asyncio.wait_for(look(), PATIENCE_SECONDS))


def until(claim: Callable[[], object]) -> Coroutine[Any, Any, None]:
    """Wait until the claim holds, while other tasks run."""

    async def look() -> None:
        while True:
            if claim():
                return
            await asyncio.sleep(0.005)

    return asyncio.wait_for(look(), PATIENCE_SECONDS)
