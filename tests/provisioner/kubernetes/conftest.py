"""An API server and a namespace of its own for each test: the double, or a real server by KUBECONFIG."""

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

from jupyter_aliquot.provisioner.kubernetes.client import ClusterClient, Collection, find_configuration

__all__ = ["a_double"]

Run = Callable[[Coroutine[Any, Any, Any]], Any]
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Cluster:
    """A namespace on a server, and how to reach it."""

    configuration: Configuration
    namespace: str

    def client(self) -> ClusterClient:
        return ClusterClient(self.configuration)

    def collection(self, plural: str = "configmaps", selector: str = "") -> Collection:
        return Collection("/api/v1", plural, self.namespace, selector)


@pytest.fixture
def on_double(a_double: ApiDouble) -> Cluster:
    """The namespace ``default`` of the double."""
    return Cluster(configuration_of(a_double), "default")


@pytest.fixture
def a_cluster() -> Iterator[Cluster]:
    """A new namespace: of the real server that KUBECONFIG names, else of the double."""
    name = f"aliquot-test-{uuid.uuid4().hex[:8]}"
    double = None if os.environ.get("KUBECONFIG") else ApiDouble()
    configuration = find_configuration() if double is None else configuration_of(double)
    client = ClusterClient(configuration)
    client.blocking_call("POST", "/api/v1/namespaces", {}, {"metadata": {"name": name}}, "application/json")
    yield Cluster(configuration, name)
    client.blocking_call("DELETE", f"/api/v1/namespaces/{name}", {}, {}, "application/json")
    asyncio.run(client.close())
    if double is not None:
        double.close()


def until(claim: Callable[[], object]) -> Coroutine[Any, Any, None]:
    """Wait until the claim holds, while other tasks run."""

    async def look() -> None:
        while True:
            if claim():
                return
            await asyncio.sleep(0.005)

    return asyncio.wait_for(look(), PATIENCE_SECONDS)
