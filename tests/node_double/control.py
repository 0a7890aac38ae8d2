"""The control plane's part that nodes need: a scheduler, silent nodes' readiness, and the end of lost nodes' pods."""

from __future__ import annotations

import threading
import time
import uuid
from functools import partial
from types import TracebackType
from typing import Any

from .claims import GROUP, Claims
from .cluster import MERGE, ApiClient, Refused, follow
from .node import LEASES, now

Object = dict[str, Any]

_LOOK_SECONDS = 0.5  # between two looks where nothing changes: nodes fall silent without a word
_PAUSE_SECONDS = 0.02  # several changes, one look
_LEASES_SECONDS = 0.25  # between two looks at the nodes' leases, most of which only renew one
_NODES, _PODS = "/api/v1/nodes", "/api/v1/pods"
_CLAIMS, _SLICES = f"{GROUP}/resourceclaims", f"{GROUP}/resourceslices"
_FOLLOWED = (_NODES, _PODS, _CLAIMS, _SLICES)
_ENDED = ("Succeeded", "Failed")
_GONE = "PodGC: node no longer exists"
_CLOSED = "Taint manager: deleting due to NoExecute taint"


class ControlDouble:
    """Binds pending pods to nodes, and marks nodes whose lease is not renewed for *silence_seconds*."""

    def __init__(self, url: str, token: str = "", silence_seconds: float = 5.0) -> None:
        self._api = ApiClient(url, token)
        self._silence_seconds = silence_seconds
        self._claims = Claims(self._api, partial(self._changed_here, _CLAIMS))
        self._renewed: dict[str, tuple[str, float]] = {}
        self._leases_at = 0.0
        self._guard = threading.Lock()
        # guarded by _guard: what the watches told, by path and uid; the paths that were listed
        self._seen: dict[str, dict[str, Object]] = {path: {} for path in _FOLLOWED}
        self._listed: set[str] = set()
        self._ended = threading.Event()
        self._changed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control-double", daemon=True)

    def __enter__(self) -> ControlDouble:
        for path in _FOLLOWED:
            words = (self._api, path, partial(self._told, path), self._ended, _LOOK_SECONDS, partial(self._lists, path))
            threading.Thread(target=follow, args=words, daemon=True).start()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._changed.set()
        self._thread.join()

    def _told(self, path: str, kind: str, one: Object) -> None:
        uid = one["metadata"]["uid"]
        with self._guard:
            known = self._seen[path].get(uid)
            if kind == "DELETED":
                self._seen[path].pop(uid, None)
            elif known is None or _version(known) <= _version(one):
                self._seen[path][uid] = one
        self._changed.set()

    def _changed_here(self, path: str, answer: Object) -> None:
        """Take the answer to a change of the double's own, which is ahead of the watch, as a scheduler assumes it."""
        uid = answer["metadata"]["uid"]
        with self._guard:
            known = self._seen[path].get(uid)
            if known is not None and _version(known) <= _version(answer):
                self._seen[path][uid] = answer

    def _lists(self, path: str) -> None:
        with self._guard:
            self._listed.add(path)
        self._changed.set()

    def _run(self) -> None:
        while not self._ended.wait(_PAUSE_SECONDS):
            self._changed.wait(_LOOK_SECONDS)
            self._changed.clear()
            try:
                self._look()
            except Refused:
                continue  # the server is away

    def _look(self) -> None:
        with self._guard:
            if self._listed != set(_FOLLOWED):
                return
            nodes, pods, claims, slices = (list(self._seen[path].values()) for path in _FOLLOWED)
        self._claims.look(claims, slices, pods)
        self._mark_silent(nodes)
        self._collect(pods, {one["metadata"]["name"] for one in nodes})
        self._close(pods, {one["metadata"]["name"]: one for one in nodes})
        for pod in pods:
            if pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
                continue
            if pod["spec"].get("schedulingGates"):
                told = "Scheduling is blocked due to non-empty scheduling gates"
                self._condition(pod, "False", "SchedulingGated", told)
                continue
            self._schedule(pod, nodes, pods)

    # ---- scheduling

    def _schedule(self, pod: Object, nodes: list[Object], pods: list[Object]) -> None:
        why: dict[str, int] = {}
        for node in nodes:
            name = node["metadata"]["name"]
            try:
                reason = _why_not(pod, node, pods) or self._claims.node_of(pod, name)
            except LookupError:
                return None  # a claim of the pod is not there: no condition, and no event
            if not reason:
                self._claims.reserve(pod, name)
                return self._bind(pod, name, pods)
            why[reason] = why.get(reason, 0) + 1
        told = ", ".join(f"{count} {reason}" for reason, count in sorted(why.items()))
        self._condition(pod, "False", "Unschedulable", f"0/{len(nodes)} nodes are available: {told}.")

    def _bind(self, pod: Object, node: str, pods: list[Object]) -> None:
        target = {"target": {"apiVersion": "v1", "kind": "Node", "name": node}}
        self._api.call("POST", f"{_path(pod)}/binding", target)
        pod["spec"]["nodeName"] = node  # counts for the pods after it in this look
        self._condition(pod, "True", "", "")

    def _condition(self, pod: Object, word: str, reason: str, message: str) -> None:
        told = {"type": "PodScheduled", "status": word, **({"reason": reason, "message": message} if reason else {})}
        before = (pod.get("status") or {}).get("conditions") or []
        if told in before:
            return
        others = [one for one in before if one["type"] != "PodScheduled"]
        try:
            status = {"status": {"conditions": [*others, told]}}
            answer = self._api.call("PATCH", f"{_path(pod)}/status", status, MERGE)
            self._changed_here(_PODS, answer)
            pod["status"] = answer["status"]
            if reason == "Unschedulable":
                self._tell(pod, message)
        except Refused as error:
            if error.code != 404:
                raise

    def _tell(self, pod: Object, message: str) -> None:
        """Tell by an event what the pod's condition says."""
        metadata = pod["metadata"]
        about = {"kind": "Pod", **{key: metadata[key] for key in ("namespace", "name", "uid")}}
        told = {"type": "Warning", "reason": "FailedScheduling", "message": message, "involvedObject": about}
        told |= {"action": "Scheduling", "reportingComponent": "default-scheduler", "eventTime": now()}
        name = {"name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}"}
        self._api.call("POST", f"/api/v1/namespaces/{metadata['namespace']}/events", {"metadata": name, **told})

    # ---- nodes

    def _collect(self, pods: list[Object], nodes: set[str]) -> None:
        """Remove the pods of nodes that are no more, as the pod garbage collector does after a while."""
        taken = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
        for pod in pods:
            node = pod["spec"].get("nodeName")
            if node in {None, "", *nodes} or self._is_node_there(node):
                continue
            conditions = [*((pod.get("status") or {}).get("conditions") or ()), taken | {"message": _GONE}]
            status = {"phase": "Failed", "conditions": conditions}
            self._api.call("PATCH", f"{_path(pod)}/status", {"status": status}, MERGE)
            self._api.call("DELETE", _path(pod), {"gracePeriodSeconds": 0})

    def _is_node_there(self, name: str) -> bool:
        """Ask the server: the watch of the pods may be ahead of that of the nodes."""
        try:
            self._api.call("GET", f"{_NODES}/{name}")
        except Refused as error:
            if error.code != 404:
                raise
            return False
        return True

    def _close(self, pods: list[Object], nodes: dict[str, Object]) -> None:
        """Delete the pods that do not tolerate a taint of their node with the effect NoExecute."""
        taken = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": _CLOSED}
        for pod in pods:
            node = nodes.get(pod["spec"].get("nodeName") or "")
            if node is None or "deletionTimestamp" in pod["metadata"] or not _taints(pod, node, "NoExecute"):
                continue
            conditions = [*((pod.get("status") or {}).get("conditions") or ()), taken]
            self._api.call("PATCH", f"{_path(pod)}/status", {"status": {"conditions": conditions}}, MERGE)
            self._api.call("DELETE", _path(pod))

    def _mark_silent(self, nodes: list[Object]) -> None:
        if time.monotonic() < self._leases_at:
            return
        self._leases_at = time.monotonic() + _LEASES_SECONDS
        leases = self._api.call("GET", LEASES).get("items") or []
        renewed = {one["metadata"]["name"]: str(one["spec"].get("renewTime")) for one in leases}
        now = time.monotonic()
        for node in nodes:
            name = node["metadata"]["name"]
            word, since = self._renewed.get(name, ("", now))
            if renewed.get(name, "") != word:
                self._renewed[name] = (renewed.get(name, ""), now)
            elif now - since > self._silence_seconds and _is_ready(node):
                told = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
                told["message"] = "Kubelet stopped posting node status."
                self._api.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"conditions": [told]}}, MERGE)


