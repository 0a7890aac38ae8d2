"""The permissions of the gateway's account: each that its Role grants is used by the gateway, or by its doctor."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from api_double.store import RESOURCES

from jupyter_aliquot.provisioner.kubernetes.permissions import PERMISSIONS
from tests.system.conftest import Kernel, wait_until

from .conftest import AS_INSTALLED, PODS, Ring, a_ring

NODES = RESOURCES["nodes"]
DOCTOR = (sys.executable, "-m", "jupyter_aliquot.gateway.cli.app", "doctor", "--cluster")


def close(ring: Ring, name: str, is_closed: bool) -> None:
    node = ring.double.store.read(NODES, "", name)
    node["spec"]["unschedulable"] = is_closed
    ring.double.store.replace(NODES, "", name, node)


def leave_a_secret(ring: Ring) -> None:
    """Have the next pod's Secret be there already, as one of the kernel's last run that is not collected yet."""
    store = ring.double.store

    def leave(resource: str, told: dict[str, Any]) -> None:
        if resource == "pods":
            store.admission.remove(leave)
            left = {"name": told["metadata"]["name"], "labels": told["metadata"]["labels"]}
            store.create(RESOURCES["secrets"], "default", {"metadata": left})

    store.admission.append(leave)


def a_session(ring: Ring) -> dict[str, Any]:
    asked = {"path": "train.ipynb", "name": "train", "type": "notebook", "kernel": {"name": "box.gpu-0.25"}}
    told: dict[str, Any] = ring.server.call("POST", "/api/sessions", asked)
    return told


def test_each_permission_of_the_role_is_used() -> None:
    with a_ring(AS_INSTALLED) as ring:
        leave_a_secret(ring)
        session = a_session(ring)
        kernel = Kernel(ring.server, session["kernel"]["id"])
        assert kernel.run("here = 42").status == "ok", ring.logs()
        owners = ring.pod(kernel)["metadata"]["ownerReferences"]
        assert [one["kind"] for one in owners] == ["Deployment"]
        wait_until(lambda: ring.documents("session"))
        ring.server.call("PATCH", f"/aliquot/api/v1/kernels/{kernel.id}", {"gpus": 0.5})

        # What holds this start up, only events tell.
        for name in ring.nodes:
            close(ring, name, True)
        held_up = ring.server.start("box.gpu-0.25")
        wait_until(lambda: ("list", "events") in ring.double.used)
        for name in ring.nodes:
            close(ring, name, False)
        assert held_up.run("print(1)").text == "1\n", ring.logs()

        assert "resize=in_part" not in ring.server.log.read_text(), ring.logs()
        kernel.reconnect()
        ring.restart(ring.lose_gateways_machine)
        again = Kernel(ring.server, kernel.id)
        assert again.run("print(here)").text == "42\n", ring.logs()
        ring.server.call("DELETE", f"/api/sessions/{session['id']}")
        Kernel(ring.server, held_up.id).end()
        wait_until(lambda: not ring.double.store.list(PODS, "default")[0])
        wait_until(lambda: not ring.documents("record"))
        wait_until(lambda: not ring.documents("session"))

        done = subprocess.run(DOCTOR, env=ring.environment, capture_output=True, text=True, check=False)
        assert "Kubernetes v1.36" in done.stdout, done
        want = {(verb, one.resource) for one in PERMISSIONS for verb in one.verbs}
        assert want - ring.double.used == set()
