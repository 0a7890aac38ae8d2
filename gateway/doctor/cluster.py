"""Checks of a Kubernetes cluster (``aliquot doctor --cluster``), with the permissions of the account that runs them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

from jupyter_aliquot.provisioner.errors import EngineError
from jupyter_aliquot.provisioner.kubernetes.client import ClusterClient, ClusterError, find_configuration
from jupyter_aliquot.provisioner.kubernetes.permissions import PERMISSIONS, Permission

from .network_policies import blocking_policies
from .runner import FAIL, OK, WARN, Finding, examine

LEAST_VERSION = (1, 34)
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_LEVEL = "pod-security.kubernetes.io/enforce"
_RESOURCE = "aliquot.dev/kernel"
_POLICIES = "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies"
_GATEWAY = {"app.kubernetes.io/name": "aliquot-gateway"}
_KERNEL = {"app.kubernetes.io/managed-by": "aliquot", "aliquot.dev/role": "kernel"}
_GATEWAY_PORT = 8888
_NUMBER = re.compile(r"\d+")
_APPLY = "kubectl apply -k deploy/kubernetes/base, or one of its overlays"


def check_cluster(namespace: str, kernel_resource: str = _RESOURCE, relay_port: int = 8787) -> list[Finding]:
    """Return the findings on the cluster of this pod, or of the user's kubeconfig."""
    try:
        client = ClusterClient(find_configuration())
    except EngineError as error:
        return [Finding("api", FAIL, str(error), "run it in the gateway's pod, or set KUBECONFIG")]
    try:
        return Cluster(client, namespace, kernel_resource, relay_port).examine()
    finally:
        asyncio.run(client.close())


