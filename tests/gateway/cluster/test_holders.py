"""Holders on the API double: made for kernels that wait, ended when idle, and emptied when the cluster ends them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from api_double.fixtures import configuration_of
from api_double.server import ApiDouble
from api_double.store import RESOURCES
from lead_by_hand import LeadByHand
from traitlets import TraitError
from traitlets.config import Config

from jupyter_aliquot.gateway.base.clock import SystemClock
from jupyter_aliquot.gateway.containers.holders import HolderPods
from jupyter_aliquot.gateway.nodes.holders import HolderKeeper
from jupyter_aliquot.gateway.nodes.vacating import LAST_SECONDS, Vacating
from jupyter_aliquot.gateway.scheduling.cordons import Cordon
from jupyter_aliquot.gateway.scheduling.ledger import Device, Holding, KernelRef, LedgerSnapshot, Node
from jupyter_aliquot.gateway.scheduling.planner import Pending
from jupyter_aliquot.gateway.scheduling.snapshot import AdmissionSnapshot
from jupyter_aliquot.gpu_hook.client.reports import DeviceStatus
from jupyter_aliquot.provisioner.kubernetes.client import OPENED, ClusterAwayError, ClusterClient, Collection, Object
from jupyter_aliquot.provisioner.kubernetes.permissions import PERMISSIONS
from jupyter_aliquot.provisioner.kubernetes.settings import Cluster
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, Quota, Request

PODS = RESOURCES["pods"]
EARLY = -1e9


def queue(*hundredths: int) -> AdmissionSnapshot:
    pending = tuple(Pending(f"k{n}", "ada", Request(GpuShare(one)), EARLY) for n, one in enumerate(hundredths))
    return AdmissionSnapshot("ok", "", (), pending=pending)


def device(holder: str, kernels: int) -> DeviceStatus:
    shares = {"reserved_bytes": 0, "reserved_hundredths": 0, "utilization_percent": 0}
    told = {"temperature_celsius": None, "power_watts": None, "lost": False}
    return DeviceStatus(
        0, f"GPU-{holder}", "gpu", 1 << 30, **shares, **told, reserved_kernels=kernels, holder=f"default/{holder}"
    )  # type: ignore[arg-type]  # from mappings


class Seeing(ClusterClient):
    """A client whose scene has short seconds."""


class Blind(ClusterClient):
    """A client whose watches are silent, as on a connection that was lost without a word."""

    async def watch(self, collection: Collection, version: str) -> AsyncIterator[Object]:
        yield {"type": OPENED, "object": {}}
        await asyncio.Event().wait()


class Unanswered(Blind):
    """One that does not get the answers when it creates an object, either."""

    async def create(self, collection: Collection, told: Object) -> Object:
        await super().create(collection, told)
        raise ClusterAwayError("the answer was lost")


class Fast(SystemClock):
    """A clock whose seconds are short, and which a test sets forward."""

    later = 0.0

    def now(self) -> float:
        return super().now() + self.later

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 100)


class Scene:
    """A keeper of at most two holders, whose queue and devices a test sets."""

    def __init__(
        self, double: ApiDouble, client: type[ClusterClient] = ClusterClient, deployment: str = "", **told: Any
    ) -> None:
        self.double, self.waiting, self.devices = double, queue(), tuple[DeviceStatus, ...]()
        self.plans = self.looks = 0
        self.lead = LeadByHand()
        self.left: dict[str, dict[str, str]] = {}
        self.stuck: Mapping[str, str] = {}
        self.clock: SystemClock = SystemClock() if client is ClusterClient else Fast()
        double.allowed = [(verb, one.resource) for one in PERMISSIONS for verb in one.verbs]
        settings = HolderPods(config=Config({"HolderPods": {"most": 2, "guaranteed": 0, **told}})).settings("relay:1")
        assert settings is not None
        self.keeper = HolderKeeper(
            lambda: client(configuration_of(double)),
            Cluster("default", "g", "relay:1", deployment=deployment),
            settings,
            lambda: self.devices,
            Vacating(lambda node: self, self.clock, logging.getLogger("test")),
            self.clock,
            logging.getLogger("test"),
            self.lead,
        )

    async def vacate(self, devices: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the kernels on devices that go. Called by the keeper as a node's agent."""
        return {one: dict(self.left.get(one, {})) for one in devices}

    def _seen(self) -> AdmissionSnapshot:
        self.looks += 1
        return self.waiting

    def _planned(self) -> None:
        self.plans += 1

    def pods(self) -> list[dict[str, Any]]:
        return self.double.store.list(PODS, "default")[0]

    def hold(self, kernels: int) -> str:
        """Play the cluster: the newest holder runs, and an agent tells its GPU."""
        pod = self.pods()[-1]
        name = str(pod["metadata"]["name"])
        pod["spec"]["nodeName"] = "gpu-1"
        self.double.store.replace(PODS, "default", name, pod)
        self.double.store.replace(PODS, "default", name, {"status": {"phase": "Running"}}, "status")
        self.devices = (device(name, kernels),)
        return name

    def run(self, act: Callable[[Callable[[Callable[[], object]], Any]], Any]) -> None:
        async def until(claim: Callable[[], object]) -> None:
            while True:
                if claim():
                    return
                await asyncio.sleep(0.01)

        async def scene() -> None:
            self.keeper.start(self._seen, self._planned, lambda stuck: setattr(self, "stuck", stuck))
            try:
                await asyncio.wait_for(act(until), 60)
            finally:
                await self.keeper.stop()

        asyncio.run(scene())


