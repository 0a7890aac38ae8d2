"""The agent as a device plugin: real gRPC to the node double's kubelet, the agent over fake devices."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ANode, FakeHook, until
from node_double.kubelet import Given, Kubelet, NotEnoughError

from jupyter_aliquot.gpu_hook.client.client import query
from jupyter_aliquot.gpu_hook.protocol import codec as protocol

RESOURCE, GPU_RESOURCE = "aliquot.dev/kernel", "nvidia.com/gpu"
GPUS = tuple(f"GPU-00000000-0000-0000-0000-0000000000a{index}" for index in range(2))


class PluginNode:
    """A kubelet, and the agent that is its plugin."""

    def __init__(self, agent: ANode, kubelet: Kubelet) -> None:
        self.agent, self.kubelet = agent, kubelet

    def start(self, *more: str) -> None:
        self.agent.start("--kubelet", str(self.kubelet.folder), "--kernel-slots", "3", *more)

    def healthy(self) -> int:
        return self.kubelet.amounts().get(RESOURCE, (0, 0))[1]

    def give(self, pod: str) -> Given:
        return self.kubelet.allocate("notebooks", pod, "kernel", {RESOURCE: 1})

    def reserve(self, kernel_id: str, pod: str) -> None:
        attributes = {"pod": f"notebooks/{pod}"}
        asked = {"owner": "ada", "hundredths": 25, "memory_limit": None, "workload_class": "production", "label": ""}
        query("reserve", runtime_dir=self.agent.folder, kernel_id=kernel_id, attributes=attributes, **asked)

    def hold(self, kernel_id: str, pod: str) -> str:
        """Return the slot's folder of a kernel that its pod alone holds: no process of it has used a GPU yet."""
        folder = self.give(pod).env["ALIQUOT_KERNEL_DIR"]
        self.reserve(kernel_id, pod)  # on a connection that is closed at once
        self.reserve("orphan", "pod-that-never-came")
        until(lambda: self.agent.kernel("orphan") is None)
        return folder


@pytest.fixture
def a_plugin(an_idle_node: ANode) -> Iterator[PluginNode]:
    folder = Path(tempfile.mkdtemp(prefix="aqk-"))
    kubelet = Kubelet(folder)
    kubelet.start()
    kubelet.offer(GPU_RESOURCE, GPUS)
    kubelet.allocate("notebooks", "aliquot-holder-1", "holder", {GPU_RESOURCE: 1})
    yield PluginNode(an_idle_node, kubelet)
    kubelet.stop()
    shutil.rmtree(folder, ignore_errors=True)


def test_kubelet_is_offered_the_slots_and_gives_each_to_one_pod(a_plugin: PluginNode) -> None:
    a_plugin.start()
    until(lambda: a_plugin.healthy() == 3)
    assert a_plugin.kubelet.registrations == [RESOURCE]

    folders = [a_plugin.give(f"pod-{number}").env["ALIQUOT_KERNEL_DIR"] for number in range(3)]
    assert len(set(folders)) == 3
    with pytest.raises(NotEnoughError):
        a_plugin.give("one-more")


def test_a_pod_mounts_no_libraries_that_the_agents_start_removed(a_plugin: PluginNode, tmp_path: Path) -> None:
    older = tmp_path / "0-of-before"
    for part in ("shim", "bin", "softgpu"):
        (older / part).mkdir(parents=True)
    a_plugin.start("--library-dir", str(tmp_path))
    until(lambda: a_plugin.healthy() == 3)
    assert not older.exists(), "no kernel has them"
    (today,) = tmp_path.iterdir()
    mounts = a_plugin.give("pod-1").mounts
    assert [source for _, source in mounts if source.startswith(str(tmp_path))] == [str(today)]


def test_hook_in_a_slot_joins_the_kernel_whose_grant_names_the_pod(a_plugin: PluginNode) -> None:
    a_plugin.start()
    until(lambda: a_plugin.healthy() == 3)
    a_plugin.reserve("other", "pod-of-another")
    a_plugin.reserve("k", "pod-of-k")
    hook = FakeHook(a_plugin.give("pod-of-k").env["ALIQUOT_KERNEL_DIR"])
    a_plugin.agent.hooks.append(hook)

    assert isinstance(hook.hello(), protocol.Welcome)
    kernels = {one["kernel_id"]: one["pids"] for one in a_plugin.agent.status()["kernels"]}
    assert len(kernels["k"]) == 1
    assert not kernels.get("other")


def test_hook_of_a_pod_without_a_grant_is_refused_with_the_reason(a_plugin: PluginNode) -> None:
    a_plugin.start()
    until(lambda: a_plugin.healthy() == 3)
    hook = FakeHook(a_plugin.give("stranger").env["ALIQUOT_KERNEL_DIR"])
    a_plugin.agent.hooks.append(hook)

    answer = hook.hello()
    assert isinstance(answer, protocol.Refuse)
    assert "notebooks/stranger" in answer.text


def test_slot_that_is_given_again_leads_to_the_new_pods_kernel(a_plugin: PluginNode) -> None:
    a_plugin.start()
    until(lambda: a_plugin.healthy() == 3)
    a_plugin.reserve("first", "pod-1")
    a_plugin.reserve("second", "pod-2")
    folder = a_plugin.give("pod-1").env["ALIQUOT_KERNEL_DIR"]
    hook = FakeHook(folder)
    assert isinstance(hook.hello(), protocol.Welcome)
    hook.close()
    a_plugin.kubelet.free("notebooks", "pod-1")
    assert a_plugin.give("pod-2").env["ALIQUOT_KERNEL_DIR"] == folder

    again = FakeHook(folder)
    a_plugin.agent.hooks.append(again)
    assert isinstance(again.hello(), protocol.Welcome)
    until(lambda: any(one["kernel_id"] == "second" and one["pids"] for one in a_plugin.agent.status()["kernels"]))


