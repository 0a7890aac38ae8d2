"""The control plane's part for ResourceClaims: their allocation with the first pod, their users, and their end.

The answers are those of a control plane of 1.36. One device a request, of the slices' own pool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .cluster import MERGE, ApiClient, Refused

Object = dict[str, Any]

GROUP = "/apis/resource.k8s.io/v1"
_FINALIZER = "resource.kubernetes.io/delete-protection"
_ENDED = ("Succeeded", "Failed")


class Claims:
    """The claims and slices at one look."""

    def __init__(self, api: ApiClient, note: Callable[[Object], None] = lambda _: None) -> None:
        """*note* is called with each claim that was changed here."""
        self._api = api
        self._note = note
        self._claims: dict[tuple[str, str], Object] = {}
        self._slices: list[Object] = []

    def look(self, found: list[Object], slices: list[Object], pods: list[Object]) -> None:
        """Take them, and let go of users that are no more. A claim without users is free again."""
        self._slices = slices
        self._claims = {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in found}
        alive = {one["metadata"]["uid"] for one in pods if (one.get("status") or {}).get("phase") not in _ENDED}
        for claim in found:
            users = _users(claim)
            left = [one for one in users if one["uid"] in alive]
            if left != users:
                self._tell(claim, {**claim["status"], "reservedFor": left} if left else {})

    def node_of(self, pod: Object, node: str) -> str:
        """Return why a pod's claims do not let it onto a node, in the scheduler's words; empty where they do.

        Raises LookupError for a claim that is not there, or goes: its pods wait without a word.
        """
        taken = self._taken()
        for claim in self._claims_of(pod):
            there = _allocated(claim)
            if there:
                if any(one["pool"] != node for one in there):
                    return "cannot allocate all claims"
                continue
            for _ in claim["spec"]["devices"]["requests"]:
                free = [one for one in self._devices(node) if one not in taken]
                if not free:
                    return "cannot allocate all claims"
                taken.add(free[0])
        return ""

    def reserve(self, pod: Object, node: str) -> None:
        """Allocate a pod's claims on a node, and note the pod as their user. Raises Refused for one user too many."""
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        for claim in self._claims_of(pod):
            status = {**(claim.get("status") or {}), "reservedFor": [*_users(claim), user]}
            if not _allocated(claim):
                status["allocation"] = {"devices": {"results": self._results(claim, node)}, "nodeSelector": _only(node)}
            self._tell(claim, status)

    def _results(self, claim: Object, node: str) -> list[Object]:
        results, taken = [], self._taken()
        for request in claim["spec"]["devices"]["requests"]:
            driver, pool, device = next(one for one in self._devices(node) if one not in taken)
            taken.add((driver, pool, device))
            results.append({"request": request["name"], "driver": driver, "pool": pool, "device": device})
        return results

    def _claims_of(self, pod: Object) -> list[Object]:
        names = [one["resourceClaimName"] for one in pod["spec"].get("resourceClaims") or ()]
        found = [self._claims[pod["metadata"]["namespace"], name] for name in names]
        if any("deletionTimestamp" in one["metadata"] for one in found):
            raise LookupError(pod["metadata"]["name"])
        return found

    def _devices(self, node: str) -> list[tuple[str, str, str]]:
        return [
            (one["spec"]["driver"], one["spec"]["pool"]["name"], device["name"])
            for one in self._slices
            if one["spec"].get("nodeName") == node
            for device in one["spec"]["devices"]
        ]

    def _taken(self) -> set[tuple[str, str, str]]:
        return {
            (one["driver"], one["pool"], one["device"]) for claim in self._claims.values() for one in _allocated(claim)
        }

    def _tell(self, claim: Object, status: Object) -> None:
        metadata = claim["metadata"]
        path = f"{GROUP}/namespaces/{metadata['namespace']}/resourceclaims/{metadata['name']}"
        if status:
            self._finalize(path, [_FINALIZER])
        gone = {key: None for key in (claim.get("status") or {}) if key not in status}
        answer = self._api.call("PATCH", f"{path}/status", {"status": {**gone, **status}}, MERGE)
        claim["status"] = answer["status"]
        self._note(answer)
        if not status:
            self._finalize(path, [])

    def _finalize(self, path: str, finalizers: list[str]) -> None:
        try:
            self._api.call("PATCH", path, {"metadata": {"finalizers": finalizers}}, MERGE)
        except Refused as error:
            if error.code not in (404, 422):
                raise


def _users(claim: Object) -> list[Object]:
    return list((claim.get("status") or {}).get("reservedFor") or ())


def _allocated(claim: Object) -> list[Object]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def _only(node: str) -> Object:
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    return {"nodeSelectorTerms": [{"matchFields": fields}]}
