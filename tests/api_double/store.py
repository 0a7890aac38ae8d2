"""The objects of an API double: one order of changes, events for watches, conflicts and compaction.

It answers as a control plane of 1.36 did. No grace period ends by itself: a test ends it.
"""

from __future__ import annotations

import bisect
import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from . import admission

Object = dict[str, Any]
Key = tuple[str, str, str]  # resource, namespace, name


@dataclass(frozen=True)
class Resource:
    """A kind of objects: its path, its kind, and the group in messages."""

    plural: str
    kind: str
    api_version: str
    is_namespaced: bool = True

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def full_name(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def prefix(self) -> str:
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"


RESOURCES = {
    one.plural: one
    for one in (
        Resource("pods", "Pod", "v1"),
        Resource("secrets", "Secret", "v1"),
        Resource("configmaps", "ConfigMap", "v1"),
        Resource("events", "Event", "v1"),
        Resource("resourcequotas", "ResourceQuota", "v1"),
        Resource("nodes", "Node", "v1", is_namespaced=False),
        Resource("namespaces", "Namespace", "v1", is_namespaced=False),
        Resource("deployments", "Deployment", "apps/v1"),
        Resource("networkpolicies", "NetworkPolicy", "networking.k8s.io/v1"),
        Resource("leases", "Lease", "coordination.k8s.io/v1"),
        Resource("podgroups", "PodGroup", "scheduling.run.ai/v2alpha2"),
        Resource("resourceclaims", "ResourceClaim", "resource.k8s.io/v1"),
        Resource("resourceslices", "ResourceSlice", "resource.k8s.io/v1", is_namespaced=False),
        Resource("deviceclasses", "DeviceClass", "resource.k8s.io/v1", is_namespaced=False),
    )
}


class Failure(Exception):
    """An answer with an error: a Status object."""

    def __init__(self, code: int, reason: str, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after

    def status(self) -> Object:
        told: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.retry_after is not None:
            told["details"] = {"retryAfterSeconds": self.retry_after}
        return told


@dataclass(frozen=True)
class Change:
    """One event: its kind, the object then, and the one before for selectors."""

    kind: str
    resource: str
    version: int
    object: Object
    before: Object | None = None


Admission = Callable[[str, Object], None]


def _copied(told: Object) -> Object:
    """Return a copy of an object, which is JSON: `copy.deepcopy` takes five times as long."""
    found: Object = json.loads(json.dumps(told))
    return found


@dataclass
class Store:
    """All objects. Its methods raise Failure. Guarded by ``changed``, whose waiters see each change."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    objects: dict[Key, Object] = field(default_factory=dict)
    log: list[Change] = field(default_factory=list)
    version: int = 1
    compacted: int = 0
    # Called with the resource and a new object; it raises Failure for one that is refused.
    admission: list[Admission] = field(default_factory=list)

    def create(self, resource: Resource, namespace: str, told: Object) -> Object:
        with self.changed:
            self._check_namespace(resource, namespace)
            metadata = told.setdefault("metadata", {})
            if metadata.get("namespace", namespace) != namespace:
                raise Failure(400, "BadRequest", _other_namespace(namespace, metadata["namespace"]))
            if not metadata.get("name") and metadata.get("generateName"):
                metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
            key = (resource.plural, namespace, metadata.get("name", ""))
            if key in self.objects:
                raise Failure(409, "AlreadyExists", f'{resource.full_name} "{key[2]}" already exists')
            for admit in self.admission:
                admit(resource.plural, told)
            self._admit(resource, namespace, told)
            created = _copied(told)
            created.update(apiVersion=resource.api_version, kind=resource.kind)
            if resource.is_namespaced:
                created["metadata"]["namespace"] = namespace
            created["metadata"].update(uid=str(uuid.uuid4()), creationTimestamp="2026-01-01T00:00:00Z", generation=1)
            created["metadata"].pop("resourceVersion", None)
            if resource.plural == "pods":
                created.setdefault("status", {"phase": "Pending"})
                created.setdefault("spec", {}).setdefault("schedulerName", "default-scheduler")
            if resource.plural == "resourcequotas":
                created["status"] = {"hard": created["spec"]["hard"]}
            self._put("ADDED", key, created)
            self._collect()
            return _copied(created)

    def read(self, resource: Resource, namespace: str, name: str) -> Object:
        with self.changed:
            found = self.objects.get((resource.plural, namespace, name))
            if found is None:
                raise Failure(404, "NotFound", f'{resource.full_name} "{name}" not found')
            return _copied(found)

    def find(self, resource: Resource, namespace: str, name: str) -> Object:
        """Return an object; an empty one where there is none."""
        with self.changed:
            return _copied(self.objects.get((resource.plural, namespace, name), {}))

    def list(self, resource: Resource, namespace: str) -> tuple[list[Object], int]:
        with self.changed:
            found = [
                _copied(one)
                for (plural, where, _), one in sorted(self.objects.items())
                if plural == resource.plural and namespace in ("", where)
            ]
            return found, self.version

    def replace(self, resource: Resource, namespace: str, name: str, told: Object, part: str = "") -> Object:
        """Replace an object, or its *part* alone (``status``). A stale resourceVersion conflicts."""
        with self.changed:
            before = self.objects.get((resource.plural, namespace, name))
            if before is None:
                raise Failure(404, "NotFound", f'{resource.full_name} "{name}" not found')
            self._check_version(resource, before, told)
            after = _copied(before)
            if part:
                after[part] = _copied(told.get(part, {}))
            else:
                kept = {name: before[name] for name in ("status",) if name in before}
                after = {**_copied(told), **kept}
                self._keep_metadata(before, after)
            if resource.plural == "resourceclaims":
                _check_claim(before, after)
            if after == before:
                return _copied(before)  # a change of nothing keeps its version
            if after.get("spec") != before.get("spec"):
                after["metadata"]["generation"] = before["metadata"].get("generation", 1) + 1
            self._put("MODIFIED", (resource.plural, namespace, name), after, before)
            self._end_if_free(resource, namespace, name)
            return _copied(after)

    def delete(self, resource: Resource, namespace: str, name: str, options: Mapping[str, Any]) -> Object:
        """Delete an object: at once, or after its grace period and its finalizers."""
        with self.changed:
            key = (resource.plural, namespace, name)
            before = self.objects.get(key)
            if before is None:
                raise Failure(404, "NotFound", f'{resource.full_name} "{name}" not found')
            self._check_preconditions(resource, before, options.get("preconditions") or {})
            grace = options.get("gracePeriodSeconds")
            if grace is None and resource.plural == "pods":
                grace = before.get("spec", {}).get("terminationGracePeriodSeconds", 30)
            is_bound = bool(before.get("spec", {}).get("nodeName"))
            waits = resource.plural == "pods" and is_bound and grace and _is_alive(before)
            if not waits and not before["metadata"].get("finalizers"):
                self._remove(key)
                return _copied(before)
            after = _copied(before)
            _set_deadline(after["metadata"], grace if waits else 0)
            if after != before:
                self._put("MODIFIED", key, after, before)
            return _copied(after)

    def end_grace(self, namespace: str, name: str) -> None:
        """End a pod's grace period, as the kubelet does when its containers are gone."""
        with self.changed:
            key = ("pods", namespace, name)
            before = self.objects[key]
            assert "deletionTimestamp" in before["metadata"], "the pod was not deleted"
            after = _copied(before)
            after["metadata"]["deletionGracePeriodSeconds"] = 0
            self._put("MODIFIED", key, after, before)
            self._end_if_free(RESOURCES["pods"], namespace, name)

    def compact(self) -> None:
        """Forget all events: a watch from before is too old."""
        with self.changed:
            self.compacted = self.version
            self.log.clear()

    def events_since(self, version: int, resource: Resource, namespace: str) -> Iterator[Change]:
        """Yield the events after a version. The caller holds ``changed``."""
        for change in self.log[bisect.bisect_right(self.log, version, key=lambda one: one.version) :]:
            if change.resource == resource.plural and namespace in ("", change.object["metadata"].get("namespace", "")):
                yield change

    # ---- within ``changed``

    def _put(self, kind: str, key: Key, told: Object, before: Object | None = None) -> None:
        self.version += 1
        told["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = told
        self._tell(Change(kind, key[0], self.version, _copied(told), before))

    def _remove(self, key: Key) -> None:
        gone = self.objects.pop(key)
        self.version += 1
        last = _copied(gone)
        last["metadata"]["resourceVersion"] = str(self.version)
        self._tell(Change("DELETED", key[0], self.version, last, gone))
        self._collect()

    def _tell(self, change: Change) -> None:
        self.log.append(change)
        self.changed.notify_all()

    def _end_if_free(self, resource: Resource, namespace: str, name: str) -> None:
        key = (resource.plural, namespace, name)
        metadata = self.objects[key]["metadata"]
        is_over = "deletionTimestamp" in metadata and not metadata.get("deletionGracePeriodSeconds")
        if is_over and not metadata.get("finalizers"):
            self._remove(key)

    def _collect(self) -> None:
        """Remove objects whose owners are gone, as the garbage collector does in the background."""
        while True:
            known = {(one["metadata"]["uid"], one["metadata"].get("namespace", "")) for one in self.objects.values()}
            orphans = [key for key, one in self.objects.items() if self._is_orphan(one, known) and not _is_kept(one)]
            if not orphans:
                return
            key, told = orphans[0], _copied(self.objects[orphans[0]])
            if not told["metadata"].get("finalizers"):
                self._remove(key)
                continue
            _set_deadline(told["metadata"], 0)
            self._put("MODIFIED", key, told, self.objects[key])

    def _is_orphan(self, one: Object, known: set[tuple[str, str]]) -> bool:
        owners = one["metadata"].get("ownerReferences") or []
        where = one["metadata"].get("namespace", "")
        return bool(owners) and not any((owner["uid"], space) in known for owner in owners for space in (where, ""))

    def _check_namespace(self, resource: Resource, namespace: str) -> None:
        found = self.objects.get(("namespaces", "", namespace))
        if resource.is_namespaced and found is None:
            raise Failure(404, "NotFound", f'namespaces "{namespace}" not found')
        if found is not None and "deletionTimestamp" in found["metadata"]:
            raise Failure(
                403,
                "Forbidden",
                f"unable to create new content in namespace {namespace} because it is being terminated",
            )

    def _admit(self, resource: Resource, namespace: str, told: Object) -> None:
        name = told["metadata"].get("name", "")
        kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
        quotas = [one for key, one in self.objects.items() if key[:2] == ("resourcequotas", namespace)]
        used = sum(1 for key in self.objects if key[:2] == (resource.plural, namespace))
        refusals = [admission.refused_name(kind, name)]
        if resource.plural == "leases":
            refusals.append(admission.refused_lease(told))
        if resource.plural == "pods":
            refusals.append(admission.refused_pod(self.objects["namespaces", "", namespace], told))
        refusals.append(admission.refused_quota(quotas, resource.plural, name, used))
        for refusal in filter(None, refusals):
            raise Failure(*refusal)

    def _check_version(self, resource: Resource, before: Object, told: Object) -> None:
        asked = (told.get("metadata") or {}).get("resourceVersion")
        if asked and asked != before["metadata"]["resourceVersion"]:
            name = before["metadata"]["name"]
            raise Failure(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {resource.full_name} "{name}": the object has been modified; please '
                "apply your changes to the latest version and try again",
            )

    def _check_preconditions(self, resource: Resource, before: Object, wanted: Mapping[str, Any]) -> None:
        for field_name, key, words in (
            ("uid", "uid", "UID"),
            ("resourceVersion", "resourceVersion", "ResourceVersion"),
        ):
            asked, found = wanted.get(field_name), before["metadata"][key]
            if asked and asked != found:
                raise Failure(
                    409,
                    "Conflict",
                    f'Operation cannot be fulfilled on {resource.kind} "{before["metadata"]["name"]}": the {words} in '
                    f"the precondition ({asked}) does not match the {words} in record ({found}). The object might have "
                    "been modified",
                )

    def _keep_metadata(self, before: Object, after: Object) -> None:
        kept = ("uid", "name", "namespace", "creationTimestamp", "generation", "resourceVersion")
        kept += ("deletionTimestamp", "deletionGracePeriodSeconds")
        metadata = after.setdefault("metadata", {})
        metadata.update({name: before["metadata"][name] for name in kept if name in before["metadata"]})
        new = set(metadata.get("finalizers") or ()) - set(before["metadata"].get("finalizers") or ())
        if new and "deletionTimestamp" in metadata:
            told = ", ".join(f'"{one}"' for one in sorted(new))
            raise Failure(
                422,
                "Invalid",
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found "
                f"new finalizers []string{{{told}}}",
            )


_MOST_USERS = 256


def _check_claim(before: Object, after: Object) -> None:
    """Refuse a change of what a claim asked for or got, and too many users."""
    name, users = before["metadata"]["name"], (after.get("status") or {}).get("reservedFor") or ()
    got = [(one.get("status") or {}).get("allocation") for one in (before, after)]
    if before.get("spec") != after.get("spec") or (None not in got and got[0] != got[1]):
        what = "spec" if before.get("spec") != after.get("spec") else "status.allocation"
        told = f'ResourceClaim.resource.k8s.io "{name}" is invalid: {what}: Invalid value: {{...}}: field is immutable'
        raise Failure(422, "Invalid", told)
    if len(users) > _MOST_USERS:
        told = f'ResourceClaim.resource.k8s.io "{name}" is invalid: status.reservedFor: Too many: {len(users)}: '
        raise Failure(422, "Invalid", f"{told}must have at most {_MOST_USERS} items")


def _is_kept(one: Object) -> bool:
    """Return whether an object is deleted already, and waits for its finalizers."""
    return bool(one["metadata"].get("finalizers")) and "deletionTimestamp" in one["metadata"]


def _set_deadline(metadata: Object, grace: float) -> None:
    """Note when a deleted object ends. A later deletion makes that earlier, and never later."""
    before = metadata.get("deletionGracePeriodSeconds")
    if before is None or grace < before:
        ends = datetime.now(timezone.utc) + timedelta(seconds=grace)
        metadata.update(deletionTimestamp=f"{ends:%Y-%m-%dT%H:%M:%SZ}", deletionGracePeriodSeconds=grace)


def _is_alive(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def _other_namespace(asked: str, found: str) -> str:
    return f"the namespace of the provided object does not match the namespace sent on the request ({found} {asked})"