def test_a_kernel_that_waits_gets_a_holder_which_ends_when_its_gpu_is_idle(a_double: ApiDouble) -> None:
    scene = Scene(a_double, idle_seconds=0)

    async def act(until: Any) -> None:
        scene.waiting = queue(100)
        await until(scene.pods)
        (pod,) = scene.pods()
        assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
        name = scene.hold(kernels=1)
        scene.waiting = queue(50, 50)
        await until(lambda: len(scene.pods()) == 2)
        scene.devices, scene.waiting = (device(name, 0),), queue()
        await until(lambda: all("deletionTimestamp" in one["metadata"] for one in scene.pods()))

    scene.run(act)


def test_a_holder_that_the_cluster_ends_keeps_its_gpu_until_kernels_have_left(a_double: ApiDouble) -> None:
    scene = Scene(a_double)

    async def act(until: Any) -> None:
        scene.waiting = queue(100)
        await until(scene.pods)
        name, scene.waiting = scene.hold(kernels=1), queue()
        scene.left = {f"GPU-{name}": {"k1": ""}}
        a_double.store.delete(PODS, "default", name, {})
        await until(lambda: scene.keeper.leaving_devices == {f"GPU-{name}"})
        assert scene.plans == 1, "the planner is told"
        assert [one["metadata"]["name"] for one in scene.pods()] == [name]
        scene.devices = (device(name, 0),)
        scene.left = {}
        await until(lambda: not scene.pods())
        looks = scene.looks
        await until(lambda: scene.looks > looks + 2)
        assert scene.keeper.leaving_devices == {f"GPU-{name}"}, "the agent still tells it: no kernel may come back"
        scene.devices = ()
        await until(lambda: not scene.keeper.leaving_devices)

    scene.run(act)


def test_a_holder_that_the_cluster_ends_stays_while_a_context_is_on_its_gpu(a_double: ApiDouble) -> None:
    scene = Scene(a_double, Seeing)

    async def act(until: Any) -> None:
        async def looked_again() -> None:
            before = scene.looks
            await until(lambda: scene.looks > before + 6)

        assert isinstance(scene.clock, Fast)
        scene.waiting = queue(100)
        await until(scene.pods)
        name, scene.waiting = scene.hold(kernels=0), queue()
        scene.left = {f"GPU-{name}": {"k1": "", "k2": "it has unified memory"}}
        a_double.store.delete(PODS, "default", name, {})
        await until(lambda: scene.stuck == {"k2": "it has unified memory"})
        await looked_again()
        assert [one["metadata"]["name"] for one in scene.pods()] == [name], "the next owner would pay for them"
        scene.clock.later += 120 - LAST_SECONDS
        await until(lambda: scene.stuck == {"k1": "it did not leave the GPU in time", "k2": "it has unified memory"})
        scene.left = {}
        await until(lambda: not scene.pods())
        await until(lambda: not scene.stuck)

    scene.run(act)


def test_kernels_leave_a_gpu_whose_holder_was_killed(a_double: ApiDouble) -> None:
    scene = Scene(a_double)

    async def act(until: Any) -> None:
        scene.waiting = queue(100)
        await until(scene.pods)
        name = scene.hold(kernels=1)
        lost, told = f"GPU-{name}", Quota(f"GPU-{name}", 0, GpuShare(100), Bytes(1 << 30))
        grant = Grant("k1", "ada", Request(GpuShare(100)), "gpu-1", (told,), "/k", ())
        ledger = LedgerSnapshot(holdings={"k1": Holding(grant, KernelRef("k1", "ada"), EARLY)})
        scene.waiting, scene.left = replace(queue(), ledger=ledger), {lost: {"k1": ""}}
        a_double.store.replace(PODS, "default", name, {"status": {"phase": "Failed"}}, "status")
        # The agent has told already that no holder has it.
        scene.devices = (replace(device(name, 1), holder="", lost=True),)
        await until(lambda: scene.keeper.leaving_devices == {lost})
        await until(lambda: scene.stuck == {"k1": "it did not leave the GPU in time"})
        scene.left = {}
        await until(lambda: not scene.stuck)
        scene.devices = (device("another", 1),)
        await until(lambda: not scene.keeper.leaving_devices)

    scene.run(act)


