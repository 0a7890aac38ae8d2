"""The state of a kernel's pod, and of a refused request, in words for the user who waits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .client import ClusterAwayError, ClusterError, Object
from .kernel_pod import KERNEL_CONTAINER

_PULL = {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable"}
_CONFIGURATION = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_UNPLACED = "FailedScheduling"
_EVICTIONS = {
    "EvictionByEvictionAPI": "an administrator or a program drained its node",
    "PreemptionByScheduler": "the cluster gave its place to a pod of higher priority",
    "DeletionByTaintManager": "its node was not ready, or was closed for it",
    "DeletionByDeviceTaintManager": "its GPU was closed for it",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "its node ran short of resources, or shut down",
}


class PodPhase(str, Enum):
    """A pod's place in its life, as the gateway tells it."""

    SCHEDULING = "scheduling"
    STARTING = "starting"
    CANNOT_START = "cannot_start"
    RUNNING = "running"
    EVICTED = "evicted"
    ENDING = "ending"
    ENDED = "ended"


@dataclass(frozen=True)
class PodState:
    """The phase, and a sentence where there is something to say.

    ``exit_code`` is the kernel's, once it has ended.
    """

    phase: PodPhase
    reason: str = ""
    exit_code: int | None = None


def pod_state(pod: Object) -> PodState:
    """Return the state of a kernel's pod."""
    status = pod.get("status") or {}
    if (evicted := _eviction(status)) is not None:
        return PodState(PodPhase.EVICTED, evicted, _exit_code(status))
    if status.get("phase") in ("Succeeded", "Failed"):
        return PodState(PodPhase.ENDED, _end(status), _exit_code(status))
    if pod["metadata"].get("deletionTimestamp"):
        return PodState(PodPhase.ENDING)
    if not (pod.get("spec") or {}).get("nodeName"):
        return PodState(PodPhase.SCHEDULING, _scheduling(status))
    for name, waiting in _waiting(status):
        if (problem := _start_problem(name, waiting)) is not None:
            return PodState(PodPhase.CANNOT_START, problem)
    if _is_running(status):
        return PodState(PodPhase.RUNNING)
    return PodState(PodPhase.STARTING, "The node starts the pod, and fetches images that it does not have")


def refusal_text(error: ClusterError, request: str = "the kernel's pod") -> str:
    """Return why the cluster did not take a request, for the user. *request* names it where the cluster refuses it."""
    told = str(error)
    if isinstance(error, ClusterAwayError):
        return f"{told}. The server tries again"
    if error.code == 403 and "exceeded quota" in told:
        return f"The namespace's quota has no room for the kernel: {told}. End a kernel, or ask for a larger quota"
    if error.code == 403 and "because it is being terminated" in told:
        return f"The namespace of the kernels is being deleted: {told}"
    if error.code == 403 and 'is forbidden: User "' in told:
        return f"The gateway's ServiceAccount lacks a right: {told}. Apply the Role of this version"
    if error.code == 429:
        return f"The Kubernetes API is busy: {told}. The server tries again"
    if "admission webhook" in told or error.code in (400, 403, 422):
        return f"The cluster refused {request}: {told}"
    return f"The Kubernetes API answered {error.code} {error.reason}: {told}"


def warning_text(events: Iterable[Object]) -> str:
    """Return the last warning among a pod's events, for the user who waits; empty without one.

    The scheduler's own warnings are left out: the pod's condition has their text, and `pod_state` their meaning.
    """
    warnings = [one for one in events if one.get("type") == "Warning" and one.get("reason") != _UNPLACED]
    if not warnings:
        return ""
    last = max(warnings, key=_when)
    reason, message = str(last.get("reason") or ""), str(last.get("message") or "").strip()
    if reason == "FailedAttachVolume" and "Multi-Attach" in message:
        return (
            "A volume of the kernel can be on one node at a time (ReadWriteOnce), and another node has it: "
            f"{message}. End the server or the kernel that uses it there, or ask for a volume that is ReadWriteMany"
        )
    return f"The cluster says ({reason}): {message}"


def _when(event: Object) -> str:
    told = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    return str(told or "")


def _condition(status: Object, kind: str) -> Object | None:
    return next((one for one in status.get("conditions") or () if one.get("type") == kind), None)


def _scheduling(status: Object) -> str:
    told = _condition(status, "PodScheduled")
    if told is None or told.get("status") == "True":
        return "The cluster's scheduler has not placed the pod yet"
    reason, message = told.get("reason", ""), told.get("message", "")
    if reason == "SchedulingGated":
        return f"The pod waits for a gate of the cluster, as of a queue: {message}"
    if reason == "SchedulerError":
        return f"The cluster's scheduler failed: {message}"
    if "volume node affinity conflict" in message:
        return f"A volume of the kernel belongs to another node than its GPU: {message}"
    return f"No node has room for the pod: {message}"


def _statuses(status: Object) -> Iterator[Object]:
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def _waiting(status: Object) -> Iterator[tuple[str, Object]]:
    for one in _statuses(status):
        waiting = (one.get("state") or {}).get("waiting")
        if waiting:
            yield one.get("name", "?"), {"image": one.get("image", ""), **waiting}


def _start_problem(name: str, waiting: Object) -> str | None:
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason in _PULL:
        return f"The image {waiting['image']!r} cannot be fetched ({reason}): {message}"
    if reason in _CONFIGURATION:
        return f"The container {name!r} cannot be made ({reason}): {message}"
    if reason == "CrashLoopBackOff":
        return f"The container {name!r} ends again and again: {message}"
    return None


def _is_running(status: Object) -> bool:
    return any(
        one.get("name") == KERNEL_CONTAINER and "running" in (one.get("state") or {})
        for one in status.get("containerStatuses") or ()
    )


def _eviction(status: Object) -> str | None:
    told = _condition(status, "DisruptionTarget")
    if told is not None and told.get("status") == "True":
        why = _EVICTIONS.get(told.get("reason", ""), told.get("reason", ""))
        return f"the cluster evicted it: {why} ({told.get('message', '')})"
    if status.get("reason") == "Evicted":
        return f"its node evicted it: {status.get('message', '')}"
    return None


def _terminated(status: Object) -> Any:
    for one in status.get("containerStatuses") or ():
        if one.get("name") == KERNEL_CONTAINER:
            return (one.get("state") or {}).get("terminated")
    return None


def _exit_code(status: Object) -> int | None:
    ended = _terminated(status)
    return None if ended is None else ended.get("exitCode")


def _end(status: Object) -> str:
    ended = _terminated(status)
    if ended is not None and ended.get("reason") == "OOMKilled":
        return "The kernel used more host memory than its pod may have, and the system ended it"
    if ended is None:
        return f"The pod ended: {status.get('reason') or 'no reason told'} {status.get('message') or ''}".rstrip()
    return f"The kernel's process ended with exit code {ended.get('exitCode')}"
