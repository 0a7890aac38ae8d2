"""States of pods in words: each text is one that a scheduler, a kubelet or an API server of 1.36 wrote."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_aliquot.provisioner.kubernetes.client import ClusterAwayError, ClusterError
from jupyter_aliquot.provisioner.kubernetes.states import PodPhase, pod_state, refusal_text

NO_ROOM = (
    "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: "
    "1 Preemption is not helpful for scheduling."
)


def a_pod(*, bound: bool = True, deleted: bool = False, **status: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "p"}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "spec": {"nodeName": "n"} if bound else {}, "status": status}


def condition(kind: str, status: str, reason: str, message: str = "") -> list[dict[str, str]]:
    return [{"type": kind, "status": status, "reason": reason, "message": message}]


def container(state: dict[str, Any], name: str = "kernel") -> list[dict[str, Any]]:
    return [{"name": name, "image": "registry.example/torch:1", "state": state}]


PENDING = {"phase": "Pending"}


@pytest.mark.parametrize(
    ("pod", "phase", "words"),
    [
        (a_pod(bound=False, **PENDING), PodPhase.SCHEDULING, "has not placed the pod yet"),
        (
            a_pod(bound=False, conditions=condition("PodScheduled", "False", "Unschedulable", NO_ROOM), **PENDING),
            PodPhase.SCHEDULING,
            "No node has room for the pod: 0/1 nodes are available: 1 Insufficient cpu.",
        ),
        (
            a_pod(
                bound=False,
                conditions=condition(
                    "PodScheduled",
                    "False",
                    "SchedulingGated",
                    "Scheduling is blocked due to non-empty scheduling gates",
                ),
                **PENDING,
            ),
            PodPhase.SCHEDULING,
            "waits for a gate",
        ),
        (
            a_pod(
                bound=False,
                conditions=condition("PodScheduled", "False", "SchedulerError", "running PreBind"),
                **PENDING,
            ),
            PodPhase.SCHEDULING,
            "scheduler failed: running PreBind",
        ),
        (a_pod(**PENDING), PodPhase.STARTING, "fetches images"),
        (
            a_pod(
                containerStatuses=container(
                    {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
                ),
                **PENDING,
            ),
            PodPhase.CANNOT_START,
            "The image 'registry.example/torch:1' cannot be fetched (ImagePullBackOff): Back-off pulling image",
        ),
        (
            a_pod(initContainerStatuses=container({"waiting": {"reason": "ErrImagePull"}}, "relay"), **PENDING),
            PodPhase.CANNOT_START,
            "cannot be fetched (ErrImagePull)",
        ),
        (
            a_pod(
                containerStatuses=container(
                    {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "s" not found'}}
                ),
                **PENDING,
            ),
            PodPhase.CANNOT_START,
            'cannot be made (CreateContainerConfigError): secret "s" not found',
        ),
        (
            a_pod(
                initContainerStatuses=container(
                    {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}, "relay"
                ),
                **PENDING,
            ),
            PodPhase.CANNOT_START,
            "The container 'relay' ends again and again",
        ),
        (
            a_pod(containerStatuses=container({"waiting": {"reason": "PodInitializing"}}), **PENDING),
            PodPhase.STARTING,
            "",
        ),
        (a_pod(phase="Running", containerStatuses=container({"running": {}})), PodPhase.RUNNING, ""),
        (a_pod(phase="Running", containerStatuses=container({"running": {}}, "relay")), PodPhase.STARTING, ""),
        (a_pod(phase="Running", deleted=True, containerStatuses=container({"running": {}})), PodPhase.ENDING, ""),
        (
            a_pod(
                phase="Running",
                deleted=True,
                conditions=condition(
                    "DisruptionTarget", "True", "PreemptionByScheduler", "default-scheduler: preempting to accommodate"
                ),
            ),
            PodPhase.EVICTED,
            "gave its place to a pod of higher priority",
        ),
        (
            a_pod(
                phase="Running",
                conditions=condition("DisruptionTarget", "True", "EvictionByEvictionAPI", "Eviction API: evicting"),
            ),
            PodPhase.EVICTED,
            "drained its node",
        ),
        (
            a_pod(
                phase="Failed",
                conditions=condition(
                    "DisruptionTarget",
                    "True",
                    "DeletionByTaintManager",
                    "Taint manager: deleting due to NoExecute taint",
                ),
            ),
            PodPhase.EVICTED,
            "its node was not ready",
        ),
        (
            a_pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory."),
            PodPhase.EVICTED,
            "low on resource: memory",
        ),
        (
            a_pod(
                phase="Failed", containerStatuses=container({"terminated": {"reason": "OOMKilled", "exitCode": 137}})
            ),
            PodPhase.ENDED,
            "more host memory than its pod may have",
        ),
        (
            a_pod(phase="Succeeded", containerStatuses=container({"terminated": {"exitCode": 0}})),
            PodPhase.ENDED,
            "exit code 0",
        ),
        (a_pod(phase="Failed", reason="DeadlineExceeded"), PodPhase.ENDED, "DeadlineExceeded"),
    ],
)
def test_a_pod_is_told_in_words(pod: dict[str, Any], phase: PodPhase, words: str) -> None:
    found = pod_state(pod)
    assert (found.phase, words in found.reason) == (phase, True), found


def test_an_exit_code_is_the_kernels() -> None:
    ended = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    assert pod_state(a_pod(phase="Failed", containerStatuses=container(ended))).exit_code == 137
    assert pod_state(a_pod(phase="Failed", containerStatuses=container(ended, "relay"))).exit_code is None


def test_a_pod_without_a_status_waits() -> None:
    assert pod_state({"metadata": {"name": "p"}}).phase is PodPhase.SCHEDULING


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ClusterAwayError("connection refused"), "tries again"),
        (
            ClusterError(
                403, "Forbidden", 'pods "p" is forbidden: exceeded quota: rq, requested: pods=1, used: pods=1'
            ),
            "quota has no room",
        ),
        (
            ClusterError(
                403, "Forbidden", "unable to create new content in namespace n because it is being terminated"
            ),
            "being deleted",
        ),
        (ClusterError(403, "Forbidden", 'pods is forbidden: User "x" cannot create resource "pods"'), "lacks a right"),
        (ClusterError(400, "", 'admission webhook "w" denied the request: no'), "refused the kernel's pod"),
        (
            ClusterError(403, "Forbidden", 'admission webhook "w" denied the request: it cannot run here'),
            "refused the kernel's pod",
        ),
        (ClusterError(422, "Invalid", "spec.containers[0].image: Required value"), "refused the kernel's pod"),
        (ClusterError(429, "TooManyRequests", "too many", 1.0), "busy"),
        (ClusterError(500, "InternalError", "etcd"), "500 InternalError: etcd"),
    ],
)
def test_a_refusal_is_told_in_words(error: ClusterError, words: str) -> None:
    assert words in refusal_text(error)
