"""A pod on the node double sees the same as on a kubelet: order, variables, folders, probes, grace, errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from api_double.server import ApiDouble
from node_double.cluster import ApiClient, Refused
from node_double.containers import Image
from node_double.control import ControlDouble
from node_double.node import NodeDouble

Found = TypeVar("Found")
PODS = "/api/v1/namespaces/default/pods"
PATIENCE_SECONDS = 90.0
IMAGES = {"python:3": Image(("python", "-c", "print('own entrypoint')"), {"FROM_IMAGE": "yes", "HOME": "/root"})}
LISTEN = "import socket, os; s = socket.create_server((os.environ['IP'], 8787)); [s.accept() for _ in iter(int, 1)]"
# It tells its grace by ignoring the first signal that asks it to end.
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)


def until(claim: Callable[[], Found]) -> Found:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := claim()):
        assert time.monotonic() < deadline, "the claim did not come true in time"
        time.sleep(0.02)
    return found


class World:
    """An API double, its scheduler, and one node."""

    def __init__(self, double: ApiDouble, node: NodeDouble) -> None:
        self.double, self.node, self.api = double, node, ApiClient(double.url)

    def run(self, name: str, *command: str, **spec: Any) -> None:
        container = {"name": "main", "image": "python:3", "command": ["python", "-c", *command]}
        container |= spec.pop("container", {})
        told = {"metadata": {"name": name}, "spec": {"containers": [container], "restartPolicy": "Never", **spec}}
        self.api.call("POST", PODS, told)

    def pod(self, name: str) -> dict[str, Any]:
        return self.api.call("GET", f"{PODS}/{name}")

    def phase(self, name: str) -> str:
        return str(self.pod(name)["status"]["phase"])

    def waiting(self, name: str) -> dict[str, str]:
        statuses = self.pod(name)["status"].get("containerStatuses") or [{}]
        found: dict[str, str] = statuses[0].get("state", {}).get("waiting", {})
        return found

    def output(self, name: str, container: str = "main") -> str:
        return (self.node.run_of(name).folder / f"{container}.log").read_text()

    def is_gone(self, name: str) -> bool:
        try:
            self.pod(name)
        except Refused as refused:
            return refused.code == 404
        return False


@pytest.fixture(scope="module")
def a_world() -> Iterator[World]:
    double = ApiDouble()
    with ControlDouble(double.url, silence_seconds=2.0), NodeDouble(double.url, "node-1", IMAGES) as node:
        yield World(double, node)
    double.close()


def test_container_has_the_variables_of_image_and_pod(a_world: World) -> None:
    env = [
        {"name": "FROM_IMAGE", "value": "no, from the pod"},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    a_world.run("env", "import os; print(os.environ['FROM_IMAGE'], os.environ['IP'])", container={"env": env})
    until(lambda: a_world.phase("env") == "Succeeded")

    pod = a_world.pod("env")
    assert pod["spec"]["nodeName"] == "node-1"
    assert a_world.output("env") == f"no, from the pod {pod['status']['podIP']}\n"
    assert pod["status"]["containerStatuses"][0]["state"] == {"terminated": {"exitCode": 0, "reason": "Completed"}}


def test_containers_of_a_pod_share_its_volumes_at_the_paths_of_their_mounts(a_world: World) -> None:
    mounts = [{"name": "shared", "mountPath": "/run/shared"}]
    first = {
        "name": "first",
        "image": "python:3",
        "command": [
            "python",
            "-c",
            "import sys; open(sys.argv[1], 'w').write('by the first')",
            "/run/shared/note",
        ],
        "volumeMounts": mounts,
    }
    main = {"volumeMounts": mounts, "env": [{"name": "NOTE", "value": "/run/shared/note"}]}
    a_world.run(
        "volumes",
        "import os; print(open(os.environ['NOTE']).read())",
        container=main,
        initContainers=[first],
        volumes=[{"name": "shared", "emptyDir": {}}],
    )
    until(lambda: a_world.phase("volumes") == "Succeeded")

    assert a_world.output("volumes") == "by the first\n"


def test_sidecar_starts_before_the_container_and_ends_after_it(a_world: World) -> None:
    sidecar = {
        "name": "relay",
        "image": "python:3",
        "restartPolicy": "Always",
        "command": ["python", "-c", LISTEN],
        "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "ports": [{"name": "relay", "containerPort": 8787}],
        "startupProbe": {"tcpSocket": {"port": "relay"}, "periodSeconds": 1, "failureThreshold": 60},
    }
    a_world.run("sidecar", "print('after the sidecar')", initContainers=[sidecar])
    until(lambda: a_world.phase("sidecar") == "Succeeded")

    assert a_world.output("sidecar") == "after the sidecar\n"
    relay = a_world.pod("sidecar")["status"]["initContainerStatuses"][0]
    assert relay["started"], relay
    assert "terminated" in relay["state"], relay


def test_unknown_image_waits_with_the_reason_until_the_pod_is_deleted(a_world: World) -> None:
    a_world.run("pull", "", container={"image": "registry.example/nothing:1"})
    until(lambda: a_world.waiting("pull").get("reason") == "ImagePullBackOff")

    assert 'Back-off pulling image "registry.example/nothing:1"' in a_world.waiting("pull")["message"]
    a_world.api.call("DELETE", f"{PODS}/pull", {})
    until(lambda: a_world.is_gone("pull"))


def test_deleted_pod_has_its_grace_and_is_killed_after_it(a_world: World) -> None:
    a_world.run("grace", STUBBORN, terminationGracePeriodSeconds=1)
    until(lambda: a_world.phase("grace") == "Running" and a_world.output("grace"))
    began = time.monotonic()
    a_world.api.call("DELETE", f"{PODS}/grace", {})
    until(lambda: a_world.is_gone("grace"))

    process = a_world.node.run_of("grace")._containers[0].process
    assert process is not None
    assert process.poll() == -9
    assert time.monotonic() - began >= 1.0  # the whole grace: the container did not end by itself


def test_evicted_pod_fails_with_the_reason_and_keeps_its_object(a_world: World) -> None:
    a_world.run("evicted", STUBBORN, terminationGracePeriodSeconds=0)
    until(lambda: a_world.phase("evicted") == "Running")
    run = a_world.node.run_of("evicted")
    run._grace_seconds = 0.0
    run.evict("Evicted", "The node was low on resource: memory.")
    until(lambda: a_world.phase("evicted") == "Failed")

    status = a_world.pod("evicted")["status"]
    assert (status["reason"], status["message"]) == ("Evicted", "The node was low on resource: memory.")


def test_pod_with_more_than_the_node_has_stays_pending_with_the_schedulers_words(a_world: World) -> None:
    a_world.run("large", "", container={"resources": {"limits": {"example.org/thing": "1"}}})

    def scheduled() -> str:
        conditions = a_world.pod("large")["status"].get("conditions") or []
        return next((one["message"] for one in conditions if one["type"] == "PodScheduled"), "")

    assert until(scheduled) == "0/1 nodes are available: 1 Insufficient example.org/thing."
    a_world.api.call("DELETE", f"{PODS}/large", {})


def test_silent_node_is_not_ready_and_its_pods_run_on(a_world: World) -> None:
    a_world.run("cut", "import time; time.sleep(600)", terminationGracePeriodSeconds=1)
    until(lambda: a_world.phase("cut") == "Running")
    a_world.node.cut()

    def ready() -> str:
        return str(a_world.api.call("GET", "/api/v1/nodes/node-1")["status"]["conditions"][0]["status"])

    until(lambda: ready() == "Unknown")
    assert a_world.node.run_of("cut")._containers[0].is_running
    a_world.node.mend()
    until(lambda: ready() == "True")
    assert a_world.phase("cut") == "Running"


def test_claim_is_the_folder_that_the_test_gave(a_world: World, tmp_path: Path) -> None:
    a_world.node.claims["home-of-ada"] = tmp_path
    (tmp_path / "notebook").write_text("mine")
    a_world.run(
        "claim",
        "import os; print(os.getcwd(), open('notebook').read())",
        container={"volumeMounts": [{"name": "home", "mountPath": "/home/ada"}], "workingDir": "/home/ada"},
        volumes=[{"name": "home", "persistentVolumeClaim": {"claimName": "home-of-ada"}}],
    )
    until(lambda: a_world.phase("claim") == "Succeeded")

    assert a_world.output("claim") == f"{tmp_path} mine\n"
