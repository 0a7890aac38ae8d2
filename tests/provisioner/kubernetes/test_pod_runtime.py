"""Kernels as pods on the API double: starts in words, ends, an API that is away, and what a later gateway finds.

A test plays the kubelet by the pods' status. The kernel's own sockets are the node double's subject.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from api_double.server import ApiDouble
from api_double.store import RESOURCES, Failure

from jupyter_aliquot.gpu_hook.paths import RuntimeDir
from jupyter_aliquot.provisioner.containers.plan import ContainerLimits, ContainerPlan, Mount
from jupyter_aliquot.provisioner.errors import LaunchError, WithdrawnError
from jupyter_aliquot.provisioner.kubernetes.client import ClusterAwayError, ClusterError
from jupyter_aliquot.provisioner.kubernetes.permissions import PERMISSIONS
from jupyter_aliquot.provisioner.kubernetes.pods.runtime import PodRuntime
from jupyter_aliquot.provisioner.kubernetes.pods.store import relay_request
from jupyter_aliquot.provisioner.kubernetes.settings import Cluster as ClusterSettings, PodSettings, Volume
from jupyter_aliquot.provisioner.kubernetes.slugs import slug
from jupyter_aliquot.provisioner.kubernetes.tunnel.gateway import KernelTunnel
from jupyter_aliquot.provisioner.kubernetes.tunnel.keys import read_keys
from jupyter_aliquot.provisioner.launch_spec import LaunchSpec
from jupyter_aliquot.provisioner.relay.wire.files import RelayRecord, write_relay_fields
from jupyter_aliquot.provisioner.resources import Bytes, GpuShare, Grant, KernelProcess, Request
from jupyter_aliquot.provisioner.runtime.base import Launch
from jupyter_aliquot.provisioner.terminations import EndingCode, read_ending

from .conftest import Cluster, until

PODS, SECRETS = RESOURCES["pods"], RESOURCES["secrets"]
NAME = "aliquot-kernel-k1"
Scene = Callable[["Place"], Awaitable[None]]


def is_watch(path: str) -> bool:
    return "watch=true" in path


class Place:
    """A gateway's runtime on the double."""

    def __init__(self, double: ApiDouble, cluster: Cluster, folder: Path) -> None:
        self.double, self._cluster, self._folder = double, cluster, folder
        self._runtimes: list[PodRuntime] = []
        self.runtime = self.another()

    def another(self, deployment: str = "", **settings: Any) -> PodRuntime:
        """Return the runtime of a gateway of the same name."""
        told = PodSettings(ClusterSettings("default", "g", "relay:1", deployment=deployment), **settings)
        log = logging.getLogger("test")
        made = PodRuntime(told, RuntimeDir(self._folder), log, lambda: self._cluster.configuration)
        self._runtimes.append(made)
        return made

    async def stop(self) -> None:
        """Stop all runtimes. Idempotent. A cancellation alone may be lost in one that connects to a pod."""
        for runtime in self._runtimes:
            await runtime.stop()

    def launch(self, plan: ContainerPlan | None = None) -> Launch:
        folder = RuntimeDir(self._folder).relay("k1")
        (folder / "k").mkdir(parents=True, exist_ok=True)
        front = {"key": "a-key"}
        facts = {"owner": "zoë", "label": "a.ipynb", "kernelspec": "torch.gpu-0.25", "teams": ["ml"]}
        record = RelayRecord("k1", folder, front, 1, 1, "boot", 1, facts)
        write_relay_fields(folder, {"request": {"kernel_id": "k1", "key": "a-key"}, "facts": facts})
        grant = Grant("k1", "zoë", Request(GpuShare(25)), "gpu-1", (), "/k", (("ALIQUOT_X", "1"),))
        spec = LaunchSpec("k1", ("python", "-f", str(record.kernel_connection_file)), ())
        return Launch(spec, grant=grant, container=plan or ContainerPlan("torch:1"), relay=record)

    def pod(self) -> dict[str, Any]:
        return self.double.store.read(PODS, "default", NAME)

    def is_there(self) -> bool:
        return any(one["metadata"]["name"] == NAME for one in self.double.store.list(PODS, "default")[0])

    def lists(self) -> list[str]:
        """Return the requests for all pods."""
        asked = [path for method, path in self.double.requests if method == "GET" and "/pods?" in path]
        return [path for path in asked if not is_watch(path)]

    def watches(self) -> int:
        return sum(is_watch(path) for _, path in self.double.requests)

    def uid(self) -> str:
        return str(self.pod()["metadata"]["uid"]) if self.is_there() else ""

    def tell(self, status: dict[str, Any], node: str = "gpu-1") -> None:
        """Write the pod's status, as scheduler and kubelet do."""
        if node and not self.pod()["spec"].get("nodeName"):
            pod = self.pod()
            bound = {**pod, "spec": {**pod["spec"], "nodeName": node}}
            self.double.store.replace(PODS, "default", NAME, bound)
        self.double.store.replace(PODS, "default", NAME, {**self.pod(), "status": status}, "status")

    def run(self) -> None:
        running = {"name": "kernel", "state": {"running": {}}}
        self.tell({"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": [running]})

    def exit(self, code: int, reason: str = "Error") -> None:
        ended = {"name": "kernel", "state": {"terminated": {"exitCode": code, "reason": reason}}}
        self.tell({"phase": "Failed" if code else "Succeeded", "podIP": "127.0.0.1", "containerStatuses": [ended]})

    async def started(self, runtime: PodRuntime | None = None) -> KernelProcess:
        before = self.uid()
        start = asyncio.ensure_future((runtime or self.runtime).create(self.launch()))
        await until(lambda: start.done() or self.uid() not in ("", before))
        self.run()
        return await start