class Cluster:
    """One cluster, as *client* sees it. Kernels are in *namespace*."""

    def __init__(
        self, client: ClusterClient, namespace: str, kernel_resource: str = _RESOURCE, relay_port: int = 8787
    ) -> None:
        self._client = client
        self._relay_port = relay_port
        self._namespace = namespace
        self._kernel_resource = kernel_resource

    def examine(self) -> list[Finding]:
        """Return all findings; without an answer of the API, that one alone."""
        first = examine([self.check_api])
        if first[0].state == FAIL:
            return first
        return [
            *first,
            *examine(
                [
                    self.check_permissions,
                    self.check_pod_security,
                    self.check_network_policies,
                    self.check_plugins,
                ]
            ),
        ]

    def check_api(self) -> Sequence[Finding]:
        """Check that the API server answers, and its version."""
        try:
            told = self._get("/version")
        except ClusterError as error:
            return [Finding("api", FAIL, str(error), "check the address, the network and the credentials")]
        version = tuple(int(found[0]) for name in ("major", "minor") if (found := _NUMBER.findall(str(told.get(name)))))
        text = str(told.get("gitVersion") or "of an unknown version")
        if version < LEAST_VERSION:
            least = ".".join(map(str, LEAST_VERSION))
            return [Finding("api", FAIL, f"Kubernetes {text}, but {least} is needed", f"upgrade to {least} or newer")]
        return [Finding("api", OK, f"Kubernetes {text}")]

    def check_permissions(self) -> Sequence[Finding]:
        """Check each permission that the gateway needs."""
        missing = [f"{verb} {one.resource}" for one in PERMISSIONS for verb in one.verbs if not self._may(one, verb)]
        if missing:
            remedy = f"run it as the gateway's ServiceAccount, or grant these: {_APPLY}"
            return [Finding("permissions", FAIL, f"not allowed in {self._namespace}: {', '.join(missing)}", remedy)]
        count = sum(len(one.verbs) for one in PERMISSIONS)
        return [Finding("permissions", OK, f"all {count} that the gateway needs")]

    def check_pod_security(self) -> Sequence[Finding]:
        """Check the level of Pod Security that holds for kernels."""
        try:
            found = self._get(f"/api/v1/namespaces/{self._namespace}")
        except ClusterError as error:
            return [Finding("pod security", FAIL, f"the namespace {self._namespace}: {error}", _APPLY)]
        level = ((found.get("metadata") or {}).get("labels") or {}).get(_LEVEL, "")
        if level == "restricted":
            return [Finding("pod security", OK, f"{self._namespace} is restricted")]
        remedy = f"kubectl label namespace {self._namespace} {_LEVEL}=restricted"
        told = f"level {level}" if level else "no level of its own"
        return [Finding("pod security", WARN, f"{self._namespace} has {told}; kernels pass restricted", remedy)]

    def check_network_policies(self) -> Sequence[Finding]:
        """Check that NetworkPolicies let the gateway reach kernels' relays, and agents reach the gateway."""
        try:
            policies = self._get(_POLICIES.format(self._namespace)).get("items") or []
        except ClusterError as error:
            return [Finding("network policies", WARN, f"they cannot be listed: {error}", _APPLY)]
        closed = [
            f"{what} (by {', '.join(names)})"
            for what, pod, peer, port in (
                (f"the gateway to kernels at port {self._relay_port}", _KERNEL, _GATEWAY, self._relay_port),
                ("agents and browsers to the gateway at port 8888", _GATEWAY, None, _GATEWAY_PORT),
            )
            if (names := blocking_policies(policies, pod, peer, port))
        ]
        if closed:
            return [Finding("network policies", FAIL, f"in {self._namespace} they block {'; '.join(closed)}", _APPLY)]
        return [Finding("network policies", OK, f"the {len(policies)} of {self._namespace} block no part of Aliquot")]

    def check_plugins(self) -> Sequence[Finding]:
        """Check the nodes on which an agent is the kubelet's device plugin."""
        try:
            nodes = self._get("/api/v1/nodes").get("items") or []
        except ClusterError as error:
            return [Finding("agents", FAIL, f"the nodes cannot be listed: {error}", _APPLY)]
        slots = {one["metadata"]["name"]: _amounts(one, self._kernel_resource) for one in nodes}
        plugins = {name: amounts for name, amounts in slots.items() if amounts is not None}
        remedy = "look at the agents' logs: kubectl -n aliquot-nodes logs daemonset/aliquot-agent"
        if not plugins:
            return [Finding("agents", FAIL, f"none of {len(nodes)} nodes offers {self._kernel_resource}", remedy)]
        away = sorted(name for name, (_, usable) in plugins.items() if not usable)
        if away:
            return [Finding("agents", WARN, f"nodes whose agent or GPUs cannot be used: {', '.join(away)}", remedy)]
        total = sum(usable for _, usable in plugins.values())
        return [Finding("agents", OK, f"{len(plugins)} of {len(nodes)} nodes offer {total} {self._kernel_resource}")]

    def _may(self, permission: Permission, verb: str) -> bool:
        resource, _, part = permission.resource.partition("/")
        asked = {"group": permission.group, "resource": resource, "subresource": part, "verb": verb}
        if permission.is_of_the_namespace:
            asked["namespace"] = self._namespace
        name = self._namespace if permission.resource == "namespaces" else permission.name
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {**asked, **({"name": name} if name else {})}},
        }
        try:
            answer = self._client.blocking_call("POST", _REVIEWS, {}, review, "application/json")
        except ClusterError:
            return False
        return (answer.get("status") or {}).get("allowed") is True

    def _get(self, path: str) -> dict[str, Any]:
        return self._client.blocking_call("GET", path, {}, None, "application/json")


def _amounts(node: dict[str, Any], resource: str) -> tuple[int, int] | None:
    """Return how much of a resource a node has, and how much can be used; None: it has none."""
    status = node.get("status") or {}
    known = int((status.get("capacity") or {}).get(resource, 0))
    return (known, int((status.get("allocatable") or {}).get(resource, 0))) if known else None
