"""ResourceClaims on the doubles: who has one, when its device is free again, and what cannot be changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from api_double.server import ApiDouble
from api_double.store import RESOURCES, Failure
from node_double.claims import Claims
from node_double.cluster import ApiClient
from node_double.control import ControlDouble
from traitlets import TraitError
from traitlets.config import Config

from jupyter_aliquot.gateway.containers.holders import HolderPods

CLAIMS, NODES, PODS, SLICES = (RESOURCES[one] for one in ("resourceclaims", "nodes", "pods", "resourceslices"))
AMOUNTS = {"cpu": "8", "memory": "8Gi", "pods": "10"}


class World:
    """A node with one device, and the control plane's double."""

    def __init__(self, double: ApiDouble) -> None:
        self.store = double.store
        ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": AMOUNTS}
        self.store.create(NODES, "", {"metadata": {"name": "n"}, "spec": {}})
        self.store.replace(NODES, "", "n", {"status": ready}, "status")
        spec = {"driver": "gpu.nvidia.com", "nodeName": "n", "pool": {"name": "n"}, "devices": [{"name": "gpu-0"}]}
        self.store.create(SLICES, "", {"metadata": {"name": "n"}, "spec": spec})

    def claim(self, name: str) -> None:
        requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
        self.store.create(CLAIMS, "default", {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}})

    def pod(self, name: str, claim: str) -> None:
        spec = {"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]}
        self.store.create(PODS, "default", {"metadata": {"name": name}, "spec": spec})

    def end(self, name: str) -> None:
        self.store.delete(PODS, "default", name, {"gracePeriodSeconds": 0})

    def status(self, name: str) -> Any:
        return self.store.read(CLAIMS, "default", name).get("status") or {}

    def users(self, name: str) -> list[str]:
        return [one["name"] for one in self.status(name).get("reservedFor") or ()]

    def node_of(self, name: str) -> str:
        return str(self.store.read(PODS, "default", name)["spec"].get("nodeName", ""))

    def why(self, name: str) -> str:
        conditions = (self.store.read(PODS, "default", name).get("status") or {}).get("conditions") or ()
        return "".join(one.get("message", "") for one in conditions)


@pytest.fixture
def a_world(a_double: ApiDouble) -> Iterator[World]:
    world = World(a_double)
    with ControlDouble(a_double.url, silence_seconds=1e9):
        yield world


def until(claim: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_two_pods_share_a_claim_and_its_device_is_free_when_the_last_is_gone(a_world: World) -> None:
    a_world.claim("shared")
    for name in ("a", "b"):
        a_world.pod(name, "shared")
    until(lambda: a_world.users("shared") == ["a", "b"])
    until(lambda: (a_world.node_of("a"), a_world.node_of("b")) == ("n", "n"))
    (result,) = a_world.status("shared")["allocation"]["devices"]["results"]
    assert result == {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0"}

    a_world.claim("other")
    a_world.pod("c", "other")
    until(lambda: "1 cannot allocate all claims" in a_world.why("c"))
    a_world.end("a")
    until(lambda: a_world.users("shared") == ["b"])
    assert a_world.node_of("c") == ""
    a_world.end("b")
    until(lambda: a_world.node_of("c") == "n")
    assert a_world.status("shared") == {}


def test_a_claim_in_use_outlives_its_deletion_until_its_last_pod_is_gone(a_world: World) -> None:
    a_world.claim("shared")
    a_world.pod("a", "shared")
    until(lambda: a_world.users("shared") == ["a"])
    a_world.store.delete(CLAIMS, "default", "shared", {})
    assert a_world.users("shared") == ["a"]
    a_world.pod("late", "shared")
    a_world.end("a")

    def is_gone() -> bool:
        try:
            a_world.status("shared")
        except Failure as failure:
            return failure.code == 404
        return False

    until(is_gone)
    assert (a_world.node_of("late"), a_world.why("late")) == ("", ""), "a pod without its claim waits without a word"


def test_a_claim_cannot_be_changed_and_has_at_most_256_users(a_double: ApiDouble) -> None:
    world = World(a_double)
    world.claim("shared")
    told = world.store.read(CLAIMS, "default", "shared")
    told["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2
    with pytest.raises(Failure, match="field is immutable"):
        world.store.replace(CLAIMS, "default", "shared", told)
    users = [{"resource": "pods", "name": f"p{number}", "uid": str(number)} for number in range(257)]
    with pytest.raises(Failure, match="Too many: 257: must have at most 256 items"):
        world.store.replace(CLAIMS, "default", "shared", {"status": {"reservedFor": users}}, "status")
    found, _ = world.store.list(CLAIMS, "default")
    Claims(ApiClient(a_double.url)).look(found, [], [])  # without users nothing is changed
    assert world.status("shared") == {}


def test_kueue_takes_no_claims_of_pods() -> None:
    told = {"most": 1, "device_class": "gpu.nvidia.com"}
    with pytest.raises(TraitError, match="Kueue admits no pod with a ResourceClaim"):
        HolderPods(config=Config({"HolderPods": {**told, "queueing": "kueue"}})).settings("i")
    settings = HolderPods(config=Config({"HolderPods": told})).settings("i")
    assert settings is not None
    assert settings.pool.device_class == "gpu.nvidia.com"