@pytest.fixture
def play(a_double: ApiDouble, on_double: Cluster) -> Callable[[Scene], None]:
    a_double.allowed = [(verb, one.resource) for one in PERMISSIONS for verb in one.verbs]
    a_double.store.create(RESOURCES["nodes"], "", {"metadata": {"name": "gpu-1"}})

    def run(scene: Scene) -> None:
        async def act() -> None:
            with tempfile.TemporaryDirectory(prefix="aqp-") as folder:
                place = Place(a_double, on_double, Path(folder))
                try:
                    await asyncio.wait_for(scene(place), 120)
                finally:
                    await place.stop()

        asyncio.run(act())

    return run


def test_a_start_waits_with_the_clusters_reasons_and_runs_on_the_grants_node(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        start = asyncio.ensure_future(place.runtime.create(place.launch()))
        await until(place.is_there)
        text = "0/1 nodes are available: 1 Insufficient cpu."
        told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}
        place.tell({"phase": "Pending", "conditions": [told]}, node="")
        await until(lambda: place.runtime.waiting_reason("k1") == f"No node has room for the pod: {text}")
        pull = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
        place.tell({"phase": "Pending", "containerStatuses": [{"name": "kernel", "image": "torch:1", "state": pull}]})
        await until(lambda: "The image 'torch:1' cannot be fetched" in (place.runtime.waiting_reason("k1") or ""))
        place.run()
        process = await start
        assert place.runtime.waiting_reason("k1") is None
        assert await place.runtime.poll(process) is None

        pod, secret = place.pod(), place.double.store.read(SECRETS, "default", NAME)
        term = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["gpu-1"]
        assert pod["spec"]["containers"][0]["command"][-1] == "/run/aliquot/kernel/connection.json"
        assert secret["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]

    play(scene)


def test_a_replica_whose_lease_may_be_anothers_makes_no_pod(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        leads = [False]
        runtime = place.another(leads=lambda: leads[0])
        start = asyncio.ensure_future(runtime.create(place.launch()))
        await until(lambda: "another replica of the gateway may lead" in (runtime.waiting_reason("k1") or ""))
        assert not place.is_there()
        leads[0] = True
        await until(place.is_there)
        place.run()
        await start

    play(scene)


@pytest.mark.parametrize("is_anothers_there", [True, False])
def test_a_replica_that_loses_the_lease_while_it_makes_a_pod_leaves_only_the_others(
    play: Callable[[Scene], None], is_anothers_there: bool
) -> None:
    async def scene(place: Place) -> None:
        if is_anothers_there:
            await place.started()
        pods = [place.pod()["metadata"]["uid"]] if is_anothers_there else []
        answers = iter([True])
        runtime = place.another(leads=lambda: next(answers, False))
        start = asyncio.ensure_future(runtime.create(place.launch()))
        await until(lambda: "another replica of the gateway may lead" in (runtime.waiting_reason("k1") or ""))
        if is_anothers_there:
            assert [place.pod()["metadata"]["uid"]] == pods
        else:
            await until(lambda: not place.is_there())
        start.cancel()

    play(scene)


def a_secret(uid: str, **labels: str) -> dict[str, Any]:
    told = {f"aliquot.dev/{name.replace('_', '-')}": value for name, value in labels.items()}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": NAME, "uid": uid}
    return {"metadata": {"name": NAME, "labels": told, "ownerReferences": [owner]}, "data": {"token": "b2xk"}}


def test_the_secret_of_the_last_run_is_replaced_and_no_other_one(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        def replaced(kernel: str) -> None:
            def put(resource: str, told: dict[str, Any]) -> None:
                if resource == "pods":  # owned by another pod that is there, so that it is not collected
                    place.double.store.create(SECRETS, "default", a_secret(other, kernel_id=kernel, gateway="g"))

            place.double.store.admission[:] = [put]

        other = place.double.store.create(PODS, "default", {"metadata": {"name": "other"}})["metadata"]["uid"]
        replaced("k1")
        await place.started()
        secret = place.double.store.read(SECRETS, "default", NAME)
        assert secret["metadata"]["ownerReferences"][0]["uid"] == place.uid()

        place.double.store.delete(PODS, "default", NAME, {"gracePeriodSeconds": 0})
        replaced("of another")
        with pytest.raises(LaunchError, match=f"The Secret {NAME} is there already, and is no kernel's of this"):
            await place.runtime.create(place.launch())
        assert place.double.store.read(SECRETS, "default", NAME)["data"] == {"token": "b2xk"}
        await until(lambda: not place.is_there())

    play(scene)


def test_the_secret_of_another_replicas_start_stays(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        def another_starts(resource: str, told: dict[str, Any]) -> None:
            if resource != "secrets":
                return
            store.admission.clear()  # between this replica's pod and its Secret the other one makes both
            pod = place.pod()
            store.delete(PODS, "default", NAME, {"gracePeriodSeconds": 0})
            made = store.create(PODS, "default", {"metadata": {**pod["metadata"], "ownerReferences": []}})
            uid.append(made["metadata"]["uid"])
            secret = a_secret(uid[0], kernel_id="k1", gateway="g")
            store.create(SECRETS, "default", secret)
            raise Failure(409, "AlreadyExists", f'secrets "{NAME}" already exists')

        uid: list[str] = []
        store = place.double.store
        store.admission.append(another_starts)
        with pytest.raises(LaunchError, match=f"The pod {NAME} was replaced by another program"):
            await place.runtime.create(place.launch())
        assert store.read(SECRETS, "default", NAME)["data"] == {"token": "b2xk"}
        assert place.uid() == uid[0]

    play(scene)


def test_a_secret_whose_answer_was_lost_is_this_starts_own(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        made: list[dict[str, Any]] = []

        def lose(resource: str, told: dict[str, Any]) -> None:
            if resource == "secrets":
                place.double.store.admission.clear()
                made.append(place.double.store.create(SECRETS, "default", told))
                raise Failure(503, "ServiceUnavailable", "the answer is lost")

        place.double.store.admission.append(lose)
        await place.started()
        now = place.double.store.read(SECRETS, "default", NAME)["metadata"]["uid"]
        assert now == made[0]["metadata"]["uid"]

    play(scene)


def test_a_replica_that_may_not_lead_starts_no_second_relay(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        await place.started()
        leads = True
        later = place.another(leads=lambda: leads)
        (found,) = await later.find()
        leads = False
        with pytest.raises(ClusterAwayError, match="another replica of the gateway may lead"):
            await later.revive(found)
        await later.stop()

    play(scene)


def test_a_start_that_is_given_up_or_deleted_leaves_no_pod(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        given_up = asyncio.ensure_future(place.runtime.create(place.launch()))
        await until(place.is_there)
        given_up.cancel()
        await until(lambda: not place.is_there())
        deleted = asyncio.ensure_future(place.runtime.create(place.launch()))
        await until(place.is_there)
        place.double.store.delete(PODS, "default", NAME, {"gracePeriodSeconds": 0})
        with pytest.raises(LaunchError, match="deleted by another program"):
            await deleted

    play(scene)


def test_the_end_of_a_pod_is_the_kernels_and_has_its_reason(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        process = await place.started()
        place.exit(3)
        assert await place.runtime.wait(process) == 3
        await place.runtime.remove(process)
        assert not place.is_there()

        process = await place.started()
        place.exit(137, "OOMKilled")
        assert await place.runtime.wait(process) == -signal.SIGKILL
        end = await place.runtime.ending(process)
        assert end is not None
        assert end.is_out_of_memory

        # The pod of the last run is still there: the next start takes its name.
        process = await place.started()
        told = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "tainted"}
        place.tell({"phase": "Running", "conditions": [told]})
        assert await place.runtime.wait(process) == 255
        end = await place.runtime.ending(process)
        assert end is not None
        assert "its node was not ready" in end.lost

    play(scene)


def test_a_signal_that_ends_processes_deletes_the_pod(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        process = await place.started()
        await place.runtime.signal(process, signal.SIGTERM)
        assert place.pod()["metadata"]["deletionTimestamp"]
        assert await place.runtime.poll(process) is None, "it has its grace period"
        await place.runtime.signal(process, signal.SIGKILL)
        assert await place.runtime.wait(process) == -signal.SIGKILL
        assert not place.is_there()

    play(scene)


def test_a_pod_that_cannot_be_seen_is_not_taken_for_ended(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        process = await place.started()
        place.double.go_away()
        with pytest.raises(ClusterAwayError, match="does not answer"):
            await place.runtime.signal(process, signal.SIGTERM)
        assert await place.runtime.poll(process) is None
        assert await place.runtime.ending(process) is None
        place.double.come_back()

    play(scene)


def test_a_later_gateway_finds_the_kernels_on_their_pods_alone(
    play: Callable[[Scene], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(place: Place) -> None:
        process = await place.started()
        await place.runtime.stop()
        later = place.another()
        before, watches = len(place.lists()), place.watches()
        (found,) = await later.find()
        await until(lambda: place.watches() > watches)
        assert len(place.lists()) == before + 1, "it is listed once, and watched from there"
        assert (found.process, found.is_running) == (process, True)
        assert await later.poll(process) is None
        place.exit(0)
        assert await later.wait(process) == 0
        (found,) = await later.find()
        assert not found.is_running
        await later.stop()

    play(scene)
    assert "tunnel=none" not in caplog.text  # the keys are read


def test_a_pod_that_does_not_run_in_time_ends_its_start_with_the_reason(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        hasty = place.another(start_seconds=0.5)
        with pytest.raises(LaunchError, match=r"does not run after 0\.5 s"):
            await hasty.create(place.launch())
        await until(lambda: not place.is_there())
        await hasty.stop()

    play(scene)


def test_folders_of_the_gateways_machine_are_refused(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        plan = ContainerPlan("torch:1", mounts=(Mount("/data", "/data"),))
        with pytest.raises(LaunchError, match=r"c\.KernelPods\.volumes"):
            await place.runtime.create(place.launch(plan))

    play(scene)


def test_cpu_and_memory_follow_a_resize(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        process = await place.started()
        left = await place.runtime.resize(process, ContainerLimits(Bytes(1 << 30), 2.0))
        if not left:
            limits = place.pod()["spec"]["containers"][0]["resources"]["limits"]
            assert (limits["cpu"], limits["memory"]) == ("2000m", str(1 << 30))
        else:
            assert "stay as they are" in left

    play(scene)


def test_a_refused_resize_is_told_as_such(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        process = await place.started()
        place.double.failures.append(Failure(422, "Invalid", "spec: a word"))
        left = await place.runtime.resize(process, ContainerLimits(Bytes(1 << 30), 2.0))
        assert "until its next start. The cluster refused the resize of the kernel's pod: spec: a word" in left

    play(scene)


def test_a_start_that_waits_can_be_withdrawn(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        start = asyncio.ensure_future(place.runtime.create(place.launch()))
        await until(place.is_there)
        assert place.runtime.withdraw("k1")
        with pytest.raises(WithdrawnError, match="had not started its pod"):
            await start
        await until(lambda: not place.is_there())
        process = await place.started()
        assert not place.runtime.withdraw("k1"), "it runs"
        assert await place.runtime.poll(process) is None

    play(scene)


def test_a_start_that_is_withdrawn_while_the_last_runs_tunnel_ends_leaves_no_pod(
    play: Callable[[Scene], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, may_close = asyncio.Event(), asyncio.Event()

    async def close(tunnel: KernelTunnel) -> None:
        closing.set()
        await may_close.wait()

    async def scene(place: Place) -> None:
        await place.started()
        monkeypatch.setattr(KernelTunnel, "close", close)
        start = asyncio.ensure_future(place.started())
        await closing.wait()
        assert place.runtime.withdraw("k1")
        with pytest.raises(WithdrawnError):
            await start
        await until(lambda: not place.is_there())

    play(scene)


def test_the_pod_tells_no_key_of_its_relay(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        launch = place.launch()
        assert launch.relay is not None
        keys = {"key": "a-key", "curve_secretkey": "a-curve-key"}
        request = {"kernel_id": "k1", "curve_publickey": "public", **keys}
        write_relay_fields(launch.relay.folder, {"request": request, "facts": {}})
        start = asyncio.ensure_future(place.runtime.create(replace(launch, relay=replace(launch.relay, front=keys))))
        await until(place.is_there)
        place.run()
        await start
        assert not [one for one in keys.values() if one in json.dumps(place.pod())]
        secret = place.double.store.read(SECRETS, "default", NAME)
        found = relay_request(place.pod(), read_keys(secret))
        assert {one: getattr(found, one) for one in request} == request

    play(scene)


def test_a_delete_that_is_refused_is_told_once_and_tried_again(
    play: Callable[[Scene], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(place: Place) -> None:
        process = await place.started()
        refusal = Failure(403, "Forbidden", "the account cannot delete pods")
        place.double.failures.extend([refusal] * 3)
        with pytest.raises(ClusterError):
            await place.runtime.remove(process)
        await until(lambda: not place.is_there())
        assert caplog.text.count("delete=later") == 1

    play(scene)


@pytest.mark.parametrize(
    ("reason", "want"),
    [
        ("EvictionByEvictionAPI", "an administrator or a program drained its node"),
        ("PreemptionByScheduler", "the cluster gave its place to a pod of higher priority"),
        ("DeletionByPodGC", "its node is gone"),
    ],
)
def test_a_pod_that_the_cluster_takes_is_a_lost_kernel(play: Callable[[Scene], None], reason: str, want: str) -> None:
    async def scene(place: Place) -> None:
        process = await place.started()
        told = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "m"}
        place.tell({"phase": "Running", "conditions": [told]})
        # It is gone before the gateway looks, too.
        place.double.store.delete(PODS, "default", NAME, {"gracePeriodSeconds": 0})
        await until(lambda: place.watches() and place.runtime._store().is_gone(process.container.partition("/")[2]))
        await place.runtime.wait(process)
        ending = read_ending(await place.runtime.ending(process), None, 1.0)
        assert ending.code is EndingCode.NODE_LOST
        assert ending.message == f"the kernel is lost: the cluster evicted it: {want} (m)"

    play(scene)


def test_a_busy_api_delays_a_start_and_a_list_as_it_said(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        busy = Failure(429, "TooManyRequests", "too many requests", retry_after=1)
        place.double.failures.extend([busy, Failure(500, "InternalError", "etcd has no leader")])
        process = await place.started()
        place.double.failures.append(Failure(503, "ServiceUnavailable", "starting"))
        (found,) = await place.another().find()
        assert found.process == process

    play(scene)


def test_a_busy_api_delays_the_relay_of_a_found_kernel_and_a_refusing_one_is_told(
    play: Callable[[Scene], None],
) -> None:
    async def scene(place: Place) -> None:
        await place.started()
        later = place.another()
        (found,) = await later.find()
        place.double.failures.append(Failure(429, "TooManyRequests", "too many requests"))
        assert place.double.allowed is not None
        place.double.allowed.remove(("get", "secrets"))
        with pytest.raises(ClusterError, match="cannot get resource"):
            await later.revive(found)
        assert not place.double.failures
        place.double.store.delete(SECRETS, "default", NAME, {})
        place.double.allowed.append(("get", "secrets"))
        assert await later.revive(found) is None, "without its keys no gateway ever reaches it"
        await later.stop()

    play(scene)


def test_pods_go_with_the_gateways_deployment(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        meta = {"metadata": {"name": "aliquot-gateway"}}
        uid = place.double.store.create(RESOURCES["deployments"], "default", meta)["metadata"]["uid"]
        runtime = place.another(deployment="aliquot-gateway")
        await place.started(runtime)
        assert [one["uid"] for one in place.pod()["metadata"]["ownerReferences"]] == [uid]
        place.double.store.delete(RESOURCES["deployments"], "default", "aliquot-gateway", {})
        assert not place.is_there()
        await runtime.stop()

    play(scene)


def test_a_home_that_another_node_has_is_told_in_words(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        start = asyncio.ensure_future(place.runtime.create(place.launch()))
        await until(place.is_there)
        place.tell({"phase": "Pending"})
        why = 'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) jupyter-zoe'
        event = {"metadata": {"name": "e1"}, "involvedObject": {"uid": place.uid()}, "type": "Warning"}
        told = {**event, "reason": "FailedAttachVolume", "message": why, "lastTimestamp": "2026-01-01T00:00:01Z"}
        place.double.store.create(RESOURCES["events"], "default", told)
        await until(lambda: "(ReadWriteOnce), and another node has it" in (place.runtime.waiting_reason("k1") or ""))
        place.run()
        await start

    play(scene)


def test_a_pod_has_its_owners_home_account_and_groups(play: Callable[[Scene], None]) -> None:
    async def scene(place: Place) -> None:
        home = Volume("home-{username}", {"persistentVolumeClaim": {"claimName": "claim-{username}"}}, "/home/zoe")
        runtime = place.another(
            volumes=(home,), home="/home/zoe", uid=len, gid=lambda owner: 5, fs_gid=lambda owner: 6, groups=(7,)
        )
        await place.started(runtime)
        pod, name = place.pod()["spec"], slug("zo\u00eb", "safe")
        security = pod["securityContext"]
        assert [security[one] for one in ("runAsUser", "runAsGroup", "fsGroup")] == [3, 5, 6]
        assert security["supplementalGroups"] == [7]
        assert pod["volumes"][-1] == {"name": f"home-{name}", "persistentVolumeClaim": {"claimName": f"claim-{name}"}}
        kernel = pod["containers"][0]
        assert kernel["workingDir"] == "/home/zoe"
        assert {"name": "HOME", "value": "/home/zoe"} in kernel["env"]
        await runtime.stop()

    play(scene)
