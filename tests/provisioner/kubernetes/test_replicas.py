"""The parts of a gateway's replicas: their Lease, and the documents that one leaves to the next."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from api_double.server import ApiDouble
from api_double.store import RESOURCES
from kubernetes.client import Configuration

from jupyter_aliquot.provisioner.kubernetes.client import ClusterClient
from jupyter_aliquot.provisioner.kubernetes.documents import Documents
from jupyter_aliquot.provisioner.kubernetes.lease import LEASE_SECONDS, Leadership
from jupyter_aliquot.provisioner.kubernetes.permissions import PERMISSIONS
from jupyter_aliquot.provisioner.kubernetes.settings import Cluster as ClusterSettings
from tests.system.cable import Cable

from .conftest import PATIENCE_SECONDS, Cluster, until

LEASES = RESOURCES["leases"]


@pytest.fixture(autouse=True)
def _least_rights(a_double: ApiDouble) -> None:
    a_double.allowed = [(verb, one.resource) for one in PERMISSIONS for verb in one.verbs]


@pytest.fixture
def a_client(on_double: Cluster) -> Iterator[ClusterClient]:
    client = on_double.client()
    yield client
    asyncio.run(client.close())


def replica(cluster: Cluster, name: str) -> Leadership:
    return Leadership(cluster.configuration, "default", "gateway", name)


def leader(double: ApiDouble) -> str:
    return str(double.store.read(LEASES, "default", "gateway")["spec"]["holderIdentity"])


def test_one_replica_leads_and_another_follows_when_it_renews_no_more(a_double: ApiDouble, on_double: Cluster) -> None:
    replica(on_double, "a").acquire()  # and it is killed: it does not renew
    assert leader(a_double) == "a"
    replica(on_double, "b").acquire()
    assert leader(a_double) == "b"


def test_a_leader_leads_on_while_the_api_is_away_and_until_another_replica_does(
    a_double: ApiDouble, on_double: Cluster
) -> None:
    lost = threading.Event()
    one = replica(on_double, "a")
    one.acquire()
    one.keep(lost.set)
    a_double.go_away()
    asyncio.run(until(lambda: a_double.dropped > 8))  # more than the tries of one period
    assert not lost.is_set(), "no other replica can take the Lease"
    taken = a_double.store.read(LEASES, "default", "gateway")
    taken["spec"]["holderIdentity"] = "b"
    a_double.store.replace(LEASES, "default", "gateway", taken)
    a_double.come_back()
    assert lost.wait(PATIENCE_SECONDS)


def test_a_leader_that_is_cut_off_commits_nothing_when_another_one_takes_over(
    a_double: ApiDouble, on_double: Cluster, tmp_path: Path
) -> None:
    port = urlsplit(a_double.url).port
    assert port is not None
    cable = Cable(port)
    behind = Configuration(host=f"http://127.0.0.1:{cable.port}")
    renewed = tmp_path / "leads"
    lost = threading.Event()
    one = Leadership(behind, "default", "gateway", "a", renewed.touch)
    assert not one.is_current()
    one.acquire()
    one.keep(lost.set)
    assert one.is_current()
    assert renewed.exists()
    cable.cut()
    replica(on_double, "b").acquire()
    assert not one.is_current()
    assert time.time() - renewed.stat().st_mtime >= LEASE_SECONDS
    assert not lost.is_set(), "it does not know of the other one yet"
    cable.mend()
    assert lost.wait(PATIENCE_SECONDS)
    assert not one.is_current()
    cable.close()


def test_an_answer_that_is_no_lease_ends_no_renewal(a_double: ApiDouble, on_double: Cluster) -> None:
    lost = threading.Event()
    one = replica(on_double, "a")
    one.acquire()
    right = a_double.store.read(LEASES, "default", "gateway")
    wrong = {**right, "spec": {**right["spec"], "renewTime": "never"}}
    a_double.store.replace(LEASES, "default", "gateway", wrong)
    one.keep(lost.set)
    before = len(a_double.requests)
    asyncio.run(until(lambda: len(a_double.requests) > before + 3))
    assert not lost.is_set()
    now = a_double.store.read(LEASES, "default", "gateway")
    taken = {**right, "metadata": now["metadata"], "spec": {**right["spec"], "holderIdentity": "b"}}
    a_double.store.replace(LEASES, "default", "gateway", taken)
    assert lost.wait(PATIENCE_SECONDS)
    assert on_double.configuration.retries is False, "a call would take several times its limit"


def test_a_replica_that_waits_ends_by_sigterm_also_as_a_containers_first_process(
    a_double: ApiDouble, tmp_path: Path
) -> None:
    a_double.token = "of another"  # the replica waits for as long as it is refused
    clusters = [{"name": "c", "cluster": {"server": a_double.url}}]
    contexts = [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
    config = {"clusters": clusters, "contexts": contexts, "users": [{"name": "u", "user": {}}], "current-context": "c"}
    (tmp_path / "config").write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **config}))
    script = (
        "import logging, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"  # as in a container's first process
        "from jupyter_aliquot.gateway.state.leadership import lead\n"
        "lead('default', 'gateway', logging.getLogger())"
    )
    env = {**os.environ, "KUBECONFIG": str(tmp_path / "config")}
    with subprocess.Popen([sys.executable, "-c", script], env=env) as waiting:
        try:
            asyncio.run(until(lambda: a_double.requests))
            waiting.terminate()
            assert waiting.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
        finally:
            waiting.kill()


def test_documents_are_read_by_a_later_replica_and_by_no_other_gateway(a_client: ClusterClient) -> None:
    def of(gateway: str, kind: str = "record") -> Documents:
        return Documents(a_client, ClusterSettings("default", gateway, "relay:1"), kind)

    of("g").write("k1", "one")
    of("g").write("k1", "two")
    of("g").write("K_2", "three")
    assert of("g").read() == {"k1": "two", "K_2": "three"}
    assert of("g", "session").read() == of("other").read() == {}
    of("g").remove("k1")
    of("g").remove("k1")
    assert of("g").read() == {"K_2": "three"}


def test_documents_go_with_the_gateways_deployment(a_double: ApiDouble, a_client: ClusterClient) -> None:
    a_double.store.create(RESOURCES["deployments"], "default", {"metadata": {"name": "aliquot-gateway"}})
    cluster = ClusterSettings("default", "g", "relay:1", deployment="aliquot-gateway")
    documents = Documents(a_client, cluster, "record")
    documents.write("k1", "one")
    a_double.store.delete(RESOURCES["deployments"], "default", "aliquot-gateway", {})
    assert documents.read() == {}
