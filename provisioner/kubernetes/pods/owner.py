"""The gateway's own Deployment as the owner of the objects that it makes: the cluster removes them with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jupyter_aliquot.provisioner.kubernetes.client import ClusterClient, Collection
from jupyter_aliquot.provisioner.kubernetes.settings import Cluster, Owner


async def with_owner(client: ClusterClient, cluster: Cluster) -> Cluster:
    """Return the cluster with its owner, which is read once. Raises ClusterError."""
    if not _is_sought(cluster):
        return cluster
    return _owned(cluster, await client.read(_deployments(cluster), cluster.deployment))


def with_owner_now(client: ClusterClient, cluster: Cluster) -> Cluster:
    """Do the same in a thread. Blocks."""
    if not _is_sought(cluster):
        return cluster
    path = f"{_deployments(cluster).path}/{cluster.deployment}"
    return _owned(cluster, client.blocking_call("GET", path, {}, None, "application/json"))


def _is_sought(cluster: Cluster) -> bool:
    return bool(cluster.deployment) and cluster.owner is None


def _deployments(cluster: Cluster) -> Collection:
    return Collection("/apis/apps/v1", "deployments", cluster.namespace)


def _owned(cluster: Cluster, deployment: Mapping[str, Any]) -> Cluster:
    return replace(
        cluster, owner=Owner("apps/v1", "Deployment", cluster.deployment, str(deployment["metadata"]["uid"]))
    )