def test_plugin_registers_again_with_a_kubelet_that_restarted(a_plugin: PluginNode) -> None:
    a_plugin.start()
    until(lambda: a_plugin.healthy() == 3)
    a_plugin.kubelet.restart()

    until(lambda: len(a_plugin.kubelet.registrations) == 2 and a_plugin.healthy() == 3)
    assert a_plugin.give("pod-1").env["ALIQUOT_KERNEL_DIR"]


def test_plugin_registers_again_with_a_kubelet_that_stopped_reading_its_devices(a_plugin: PluginNode) -> None:
    a_plugin.start()
    until(lambda: a_plugin.healthy() == 3)
    a_plugin.kubelet.end_streams()

    until(lambda: len(a_plugin.kubelet.registrations) > 1 and a_plugin.healthy() == 3)


def test_slots_are_unhealthy_while_the_devices_are_lost(a_plugin: PluginNode) -> None:
    a_plugin.start()
    until(lambda: a_plugin.healthy() == 3)
    a_plugin.agent.set_devices(count=1, lost=[0])
    until(lambda: a_plugin.kubelet.amounts()[RESOURCE] == (3, 0))

    a_plugin.agent.set_devices(count=1)
    until(lambda: a_plugin.healthy() == 3)


def test_only_gpus_that_holders_hold_are_the_agents(a_plugin: PluginNode) -> None:
    a_plugin.agent.set_devices(count=2)
    a_plugin.start()
    until(lambda: a_plugin.healthy() == 3)
    assert [one["uuid"] for one in a_plugin.agent.status()["devices"]] == [GPUS[0]]

    a_plugin.kubelet.allocate("notebooks", "a-training", "main", {GPU_RESOURCE: 1})
    assert not [mount for mount in a_plugin.give("pod-1").devices if mount == "/dev/nvidia1"]
    a_plugin.kubelet.free("notebooks", "aliquot-holder-1")
    until(lambda: not a_plugin.agent.status()["devices"])
    until(lambda: a_plugin.healthy() == 0)


def test_gpu_whose_holder_is_gone_is_lost_from_that_moment_also_while_its_driver_does_not_answer(
    a_plugin: PluginNode,
) -> None:
    a_plugin.agent.set_devices(count=1, deadline=60.0)
    a_plugin.start()
    until(lambda: a_plugin.healthy() == 3)
    a_plugin.give("pod-of-k")
    a_plugin.reserve("k", "pod-of-k")
    a_plugin.agent.set_devices(count=1, hangs=True)
    a_plugin.kubelet.free("notebooks", "aliquot-holder-1")

    def device() -> Any:
        (told,) = a_plugin.agent.status()["devices"]
        return told

    found = until(lambda: (told := device())["holder"] == "" and told)
    assert found["lost"]
    a_plugin.kubelet.allocate("notebooks", "aliquot-holder-2", "holder", {GPU_RESOURCE: 1})
    found = until(lambda: (told := device())["holder"] and told)
    assert not found["lost"]
    a_plugin.agent.set_devices(count=1)


def test_kernel_is_held_by_its_pod_and_released_after_it(a_plugin: PluginNode) -> None:
    a_plugin.start()
    until(lambda: a_plugin.healthy() == 3)
    a_plugin.hold("k", "pod-of-k")
    assert a_plugin.agent.kernel("k") is not None

    a_plugin.kubelet.free("notebooks", "pod-of-k")
    until(lambda: a_plugin.agent.kernel("k") is None)


def test_agent_that_restarts_listens_in_the_slots_that_pods_have(a_plugin: PluginNode) -> None:
    a_plugin.start()
    until(lambda: a_plugin.healthy() == 3)
    folder = a_plugin.hold("k", "pod-of-k")
    a_plugin.agent.end()
    a_plugin.start()
    until(lambda: a_plugin.healthy() == 3)

    hook = FakeHook(folder)
    a_plugin.agent.hooks.append(hook)
    assert isinstance(hook.hello(), protocol.Welcome)


def test_kernels_gpu_is_not_lost_while_the_kubelet_is_away_from_an_agents_start(a_plugin: PluginNode) -> None:
    a_plugin.agent.set_devices(count=2)
    a_plugin.start()
    until(lambda: a_plugin.healthy() == 3)
    folder = a_plugin.hold("k", "pod-of-k")
    a_plugin.agent.end()
    a_plugin.kubelet.stop()
    a_plugin.start()
    until(lambda: [(one["uuid"], one["lost"]) for one in a_plugin.agent.status()["devices"]] == [(GPUS[0], False)])

    a_plugin.kubelet.start()
    until(lambda: a_plugin.healthy() == 3)
    hook = FakeHook(folder)
    a_plugin.agent.hooks.append(hook)
    assert isinstance(hook.hello(), protocol.Welcome)


def test_agent_waits_for_a_kubelet_that_is_not_there_yet(a_plugin: PluginNode) -> None:
    a_plugin.kubelet.stop()
    shutil.rmtree(a_plugin.kubelet.folder)
    a_plugin.start()
    until(lambda: "event=plugin_not_registered" in a_plugin.agent.log())

    a_plugin.kubelet.start()
    until(lambda: a_plugin.healthy() == 3)
