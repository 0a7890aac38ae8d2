"""A node without a kubelet, on which the server's own scheduler, or the double's, places the tests' pods."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pytest
from node_double.control import ControlDouble

from jupyter_aliquot.provisioner.kubernetes.client import ClusterError, Collection
from tests.provisioner.kubernetes.conftest import Cluster

NODES = Collection("/api/v1", "nodes", "")
LEASES = Collection("/apis/coordination.k8s.io/v1", "leases", "kube-node-lease")
AMOUNTS = {"cpu": "16", "memory": "64Gi", "pods": "110", "aliquot.dev/kernel": "2"}


@dataclass(frozen=True)
class FakeNode:
    """A node of the cluster that runs nothing: a test does what its kubelet would."""

    name: str


@pytest.fixture
def a_node(a_cluster: Cluster) -> Iterator[FakeNode]:
    name = f"{a_cluster.namespace}-node"
    client = a_cluster.client()

    def call(method: str, path: str, body: dict[str, Any], kind: str = "application/json") -> None:
        client.blocking_call(method, path, {}, body, kind)

    def remove(path: str) -> None:
        try:
            call("DELETE", path, {})
        except ClusterError as error:
            if error.code != 404:  # a test removed it
                raise

    with ExitStack() as after:
        after.callback(lambda: asyncio.run(client.close()))
        if a_cluster.double is not None:
            after.enter_context(ControlDouble(a_cluster.double.url, silence_seconds=1e9))
        labels = {"kubernetes.io/hostname": name}
        call("POST", NODES.path, {"metadata": {"name": name, "labels": labels}, "spec": {}})
        after.callback(remove, f"{NODES.path}/{name}")
        now = datetime.now(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": f"{now[:19]}Z"}
        status = {"capacity": AMOUNTS, "allocatable": AMOUNTS, "conditions": [ready]}
        call("PATCH", f"{NODES.path}/{name}/status", {"status": status}, "application/merge-patch+json")
        if a_cluster.double is None:
            spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}
            call("POST", LEASES.path, {"metadata": {"name": name}, "spec": spec})
            after.callback(remove, f"{LEASES.path}/{name}")
        yield FakeNode(name)
