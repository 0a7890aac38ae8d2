"""`aliquot doctor --cluster`: its findings on a cluster, each with what to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_double.fixtures import configuration_of
from api_double.server import ApiDouble
from api_double.store import RESOURCES

from jupyter_aliquot.gateway.doctor import cluster as doctor_cluster
from jupyter_aliquot.gateway.doctor.runner import FAIL, OK, WARN, Finding
from jupyter_aliquot.provisioner.kubernetes.client import ClusterAwayError, ClusterClient

BASE = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes" / "base"


def findings(a_client: ClusterClient, namespace: str = "default") -> dict[str, Finding]:
    found = doctor_cluster.Cluster(a_client, namespace).examine()
    for one in found:
        assert one.remedy or one.state == OK, one
    return {one.about: one for one in found}


def add_node(double: ApiDouble, name: str, **amounts: Mapping[str, str]) -> None:
    node: dict[str, Any] = {"metadata": {"name": name}}
    double.store.create(RESOURCES["nodes"], "", node)
    double.store.replace(RESOURCES["nodes"], "", name, {"status": amounts}, "status")


def restrict(double: ApiDouble, level: str) -> None:
    namespace = double.store.read(RESOURCES["namespaces"], "", "default")
    namespace["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": level}
    double.store.replace(RESOURCES["namespaces"], "", "default", namespace)


def test_cluster_in_order(a_double: ApiDouble, a_client: ClusterClient) -> None:
    restrict(a_double, "restricted")
    slots = {"aliquot.dev/kernel": "64"}
    add_node(a_double, "gpu-1", capacity=slots, allocatable=slots)
    add_node(a_double, "without-gpus", capacity={"cpu": "8"}, allocatable={"cpu": "8"})

    found = findings(a_client)
    assert {about: one.state for about, one in found.items()} == dict.fromkeys(
        ("api", "permissions", "pod security", "network policies", "agents"), OK
    )
    assert found["agents"].found == "1 of 2 nodes offer 64 aliquot.dev/kernel"


def test_old_version_is_not_enough(a_double: ApiDouble, a_client: ClusterClient) -> None:
    a_double.reviews.version = "v1.33.9+k3s1"
    found = findings(a_client)

    assert list(found) == ["api"]
    assert found["api"].state == FAIL
    assert found["api"].found == "Kubernetes v1.33.9+k3s1, but 1.34 is needed"


def test_server_that_is_away_is_the_only_finding(a_double: ApiDouble, a_client: ClusterClient) -> None:
    a_double.go_away()
    found = findings(a_client)

    assert list(found) == ["api"]
    assert found["api"].state == FAIL


def test_missing_permissions_are_named(a_double: ApiDouble, a_client: ClusterClient) -> None:
    a_double.reviews.denied = {("patch", "pods/resize"), ("create", "tokenreviews")}
    found = findings(a_client)["permissions"]

    assert found.state == FAIL
    assert found.found == "not allowed in default: patch pods/resize, create tokenreviews"


@pytest.mark.parametrize(("level", "want"), [("baseline", "level baseline"), ("", "no level")])
def test_namespace_with_a_weaker_level_is_told(
    a_double: ApiDouble, a_client: ClusterClient, level: str, want: str
) -> None:
    if level:
        restrict(a_double, level)
    found = findings(a_client)["pod security"]

    assert found.state == WARN
    assert want in found.found


def test_missing_namespace_is_told(a_client: ClusterClient) -> None:
    assert findings(a_client, "nowhere")["pod security"].state == FAIL


def test_nodes_without_usable_agents_are_named(a_double: ApiDouble, a_client: ClusterClient) -> None:
    add_node(a_double, "gpu-1", capacity={"cpu": "8"}, allocatable={"cpu": "8"})
    assert findings(a_client)["agents"].found == "none of 1 nodes offers aliquot.dev/kernel"

    add_node(a_double, "gpu-2", capacity={"aliquot.dev/kernel": "64"}, allocatable={"aliquot.dev/kernel": "0"})
    found = findings(a_client)["agents"]
    assert (found.state, found.found) == (WARN, "nodes whose agent or GPUs cannot be used: gpu-2")


def policy(name: str, selector: dict[str, Any], *ingress: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"podSelector": selector, "ingress": list(ingress)}}


def base_policies() -> list[dict[str, Any]]:
    documents = yaml.safe_load_all((BASE / "network-policies.yaml").read_text())
    return [one for one in documents if one["metadata"]["namespace"] == "aliquot"]


def test_the_bases_network_policies_block_nothing(a_double: ApiDouble, a_client: ClusterClient) -> None:
    for one in base_policies():
        del one["metadata"]["namespace"]
        a_double.store.create(RESOURCES["networkpolicies"], "default", one)
    found = findings(a_client)["network policies"]
    assert (found.state, found.found) == (OK, "the 3 of default block no part of Aliquot")


def test_a_policy_that_closes_a_port_is_named_with_what_it_blocks(a_double: ApiDouble, a_client: ClusterClient) -> None:
    kernels = {"matchExpressions": [{"key": "aliquot.dev/role", "operator": "In", "values": ["kernel"]}]}
    other = {"from": [{"podSelector": {"matchLabels": {"app": "another"}}}]}
    wrong_port = {"ports": [{"protocol": "TCP", "port": 9000}], "from": [{"podSelector": {}}]}
    for one in (policy("closed", {}), policy("kernels", kernels, other, wrong_port)):
        a_double.store.create(RESOURCES["networkpolicies"], "default", one)
    found = findings(a_client)["network policies"]
    assert found.state == FAIL
    assert found.found == (
        "in default they block the gateway to kernels at port 8787 (by closed, kernels); "
        "agents and browsers to the gateway at port 8888 (by closed)"
    )

    ranged = {"ports": [{"port": 8000, "endPort": 9000}], "from": [{"podSelector": {}}]}
    a_double.store.create(RESOURCES["networkpolicies"], "default", policy("open", {}, ranged))
    assert findings(a_client)["network policies"].state == OK


def test_policies_are_judged_by_the_relay_port_that_is_told(
    a_double: ApiDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_cluster, "find_configuration", lambda: configuration_of(a_double))
    ranged = {"ports": [{"port": 8787, "endPort": 8888}], "from": [{"podSelector": {}}]}
    a_double.store.create(RESOURCES["networkpolicies"], "default", policy("open", {}, ranged))
    for port, state in ((8787, OK), (9000, FAIL)):
        told = {one.about: one for one in doctor_cluster.check_cluster("default", relay_port=port)}
        assert told["network policies"].state == state


def test_machine_without_a_cluster_is_told_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> None:
        raise ClusterAwayError("no configuration of it is found. Set KUBECONFIG")

    monkeypatch.setattr(doctor_cluster, "find_configuration", nowhere)
    [found] = doctor_cluster.check_cluster("aliquot")
    assert (found.about, found.state) == ("api", FAIL)
    assert "KUBECONFIG" in found.remedy
