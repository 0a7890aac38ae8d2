"""The gateway is killed at each of ten points of the life of a kernel in a pod, and at one that pods add.

Each kernel that it answered as started is found again, by a gateway on the same machine, or by a replica
on another one: then relays, their folders and the gateway's state are lost, too.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from api_double.store import RESOURCES, Resource
from ten_points import ENDS, RESTARTS, STARTS, Point, cases

from jupyter_aliquot.provisioner.kubernetes.kernel_pod import kernel_pod_name
from jupyter_aliquot.provisioner.relay.wire.files import read_relay_records
from tests.system.conftest import HttpRefusal, Kernel, wait_until

from .conftest import PODS, Ring

LEASE = "--KernelPods.lease=gateway"
SECRETS = RESOURCES["secrets"]
POD_STARTS = {
    **STARTS,
    "pod created, not running": Point(
        "jupyter_aliquot.provisioner.kubernetes.pods.starting", "StartingPod", "until_running"
    ),
}
ANOTHER = pytest.mark.soak(alone="waits for a Lease at each point")
MACHINES = [pytest.param(False, id="same machine"), pytest.param(True, id="another machine", marks=ANOTHER)]


class Life:
    """A gateway that dies at a point, and the next one."""

    def __init__(self, ring: Ring, is_elsewhere: bool) -> None:
        self.ring, self._is_elsewhere = ring, is_elsewhere
        self._options = (LEASE,) if is_elsewhere else ()
        self._is_usual = True

    def begin(self, point: Point) -> None:
        self._is_usual = False
        if self._is_elsewhere and point.owner == "KernelRecords":
            point = replace(point, module="jupyter_aliquot.gateway.state.cluster_state", owner="ClusterRecords")
        self.ring.restart(lambda: None, *self._options, before=point.code)

    def go_on(self) -> None:
        """Wait for the gateway's death, and start the next one."""
        assert self.ring.server.process.wait(90) == -signal.SIGKILL, self.ring.logs()
        if self._is_elsewhere:
            self.ring.lose_gateways_machine()
        self.ring.follow(self.ring.serve(*self._options))
        self._is_usual = not self._is_elsewhere

    def close(self) -> None:
        """Leave the ring to other tests with a usual gateway, and without kernels."""
        if self._is_usual:
            return
        self.ring.restart()
        for kernel in self.ring.server.call("GET", "/api/kernels"):  # of a test that failed
            self.ring.server.call("DELETE", f"/api/kernels/{kernel['id']}")

    def kernel(self) -> Kernel:
        return self.ring.server.start("box.gpu-0.25")

    def settle(self, *kernel_ids: str) -> None:
        """Wait until these kernels alone have grants, pods, keys, relays and records."""
        want = set(kernel_ids)
        try:
            wait_until(lambda: self._found() == [want] * 6)
        except AssertionError:
            pytest.fail(f"{self._found()}, want {want}\n{self.ring.logs()}")
        assert {one["id"] for one in self.ring.server.call("GET", "/api/kernels")} == want

    def _found(self) -> list[Any]:
        ring = self.ring
        listed = ring.server.status()["kernels"]
        held = {one["id"] for one in listed if one["state"] not in ("queued", "ended")}
        relays = {one.kernel_id for one in read_relay_records(ring.runtime) if one.is_alive}
        files = {one.stem for one in ring.folder.glob("state/*/kernels/*.json")}
        records = {one["metadata"]["annotations"]["aliquot.dev/key"] for one in ring.documents("record")}
        ids = {kernel_pod_name(one): one for one in held | ring.granted() | relays | files | records}
        pods, secrets = ({ids.get(one, one) for one in names(ring, kind)} for kind in (PODS, SECRETS))
        return [held, ring.granted(), pods, secrets, relays, records if self._is_elsewhere else files]


def names(ring: Ring, kind: Resource) -> list[str]:
    return [str(one["metadata"]["name"]) for one in ring.double.store.list(kind, "default")[0]]


@pytest.fixture(params=MACHINES)
def a_life(the_ring: Ring, request: pytest.FixtureRequest) -> Iterator[Life]:
    life = Life(the_ring, request.param)
    yield life
    life.close()


def ended(ring: Ring, kernel_id: str) -> Any:
    listed = ring.server.call("GET", "/aliquot/api/v1/kernels")["kernels"]
    return next((one["termination"] for one in listed if one["id"] == kernel_id), None)


@pytest.mark.parametrize("point", cases(POD_STARTS, ["pod created, not running"]))
def test_a_start_that_was_answered_is_finished(point: Point, a_life: Life) -> None:
    a_life.begin(point)
    kernel_id = a_life.kernel().id
    a_life.go_on()
    kernel = Kernel(a_life.ring.server, kernel_id)
    assert kernel.run("print(6 * 7)").text == "42\n", a_life.ring.logs()
    a_life.settle(kernel_id)
    kernel.end()
    a_life.settle()


@pytest.mark.parametrize("point", cases(RESTARTS, ["ended for its restart, not started"]))
def test_a_restart_that_was_asked_for_leaves_a_kernel_that_works(point: Point, a_life: Life) -> None:
    a_life.begin(point)
    kernel = a_life.kernel()
    assert kernel.run("x = 1; print(x)").text == "1\n", a_life.ring.logs()
    with pytest.raises(OSError):  # noqa: PT011 (it dies over it)
        a_life.ring.server.call("POST", f"/api/kernels/{kernel.id}/restart")
    kernel.reconnect()
    a_life.go_on()
    again = Kernel(a_life.ring.server, kernel.id)
    assert again.run("print(6 * 7)").text == "42\n", a_life.ring.logs()
    a_life.settle(kernel.id)
    again.end()
    a_life.settle()


@pytest.mark.parametrize("point", cases(ENDS, ["ended, record not removed"]))
def test_an_end_that_was_asked_for_is_finished(point: Point, a_life: Life) -> None:
    a_life.begin(point)
    kernel = a_life.kernel()
    assert kernel.run("print(1)").text == "1\n", a_life.ring.logs()
    kernel.reconnect()
    with contextlib.suppress(OSError, HttpRefusal):  # it dies over it, or right after its answer
        a_life.ring.server.call("DELETE", f"/api/kernels/{kernel.id}")
    a_life.go_on()
    a_life.settle()
    assert ended(a_life.ring, kernel.id)["code"] == "user"