def _version(one: Object) -> int:
    return int(one["metadata"]["resourceVersion"])


def _path(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _is_ready(node: Object) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _taints(pod: Object, node: Object, *effects: str) -> list[Object]:
    """Return the taints of a node with these effects that a pod does not tolerate."""
    taints = [one for one in node["spec"].get("taints") or () if one["effect"] in effects]
    return [one for one in taints if not any(_bears(it, one) for it in pod["spec"].get("tolerations") or ())]


def _bears(toleration: Object, taint: Object) -> bool:
    is_of_it = toleration.get("key", taint["key"]) == taint["key"]
    has_value = toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")
    return is_of_it and has_value and toleration.get("effect", taint["effect"]) == taint["effect"]


def _why_not(pod: Object, node: Object, pods: list[Object]) -> str:
    """Return why a pod does not fit on a node, in the scheduler's words; empty where it fits."""
    if not _is_named(pod, node):
        return "node(s) didn't satisfy plugin(s) [NodeAffinity]"
    if node["spec"].get("unschedulable"):
        return "node(s) were unschedulable"
    if not _is_ready(node) or _taints(pod, node, "NoSchedule", "NoExecute"):
        return "node(s) had untolerated taint(s)"
    if not _has_labels(pod, node):
        return "node(s) didn't match Pod's node affinity/selector"
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    used = [
        _wanted(one)
        for one in pods
        if one["spec"].get("nodeName") == node["metadata"]["name"]
        and (one.get("status") or {}).get("phase") not in _ENDED
    ]
    for resource, amount in _wanted(pod).items():
        if sum(one.get(resource, 0) for one in used) + amount > int(allocatable.get(resource, 0)):
            return f"Insufficient {resource}"
    return ""


def _wanted(pod: Object) -> dict[str, int]:
    """Return the extended resources that a pod requests."""
    total: dict[str, int] = {}
    for container in pod["spec"]["containers"]:
        for name, amount in (container.get("resources", {}).get("limits") or {}).items():
            if "/" in name:
                total[name] = total.get(name, 0) + int(amount)
    return total


def _has_labels(pod: Object, node: Object) -> bool:
    labels = node["metadata"].get("labels") or {}
    return all(labels.get(name) == value for name, value in (pod["spec"].get("nodeSelector") or {}).items())


def _is_named(pod: Object, node: Object) -> bool:
    """Return whether a pod whose affinity names its nodes names this one. A scheduler looks at no other."""
    affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if affinity is None:
        return True
    name = node["metadata"]["name"]
    return any(
        all(one["key"] == "metadata.name" and name in one["values"] for one in term.get("matchFields") or ())
        for term in affinity["nodeSelectorTerms"]
    )