def test_a_replica_that_may_not_lead_makes_and_ends_no_holder(a_double: ApiDouble) -> None:
    scene = Scene(a_double, Seeing, idle_seconds=0)

    async def act(until: Any) -> None:
        async def looked_again() -> None:
            before = scene.looks
            await until(lambda: scene.looks > before + 3)

        scene.lead.is_held, scene.waiting = False, queue(100)
        await looked_again()
        assert not scene.pods()
        scene.lead.is_held = True
        await until(scene.pods)
        scene.hold(kernels=1)
        scene.lead.is_held, scene.devices, scene.waiting = (
            False,
            (device(scene.pods()[0]["metadata"]["name"], 0),),
            queue(),
        )
        await looked_again()
        assert all("deletionTimestamp" not in one["metadata"] for one in scene.pods())
        scene.lead.is_held = True
        await until(lambda: all("deletionTimestamp" in one["metadata"] for one in scene.pods()))

    scene.run(act)


def test_holders_go_with_the_gateways_deployment(a_double: ApiDouble) -> None:
    meta = {"metadata": {"name": "aliquot-gateway"}}
    a_double.store.create(RESOURCES["deployments"], "default", meta)
    scene = Scene(a_double, deployment="aliquot-gateway", guaranteed=1)

    async def act(until: Any) -> None:
        await until(scene.pods)

    scene.run(act)
    a_double.store.delete(RESOURCES["deployments"], "default", "aliquot-gateway", {})
    assert not scene.pods()


@pytest.mark.parametrize("client", [Blind, Unanswered])
def test_a_watch_that_is_silent_makes_no_more_holders(client: type[ClusterClient], a_double: ApiDouble) -> None:
    scene = Scene(a_double, client, guaranteed=1)

    async def act(until: Any) -> None:
        async def looked_again() -> None:
            before = scene.looks
            await until(lambda: scene.looks > before + 3)

        assert isinstance(scene.clock, Fast)
        await until(scene.pods)
        await looked_again()
        (pod,) = scene.pods()
        scene.clock.later += 60  # it is read
        await looked_again()
        assert scene.pods() == [pod]
        a_double.store.delete(PODS, "default", pod["metadata"]["name"], {"gracePeriodSeconds": 0})
        scene.clock.later += 60
        await until(scene.pods)
        await looked_again()
        assert len(scene.pods()) == 1

    scene.run(act)


def test_a_holder_that_a_silent_watch_does_not_tell_gets_its_claim(a_double: ApiDouble) -> None:
    scene = Scene(a_double, Blind, guaranteed=1, device_class="gpu.nvidia.com")
    assert a_double.allowed is not None
    a_double.allowed.append(("create", "resourceclaims"))  # as the overlays grant

    async def act(until: Any) -> None:
        await until(lambda: a_double.store.list(RESOURCES["resourceclaims"], "default")[0])
        (pod,), (claim,) = scene.pods(), a_double.store.list(RESOURCES["resourceclaims"], "default")[0]
        assert claim["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]

    scene.run(act)


def test_kai_is_told_the_guarantee_that_is_set_now(a_double: ApiDouble) -> None:
    def told() -> list[int]:
        return [one["spec"]["minMember"] for one in a_double.store.list(RESOURCES["podgroups"], "default")[0]]

    for guaranteed in (2, 1):
        scene = Scene(a_double, guaranteed=guaranteed, queueing="kai", queue="q")
        assert a_double.allowed is not None
        a_double.allowed += [("create", "podgroups"), ("patch", "podgroups")]  # as the overlay grants

        async def act(until: Any, want: int = guaranteed) -> None:
            await until(lambda: told() == [want])

        scene.run(act)


def test_a_cordoned_gpu_is_no_help_to_a_kernel_that_waits(a_double: ApiDouble) -> None:
    scene = Scene(a_double)

    async def act(until: Any) -> None:
        scene.waiting = queue(100)
        await until(scene.pods)
        uuid = f"GPU-{scene.hold(kernels=0)}"
        told = Device(uuid, 0, "gpu", Bytes(1 << 30), GpuShare(0), Bytes(0))
        cordons = LedgerSnapshot(others=(Node("gpu-1", devices=(told,)),), cordons={uuid: Cordon("ada", 0.0)})
        scene.waiting = replace(queue(100), ledger=cordons)
        await until(lambda: len(scene.pods()) == 2)

    scene.run(act)


def test_a_gpu_that_no_agent_tells_for_long_is_no_help_to_a_kernel_that_waits(a_double: ApiDouble) -> None:
    scene = Scene(a_double, Seeing)

    async def act(until: Any) -> None:
        assert isinstance(scene.clock, Fast)
        scene.waiting = queue(100)
        await until(scene.pods)
        scene.hold(kernels=0)
        scene.devices = ()
        before = scene.looks
        await until(lambda: scene.looks > before + 9)
        assert len(scene.pods()) == 1
        scene.clock.later += 600
        await until(lambda: len(scene.pods()) == 2)

    scene.run(act)


def test_settings_choose_the_queue_of_the_cluster() -> None:
    def settings(**told: Any) -> Any:
        return HolderPods(config=Config({"HolderPods": told})).settings("i")

    assert settings() is None
    assert settings(most=1, queueing="kueue", queue="q").queueing.queue == "q"
    with pytest.raises(TraitError, match=r"c\.HolderPods: The pool 'gpus' guarantees 3"):
        settings(most=1, guaranteed=3)
